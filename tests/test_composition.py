"""Recipes on one file, and on one condition: any order, the same bytes; each goes alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path

import pytest

from patcher.arch import SM120, SM121
from patcher.gate import Action, State
from patcher.literals import LiteralSite
from patcher.sites import ConditionSite, EqualsSite
from patcher.values import Tensor, ValueCheck, ValueSite
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

_SOURCE = """\
from sglang.srt.utils import is_cuda, get_device_sm, is_sm100_supported


def choose(view, flag):
    if flag and view.kind == "fp4" and is_sm100_supported() and view.name in ["a", "b"]:
        return True
    return False


def runner(view):
    return view.backend == "auto" and view.kind == "fp4" and get_device_sm() >= 120


def size(x):
    BLOCK = 128
    return BLOCK
"""

_CHECK = ValueCheck(
    cases=[{}],
    arguments=lambda case: {"x": Tensor((1,))},
    needed=lambda run, case: int(run.result),
    limits={SM120: 64, SM121: 64},
    varies=frozenset({"return"}),
)
_CONDITION = ConditionSite("", FILE, "choose", mentions=("kind",))
GATES = {
    "a-both": gate_of(_CONDITION, name="a-both"),
    "b-120": gate_of(_CONDITION, name="b-120", targets=frozenset({SM120})),
    "c-121": gate_of(_CONDITION, name="c-121", targets=frozenset({SM121})),
    "d-list": gate_of(LiteralSite("", FILE, "choose", holds=("a", "b"), element='"x"'), name="d-list"),
    "e-equals": gate_of(
        EqualsSite("", FILE, "runner", mentions=("kind",), equals="fp4", also="mixed"), name="e-equals"
    ),
}


@pytest.mark.parametrize("names", [("b-120", "c-121", "d-list", "e-equals"), ("a-both", "d-list", "e-equals")])
def test_any_order_gives_the_same_bytes(names: tuple[str, ...], folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SOURCE}))
    outcomes = {tuple(applied(inspector, [GATES[n] for n in order]).items()) for order in permutations(names)}

    assert len(outcomes) == 1
    changed = inspector.replaced({path: text.encode() for path, text in dict(outcomes.pop()).items()})
    for name in names:
        for sm in GATES[name].targets:
            assert changed.report(GATES[name], sm).state is State.OPEN


@pytest.mark.parametrize("seed", range(4))
def test_each_goes_alone(seed: int, folder_of: Folder) -> None:
    """Whatever is taken out, what is left is what it would be had the other never been there."""
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SOURCE}))
    inside = [GATES[n] for n in ("b-120", "c-121", "d-list", "e-equals")]
    order = random.Random(seed).sample(inside, len(inside))
    while order:
        order.pop()
        mine = applied(inspector, order)
        assert mine == applied(inspector, sorted(order, key=lambda gate: gate.id))
        changed = inspector.replaced({path: text.encode() for path, text in mine.items()})
        for gate in inside:
            states = {changed.report(gate, sm).state for sm in gate.targets}
            assert states == {State.OPEN if gate in order else State.CLOSED}


def test_a_condition_that_another_recipe_has_changed_is_still_found(folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SOURCE}))
    text = applied(inspector, [GATES["b-120"]])[IN_TREE]
    changed = inspector.replaced({IN_TREE: text.encode()})

    assert changed.report(GATES["a-both"], SM120).state is State.OPEN
    assert changed.report(GATES["a-both"], SM121).state is State.CLOSED
    assert changed.report(GATES["d-list"], SM120).state is State.CLOSED
    both = applied(inspector, [GATES["a-both"], GATES["b-120"]])
    assert both == applied(inspector, [GATES["a-both"]]), "nothing is left for the second to do"


def test_a_fix_and_an_opening_in_one_file(folder_of: Folder) -> None:
    site = ValueSite("", FILE, "size", names=("BLOCK",), body="BLOCK = 64", check=_CHECK)
    fix = gate_of(site, name="0-fix", action=Action.FIX)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SOURCE}))

    both = applied(inspector, [fix, GATES["a-both"]])
    assert both == applied(inspector, [GATES["a-both"], fix])
    changed = inspector.replaced({path: text.encode() for path, text in both.items()})
    assert {changed.report(gate, SM120).state for gate in (fix, GATES["a-both"])} == {State.OPEN}
    assert both[IN_TREE].count("BLOCK = 64") == 1
