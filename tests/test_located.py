"""Conditions told apart by their place, values accepted in a branch, and spellings imported inside a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.condition import Truth
from patcher.errors import NothingToForce, Unrecognised
from patcher.located import AcceptsSite, LocatedSite
from patcher.plan import SiteReport
from patcher.predicate import World, cuda_world
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

ON_120 = cuda_world(SM120)

TWICE = """\
from sglang.srt.utils import is_sm100_supported, is_sm120_supported


def check(args):
    if args.prefill == "mla":
        if not is_sm100_supported():
            raise ValueError("no mla here")
        args.page = 64
    elif args.prefill == "mha":
        if not is_sm100_supported():
            raise ValueError("no mha here")
    kind = "fast" if is_sm100_supported() else "slow"
    return kind
"""


def look(folder_of: Folder, text: str, site: LocatedSite) -> SiteReport:
    return inspect(folder_of({**mini.UTILS, IN_TREE: text})).find(site)


@pytest.mark.parametrize(
    ("site", "line"),
    [
        (LocatedSite("", FILE, "check", under=("mla",), refuses=True), 6),
        (LocatedSite("", FILE, "check", under=("mha",), refuses=True), 10),
        (LocatedSite("", FILE, "check", leads_to=("no mha here",), refuses=True), 10),
        (LocatedSite("", FILE, "check", leads_to=("fast", "slow")), 12),
    ],
)
def test_the_place_tells_equal_conditions_apart(site: LocatedSite, line: int, folder_of: Folder) -> None:
    found = look(folder_of, TWICE, site).place
    assert found is not None
    assert found.line == line
    assert found.admits(ON_120) is Truth.NEVER


def test_an_elif_is_not_under_the_test_before_it(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "check", under=("mla", "mha"), refuses=True)
    assert look(folder_of, TWICE, site).place is None


def test_without_a_place_two_are_too_many(folder_of: Folder) -> None:
    found = look(folder_of, TWICE, LocatedSite("", FILE, "check", refuses=True))
    assert isinstance(found.error, Unrecognised)
    assert "2 places" in found.error.what


def test_only_the_located_condition_is_edited(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "check", under=("mha",), refuses=True)
    after = applied(inspect(folder_of({**mini.UTILS, IN_TREE: TWICE})), [gate_of(site)])[IN_TREE]
    changed = [(a, b) for a, b in zip(TWICE.splitlines(), after.splitlines(), strict=True) if a != b]
    assert changed == [
        (
            "        if not is_sm100_supported():",
            "        if not is_sm100_supported() and not is_sm120_supported():",
        )
    ]


ASKED = """\
from sglang.srt.utils import is_sm100_supported, is_sm120_supported


def check(backend):
    if backend == "x" and not {test}:
        raise ValueError(backend)
"""


def test_one_that_refuses_who_asks_for_it_refuses(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "check", refuses=True)
    closed = look(folder_of, ASKED.format(test="is_sm100_supported()"), site).place
    assert closed is not None
    assert closed.admits(ON_120) is Truth.NEVER


def test_one_that_refuses_others_alone_admits(tmp_path: Path, folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "check", refuses=True)
    text = ASKED.format(test="(is_sm100_supported() or is_sm120_supported())")
    opened = look(folder_of, text, site).place
    assert opened is not None
    assert opened.admits(ON_120) is Truth.ALWAYS
    assert opened.admits(cuda_world(SM(8, 0))) is Truth.NEVER


GIVEN = """\
import torch


class Backend:
    def choose(self, length):
        device_sm = self.get_device_sm()
        self.dense = (device_sm == 90 or (device_sm >= 100 and device_sm < 110)) and length < self.limit
"""
HOLDS = "torch.cuda.get_device_capability()[0] * 10 + torch.cuda.get_device_capability()[1]"


def test_what_a_name_holds_may_be_given(folder_of: Folder) -> None:
    blind = LocatedSite("", FILE, "Backend.choose", leads_to=("dense",))
    assert look(folder_of, GIVEN, blind).place is None


def test_a_given_name_is_judged_but_never_edited(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "Backend.choose", leads_to=("dense",), given=(("device_sm", HOLDS),))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: GIVEN}))
    place = inspector.find(site).place
    assert place is not None
    assert [place.admits(cuda_world(sm)) for sm in (SM(8, 0), SM(9, 0), SM(10, 3), SM120)] == [
        Truth.NEVER,
        Truth.DEPENDS,
        Truth.DEPENDS,
        Truth.NEVER,
    ]
    assert "device_sm" in place.text
    with pytest.raises(NothingToForce, match=r"set while it runs \(device_sm\)"):
        inspector.plan({gate_of(site): gate_of(site).direction()})


KNOWN = """\
import torch

from sglang.srt.utils import get_device_sm, is_sm120_supported


class Backend:
    def choose(self, size):
        device_sm = get_device_sm()
        self.dense = device_sm == 90 or 100 <= device_sm < 110
"""


def test_a_given_name_that_the_source_tells_as_well_is_edited(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "Backend.choose", leads_to=("dense",), given=(("device_sm", HOLDS),))
    gate = gate_of(site)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: KNOWN}))
    (change,) = inspector.plan({gate: gate.direction()}).changes.values()
    assert b"is_sm120_supported()" in change.after


def test_a_place_that_is_only_shown_says_why(folder_of: Folder) -> None:
    site = LocatedSite("", FILE, "Backend.choose", leads_to=("dense",), shown_only="nothing is behind it")
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: KNOWN}))
    place = inspector.find(site).place
    assert place is not None and place.admits(cuda_world(SM120)) is Truth.NEVER
    with pytest.raises(NothingToForce, match="nothing is behind it"):
        inspector.plan({gate_of(site): gate_of(site).direction()})


HELD = """\
from sglang.srt.utils import is_sm100_supported


class Cache:
    def __init__(self, config):
        self.wants_fp4 = config.wants_fp4
        assert is_sm100_supported() or not self.wants_fp4
        if not (is_sm100_supported() and can_download("cubins")):
            raise ValueError("no")
"""


@pytest.mark.parametrize(
    ("site", "given"),
    [
        (LocatedSite("", FILE, "Cache.__init__", mentions=("wants_fp4",)), ("self.wants_fp4", "True")),
        (
            LocatedSite("", FILE, "Cache.__init__", mentions=("can_download",), refuses=True),
            ("can_download('cubins')", "True"),
        ),
    ],
)
def test_what_an_attribute_holds_and_a_call_returns_may_be_given(
    folder_of: Folder, site: LocatedSite, given: tuple[str, str]
) -> None:
    assert look(folder_of, HELD, site).place is None
    place = look(folder_of, HELD, replace(site, given=(given,))).place
    assert place is not None
    assert place.admits(cuda_world(SM(10, 0))) is Truth.ALWAYS
    assert place.admits(cuda_world(SM120)) is Truth.NEVER


LISTED = """\
from sglang.srt.utils import is_blackwell_supported, is_sm120_supported


def wrap(args):
    if is_blackwell_supported():
        if is_sm120_supported():
            allowed = {on_120}
        else:
            allowed = {{"triton", "fa4"}}
        assert args.backend in allowed, "not a backend for these models"
"""
ACCEPTS = AcceptsSite(
    "", FILE, "wrap", refuses=True, witness=SM(8, 0), outsider=SM(10, 0), leads_to=("allowed",), accepts="flashinfer"
)


@pytest.mark.parametrize(
    ("listed", "world", "admitted"),
    [
        ('{"triton", "flashinfer"}', ON_120, True),
        ('{"triton"}', ON_120, False),
        ('{"triton", "flashinfer"}', cuda_world(SM(10, 0)), False),
        ('{"triton"}', cuda_world(SM(9, 0)), True),
    ],
)
def test_the_list_on_the_way_of_a_gpu_decides(listed: str, world: World, admitted: bool, folder_of: Folder) -> None:
    place = look(folder_of, LISTED.format(on_120=listed), ACCEPTS).place
    assert place is not None
    assert (place.admits(world) is Truth.ALWAYS) is admitted


def test_a_list_is_opened_by_skipping_it(folder_of: Folder) -> None:
    text = LISTED.format(on_120='{"triton"}')
    after = applied(inspect(folder_of({**mini.UTILS, IN_TREE: text})), [gate_of(ACCEPTS)])[IN_TREE]
    assert "    if is_blackwell_supported() and not is_sm120_supported():\n" in after


LOCAL = """\
def wrap(args):
    if args.other:
        from sglang.srt.utils import is_npu_or_so
    if args.config:
        from sglang.srt.utils import {names}

        {more}
        if is_sm100_supported():
            return "fast"
    return "slow"
"""
INSIDE = LocatedSite("", FILE, "wrap", leads_to=("fast",))


@pytest.mark.parametrize("names", ["is_sm100_supported", "is_sm100_supported, is_cuda"])
def test_an_import_inside_the_function_is_extended(names: str, folder_of: Folder) -> None:
    text = LOCAL.format(names=names, more="args.seen = True")
    after = applied(inspect(folder_of({**mini.UTILS, IN_TREE: text})), [gate_of(INSIDE)])[IN_TREE]
    extended = names.replace("is_sm100_supported", "is_sm100_supported, is_sm120_supported")
    assert f"        from sglang.srt.utils import {extended}\n" in after
    assert "if is_sm100_supported() or is_sm120_supported():" in after
    assert "import is_npu_or_so\n" in after


def test_two_names_are_imported_where_one_spelling_needs_both(folder_of: Folder) -> None:
    text = LOCAL.format(names="is_sm100_supported", more="args.seen = True")
    gate = gate_of(INSIDE, targets=frozenset({SM121}))
    after = applied(inspect(folder_of({**mini.UTILS, IN_TREE: text})), [gate])[IN_TREE]
    assert "import is_sm100_supported, is_cuda, get_device_sm\n" in after
    assert "if is_sm100_supported() or (is_cuda() and get_device_sm() == 121):" in after


def test_a_name_that_the_function_binds_is_not_imported(folder_of: Folder) -> None:
    text = LOCAL.format(names="is_sm100_supported", more="is_sm120_supported = is_cuda = args.seen")
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    with pytest.raises(Unrecognised, match="no way is known"):
        inspector.plan({gate_of(INSIDE, targets=SM12X): gate_of(INSIDE).direction()})
