"""Guards with a condition of their own, and the anchors they go before: the edit, the proof, and who is let through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.anchors import Branch, Mentions, ReadsTable, Unless
from patcher.arch import SM, SM120
from patcher.condition import Truth
from patcher.errors import ProofFailed
from patcher.gate import Action, Direction, State
from patcher.predicate import cuda_world
from patcher.proof import Claim, prove
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

CHECK = """\
from sglang.srt.utils import is_blackwell_supported, is_sm120_supported


def check(view):
{guard}    if view.backend == "mla" or view.decode == "mla":
        if not is_blackwell_supported():
            raise ValueError("Blackwell only")
        view.page = 64
    return {{}}
"""
WHEN = 'view.prefill == "mla"'
RAISE = 'raise ValueError("not on SM12X")\n'
SITE = GuardSite("", FILE, "check", Branch(("mla",)), RAISE, closes=True, when=WHEN)
GUARD = '    # sm-patch: a-gate\n    if is_sm120_supported() and {when}:\n        raise ValueError("not on SM12X")\n'


def test_a_guard_may_ask_for_more_than_the_target(folder_of: Folder) -> None:
    gate = gate_of(SITE, action=Action.CLOSE)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: CHECK.format(guard="")}))
    assert inspector.report(gate, SM120).state is State.TOO_OPEN
    after = applied(inspector, [gate])[IN_TREE]
    assert after == CHECK.format(guard=GUARD.format(when=WHEN))
    again = inspector.replaced({IN_TREE: after.encode()})
    assert again.report(gate, SM120).state is State.CLOSED
    assert not again.plan({gate: Direction.CLOSE}).changes


def test_a_compound_condition_keeps_its_own_parentheses(folder_of: Folder) -> None:
    when = 'view.prefill == "mla" or view.both'
    site = GuardSite("", FILE, "check", Branch(("mla",)), RAISE, closes=True, when=when)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: CHECK.format(guard="")}))
    after = applied(inspector, [gate_of(site, action=Action.CLOSE)])[IN_TREE]
    assert f"    if is_sm120_supported() and ({when}):\n" in after


@pytest.mark.parametrize("when", ['view.prefill == "mha"', 'view.prefill == "mla" and view.more', "True"])
def test_a_guard_with_another_condition_is_not_ours(when: str, folder_of: Folder) -> None:
    text = CHECK.format(guard=GUARD.format(when=when))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    assert inspector.report(gate_of(SITE, action=Action.CLOSE), SM120).state is State.TOO_OPEN


@pytest.mark.parametrize(
    "guard",
    [
        GUARD.format(when='view.prefill == "mha"'),
        GUARD.replace(" and {when}", ""),
        GUARD.replace("is_sm120_supported()", "is_blackwell_supported()").format(when=WHEN),
        GUARD.replace("is_sm120_supported() and {when}", f"{WHEN} and is_sm120_supported()"),
    ],
)
def test_the_proof_refuses_any_other_guard(guard: str, folder_of: Folder) -> None:
    before = inspect(folder_of({**mini.UTILS, IN_TREE: CHECK.format(guard="")}))
    after = before.replaced({IN_TREE: CHECK.format(guard=guard).encode()})
    with pytest.raises(ProofFailed):
        prove(before.view(SITE), after.view(SITE), Claim([SITE], Direction.CLOSE, SM12X))


def test_a_branch_lets_through_whom_its_own_check_lets_through(folder_of: Folder) -> None:
    place = inspect(folder_of({**mini.UTILS, IN_TREE: CHECK.format(guard="")})).find(SITE).place
    assert place is not None
    assert place.admits(cuda_world(SM(9, 0))) is Truth.NEVER
    assert place.admits(cuda_world(SM(10, 0))) is Truth.ALWAYS
    assert place.admits(cuda_world(SM120)) is Truth.ALWAYS


MENTIONS = """\
from sglang.srt.utils import is_sm120_supported


def check(view):
    if view.hidden:
        prefill = view.get("prefill")
        return prefill
    if view.backend == "mla":
        view.log("mla", 128)
        view.page = 128
    prefill = view.get("prefill")
    decode = view.get("decode")
    return prefill, decode
"""


@pytest.mark.parametrize(
    ("anchor", "line"),
    [(Mentions(("prefill", "get")), 11), (Mentions(("log",), inside=("mla",)), 9), (Mentions(("log",)), None)],
)
def test_a_statement_is_found_by_what_it_mentions(anchor: Mentions, line: int | None, folder_of: Folder) -> None:
    site = GuardSite("", FILE, "check", anchor, RAISE, closes=True)
    found = inspect(folder_of({**mini.UTILS, IN_TREE: MENTIONS})).find(site)
    assert (found.place.line if found.place else None) == line


TABLE = """\
import torch

from sglang.srt.utils import is_sm120_supported

SIZES = {{9: {{2: 1}}, 10: {{2: 1}}}}


class Communicator:
    def __init__(self, size):
        self.disabled = True
        self.major = torch.cuda.get_device_capability()[0]
        {read}
        self.disabled = False
"""
READS = GuardSite("", FILE, "Communicator.__init__", ReadsTable("SIZES"), "return\n", closes=True)


@pytest.mark.parametrize(
    ("read", "state"),
    [
        ("self.rows = SIZES[self.major]", State.TOO_OPEN),
        ("if size not in SIZES[self.major]: return", State.TOO_OPEN),
        ("self.rows = SIZES.get(self.major)", State.CLOSED),
    ],
)
def test_a_table_without_a_row_lets_nobody_through_when_it_is_asked(read: str, state: State, folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: TABLE.format(read=read)}))
    gate = gate_of(READS, action=Action.CLOSE)
    assert inspector.report(gate, SM120).state is state
    place = inspector.find(READS).place
    assert place is not None
    assert place.admits(cuda_world(SM(10, 3))) is Truth.ALWAYS


def test_a_lookup_that_would_be_a_key_error_is_left_before_it(folder_of: Folder) -> None:
    text = TABLE.format(read="self.rows = SIZES[self.major]")
    after = applied(inspect(folder_of({**mini.UTILS, IN_TREE: text})), [gate_of(READS, action=Action.CLOSE)])[IN_TREE]
    guarded = "        if is_sm120_supported():\n            return\n        self.rows = SIZES[self.major]\n"
    assert guarded in after


TELLS = """\
import logging

from sglang.srt.utils import is_sm120_supported

logger = logging.getLogger(__name__)


def choose(backend):
{asked}    logger.info("taking the fast one")
    return backend
"""
ASKED = "    if backend.is_sm120():\n        return 'sdpa'\n"


def test_a_guard_is_for_definitions_that_do_not_ask_themselves(folder_of: Folder) -> None:
    anchor = Unless(("is_sm120",), Mentions(("taking the fast one",)))
    gate = gate_of(GuardSite("", FILE, "choose", anchor, "return 'sdpa'\n", closes=True), action=Action.CLOSE)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: TELLS.format(asked="")}))
    assert inspector.report(gate, SM120).state is State.TOO_OPEN
    assert "if is_sm120_supported():\n        return 'sdpa'\n" in applied(inspector, [gate])[IN_TREE]


def test_one_that_asks_itself_is_not_the_place(folder_of: Folder) -> None:
    anchor = Unless(("is_sm120",), Mentions(("taking the fast one",)))
    site = GuardSite("", FILE, "choose", anchor, "return 'sdpa'\n", closes=True)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: TELLS.format(asked=ASKED)}))
    assert inspector.find(site).place is None
