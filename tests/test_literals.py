"""Literal sites: the element is there for the targets only, and nothing else of the literal moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.arch import SM120, SM121
from patcher.condition import Truth
from patcher.errors import ProofFailed, Unrecognised
from patcher.gate import Direction, State
from patcher.literals import LiteralSite
from patcher.predicate import ALL_WORLDS
from patcher.proof import Claim, prove
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

_IMPORT = "from sglang.srt.utils import is_cuda, is_sm120_supported\n\n"
_LAYOUTS = {
    "one line": ('["a", "b"]', '["a", "b", *(["x"] if is_sm120_supported() else [])]'),
    "one element": ('["a"]', '["a", *(["x"] if is_sm120_supported() else [])]'),
    "trailing comma": ('("a", "b",)', '("a", "b", *(["x"] if is_sm120_supported() else []),)'),
    "one-tuple": ('("a",)', '("a", *(["x"] if is_sm120_supported() else []),)'),
    "set": ('{"a", "b"}', '{"a", "b", *(["x"] if is_sm120_supported() else [])}'),
    "many lines with comments": (
        '[\n        "a",  # first\n        "b",\n        # "x": not yet\n    ]',
        '[\n        "a",  # first\n        "b",\n        *(["x"] if is_sm120_supported() else []),'
        '\n        # "x": not yet\n    ]',
    ),
}


def _module(literal: str) -> str:
    return f"{_IMPORT}def choose(name):\n    return name in {literal}\n"


@pytest.mark.parametrize(("before", "after"), _LAYOUTS.values(), ids=_LAYOUTS)
def test_the_layout_is_kept(before: str, after: str, folder_of: Folder) -> None:
    gate = gate_of(LiteralSite("", FILE, "choose", holds=("a",), element='"x"'))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _module(before)}))

    assert inspector.report(gate, SM120).state is State.CLOSED
    assert applied(inspector, [gate]) == {IN_TREE: _module(after)}


def test_a_dict_gets_a_key(folder_of: Folder) -> None:
    table = f"{_IMPORT}SIZES = {{\n    9: 1,\n    10: 2,\n}}\n"
    gate = gate_of(LiteralSite("", FILE, "", holds=(9, 10), element="12: 2"))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: table}))

    wanted = table.replace("    10: 2,\n", "    10: 2,\n    **({12: 2} if is_sm120_supported() else {}),\n")
    assert applied(inspector, [gate]) == {IN_TREE: wanted}


def test_who_has_the_element(folder_of: Folder) -> None:
    site = LiteralSite("", FILE, "choose", holds=("a",), element='"x"')
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _module(_LAYOUTS["one line"][1])}))
    place = inspector.find(site).place

    assert place is not None
    assert {w.sm for w in ALL_WORLDS if place.admits(w) is Truth.ALWAYS} == SM12X


def test_upstream_has_it_for_all(folder_of: Folder) -> None:
    gate = gate_of(LiteralSite("", FILE, "choose", holds=("a",), element='"x"'), upstream_since="0.5.13")
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _module('["a", "x"]')}))

    for sm in (SM120, SM121):
        report = inspector.report(gate, sm)
        assert (report.state, report.reason) == (State.OPEN, "upstream lets it in since 0.5.13")
    assert applied(inspector, [gate]) == {}


def test_two_literals_are_not_guessed_between(folder_of: Folder) -> None:
    gate = gate_of(LiteralSite("", FILE, "choose", holds=("a",), element='"x"'))
    text = _module('["a"] or name in ["a", "b"]')
    with pytest.raises(Unrecognised, match="2 places"):
        applied(inspect(folder_of({**mini.UTILS, IN_TREE: text})), [gate])


_SPOILT = {
    "an element is gone": '["a", *(["x"] if is_sm120_supported() else [])]',
    "two elements changed places": '["b", "a", *(["x"] if is_sm120_supported() else [])]',
    "another element": '["a", "b", *(["y"] if is_sm120_supported() else [])]',
    "for everyone": '["a", "b", "x"]',
    "for all of CUDA": '["a", "b", *(["x"] if is_cuda() else [])]',
    "in front": '[*(["x"] if is_sm120_supported() else []), "a", "b"]',
    "another kind": '("a", "b", *(["x"] if is_sm120_supported() else []))',
    "negated": '["a", "b", *(["x"] if not is_sm120_supported() else [])]',
}


@pytest.mark.parametrize("literal", _SPOILT.values(), ids=_SPOILT)
def test_the_proof_rejects(literal: str, folder_of: Folder) -> None:
    site = LiteralSite("", FILE, "choose", holds=("a",), element='"x"')
    before = inspect(folder_of({**mini.UTILS, IN_TREE: _module('["a", "b"]')}))
    after = before.replaced({IN_TREE: _module(literal).encode()})

    with pytest.raises(ProofFailed):
        prove(before.view(site), after.view(site), Claim([site], Direction.OPEN, SM12X))
