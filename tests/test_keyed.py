"""Literals keyed by SM: the targets get entries of their own, every other key has what it had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.arch import SM120, SM121
from patcher.errors import ProofFailed, Unrecognised
from patcher.gate import Action, Direction, State
from patcher.keyed import KeyedSite, Unit
from patcher.predicate import ALL_WORLDS
from patcher.proof import Claim, prove
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

_LIST = KeyedSite("", FILE, "build", Unit.MAJOR, keyword="majors")
_DECORATOR = KeyedSite("", FILE, "check", Unit.CAPABILITY, decorator="supported")
_TABLE = KeyedSite("", FILE, "", Unit.CAPABILITY, name="SIZES", value="{2: 2}")
_DOTTED = KeyedSite("", FILE, "", Unit.DOTTED, name="LIMITS", value="1")
_SOURCE = """\
SIZES: dict[int, dict[int, float]] = {
    90: {2: 64},
    100: {2: 64},
}
LIMITS = {"9.0": 8}


def build():
    return flags(majors=[9, 10])


@supported([100, 103])
def check(x):
    return True
"""
_AFTER = {
    _LIST: ("majors=[9, 10]", "majors=[9, 10, 12]"),
    _DECORATOR: ("[100, 103]", "[100, 103, 120, 121]"),
    _TABLE: (
        "    100: {2: 64},\n",
        "    100: {2: 64},\n    120: {2: 2},\n    121: {2: 2},\n",
    ),
    _DOTTED: ('{"9.0": 8}', '{"9.0": 8, "12.0": 1, "12.1": 1}'),
}
_NAMES = "from x import flags, supported\n"


def _files(source: str = _SOURCE) -> dict[str, str]:
    return {**mini.UTILS, IN_TREE: _NAMES + source}


@pytest.mark.parametrize("site", _AFTER, ids=lambda site: site.unit.value + (site.keyword or site.name))
def test_the_targets_get_their_own_entries(site: KeyedSite, folder_of: Folder) -> None:
    gate = gate_of(site)
    inspector = inspect(folder_of(_files()))
    assert inspector.report(gate, SM120).state is State.CLOSED

    after = applied(inspector, [gate])
    assert after == {IN_TREE: _NAMES + _SOURCE.replace(*_AFTER[site])}

    changed = inspector.replaced({path: text.encode() for path, text in after.items()})
    old, new = inspector.find(site).place, changed.find(site).place
    assert old is not None
    assert new is not None
    for world in ALL_WORLDS:
        assert (new.admits(world) != old.admits(world)) is (world.sm in SM12X)


def test_one_of_the_two_targets(folder_of: Folder) -> None:
    gate = gate_of(_DECORATOR, targets=frozenset({SM121}))
    text = applied(inspect(folder_of(_files())), [gate])[IN_TREE]
    assert "[100, 103, 121]" in text


def test_upstream_lists_them(folder_of: Folder) -> None:
    source = _SOURCE.replace("[100, 103]", "[100, 120, 121]")
    inspector = inspect(folder_of(_files(source)))
    assert inspector.report(gate_of(_DECORATOR), SM121).state is State.OPEN
    assert applied(inspector, [gate_of(_DECORATOR)]) == {}


@pytest.mark.parametrize(
    "source",
    [
        _SOURCE.replace("[100, 103]", "CAPABILITIES"),
        _SOURCE.replace("[100, 103]", "[100, *more]"),
        _SOURCE.replace("@supported([100, 103])\n", ""),
        _SOURCE.replace("@supported([100, 103])\n", "@supported([100])\n@supported([103])\n"),
    ],
    ids=["a name", "a part that is no constant", "none", "two"],
)
def test_other_shapes_are_not_guessed(source: str, folder_of: Folder) -> None:
    gate = gate_of(_DECORATOR)
    inspector = inspect(folder_of(_files(source)))
    assert inspector.report(gate, SM120).state is State.UNRECOGNISED
    with pytest.raises(Unrecognised):
        inspector.plan({gate: Direction.OPEN})


def test_a_list_is_not_shortened(folder_of: Folder) -> None:
    gate = gate_of(_DECORATOR, action=Action.CLOSE)
    inspector = inspect(folder_of(_files(_SOURCE.replace("103", "120, 121"))))
    with pytest.raises(Unrecognised):
        inspector.plan({gate: Direction.CLOSE})


_GOOD = _SOURCE.replace(*_AFTER[_TABLE])
_WRONG = {
    "another key's value": (_GOOD.replace("90: {2: 64}", "90: {2: 32}"), "others-same"),
    "another key is gone": (_GOOD.replace("    90: {2: 64},\n", ""), "others-same"),
    "the order": (
        _GOOD.replace("    90: {2: 64},\n    100: {2: 64},\n", "    100: {2: 64},\n    90: {2: 64},\n"),
        "others-same",
    ),
    "another SM's entry": (_GOOD.replace("    121:", "    110:"), "others-same"),
    "an entry twice": (_GOOD.replace("    121:", "    120:"), "only-sites"),
    "another value": (_GOOD.replace("120: {2: 2}", "120: {2: 64}"), "targets"),
    "more world sizes": (_GOOD.replace("120: {2: 2}", "120: {2: 2, 4: 2}"), "targets"),
    "one target only": (_GOOD.replace("    121: {2: 2},\n", ""), "targets"),
    "another table": (_GOOD.replace('{"9.0": 8}', '{"9.0": 8, "12.0": 1}'), "only-sites"),
}


@pytest.mark.parametrize(("source", "check"), _WRONG.values(), ids=_WRONG)
def test_the_proof_fails(source: str, check: str, folder_of: Folder) -> None:
    inspector = inspect(folder_of(_files()))
    changed = inspector.replaced({IN_TREE: (_NAMES + source).encode()})
    claim = Claim([_TABLE], Direction.OPEN, SM12X)
    with pytest.raises(ProofFailed, match=f"'{check}'"):
        prove(inspector.view(_TABLE), changed.view(_TABLE), claim)


def test_the_proof_holds_for_the_right_edit(folder_of: Folder) -> None:
    inspector = inspect(folder_of(_files()))
    changed = inspector.replaced({IN_TREE: (_NAMES + _GOOD).encode()})
    assert prove(inspector.view(_TABLE), changed.view(_TABLE), Claim([_TABLE], Direction.OPEN, SM12X))


def test_a_decorator_changed_beside_the_site_fails(folder_of: Folder) -> None:
    inspector = inspect(folder_of(_files()))
    source = _SOURCE.replace("@supported([100, 103])", "@flags([100, 103, 120, 121])")
    changed = inspector.replaced({IN_TREE: (_NAMES + source).encode()})
    with pytest.raises(ProofFailed, match="'only-sites'"):
        prove(inspector.view(_DECORATOR), changed.view(_TABLE), Claim([_DECORATOR], Direction.OPEN, SM12X))
