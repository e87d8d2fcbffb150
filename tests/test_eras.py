"""The era of a gate that source shows, where no verified version says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.arch import SM120
from patcher.eras import Choice, Eras, borders, eras
from patcher.errors import Unrecognised
from patcher.gate import Gate, State
from patcher.plan import Inspector
from patcher.sites import ConditionSite, Site
from patcher.source import SourceTree
from patches.sglang import _miniature as mini
from tests.conftest import Met
from tests.installation import GATE, SERIAL, flashinfer, install, metadata, run, run_json, snapshot, states
from tests.machinery import FILE, IN_TREE, gate_of

Folder = Callable[[Mapping[str, str]], Path]

ONE = """\
from sglang.srt.utils import is_sm100_supported


def choose(kind):
    return is_sm100_supported() and kind == "one"
"""
TWO = (
    ONE
    + """\


def choose_again(kind):
    return is_sm100_supported() and kind == "two"
"""
)


def _site(versions: str, within: str = "choose", mentions: tuple[str, ...] = (), alias: str = "") -> ConditionSite:
    return ConditionSite(versions, FILE, within, mentions=mentions, alias=alias)


def _eras(inspector: Inspector, *gates: type[Gate], stated: str | None = None) -> Eras:
    return Eras(stated, gates, inspector.find, inspector._edited_alike)


def _blind(root: Path, stated: str | None = "0.0.0.dev1") -> Inspector:
    return Inspector(catalogue.engine_named("sglang"), SourceTree(root), stated, Met(), verified=False)


@pytest.fixture
def one(folder_of: Folder) -> Inspector:
    return _blind(folder_of({**mini.UTILS, IN_TREE: ONE}))


@pytest.fixture
def two(folder_of: Folder) -> Inspector:
    return _blind(folder_of({**mini.UTILS, IN_TREE: TWO}))


def test_eras_are_the_distinct_sets_of_sites_newest_first() -> None:
    first, second, also = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5"), _site(">=0.5.7", "choose_again")
    gate = gate_of(first, second, also)
    assert [str(b) for b in borders([gate])] == ["0.5.1", "0.5.5", "0.5.7"]
    assert eras(gate) == [(second, also), (second,), (first,)]


def test_the_era_whose_sites_are_all_found_is_chosen_whatever_the_version_says(one: Inspector) -> None:
    gone, here = _site(">=0.5.1,<0.5.5", "somewhere_else"), _site(">=0.5.5")
    gate = gate_of(gone, here)
    for stated in (None, "0.0.0.dev1", "0.5.2", "0.5.2+gabcdef", "99", "not a version"):
        choice = _eras(one, gate, stated=stated).choose(gate)
        assert choice.sites == (here,)
        assert choice.problem is None


def test_a_part_of_a_gate_is_not_the_gate(two: Inspector) -> None:
    """Both of the newer era's places are there: the older era, with one of them, would leave half of it shut."""
    old, new, also = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5"), _site(">=0.5.5", "choose_again")
    gate = gate_of(old, new, also)
    assert _eras(two, gate, stated="0.5.1").choose(gate).sites == (new, also)


def test_where_the_release_has_more_of_the_gate_than_is_found_nothing_is_chosen_instead(one: Inspector) -> None:
    """The other gates say 0.5.5, which has two sites; one of them is gone. The older era would match, with one."""
    old, new, also = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5"), _site(">=0.5.5", "choose_again")
    gate = gate_of(old, new, also)
    witnesses = [gate_of(_site(">=0.5.5"), name=f"witness-{n}") for n in range(3)]
    look = _eras(one, gate, *witnesses)
    assert look.shown == "0.5.5 or newer"
    assert look.choose(gate).sites == (new, also)


def test_two_eras_that_match_at_different_places_are_not_guessed_between(two: Inspector) -> None:
    old, new = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5", "choose_again")
    gate = gate_of(old, new)
    for stated in (None, "0.0.0.dev1", "0.5.2.dev1", "0.5.6.dev1"):
        problem = _eras(two, gate, stated=stated).choose(gate).problem
        assert problem is not None
        assert "something that other releases have" in problem.what
        assert problem.where.startswith(IN_TREE)


def test_a_gate_that_cannot_be_told_is_unrecognised_and_not_planned(two: Inspector) -> None:
    gate = gate_of(_site(">=0.5.1,<0.5.5"), _site(">=0.5.5", "choose_again"))
    report = two.report(gate, SM120)
    assert report.state is State.UNRECOGNISED
    assert "something that other releases have" in report.reason
    with pytest.raises(Unrecognised, match="something that other releases have"):
        two.plan({gate: gate.direction()})


def test_two_eras_that_edit_one_place_differently_are_told_apart_by_the_release_or_not_at_all(one: Inspector) -> None:
    old, new = _site(">=0.5.1,<0.5.5"), dataclasses.replace(_site(">=0.5.5"), alias="_is_target")
    gate = gate_of(old, new)
    assert _eras(one, gate, stated="0.5.2.dev1").choose(gate) == Choice((old,))
    assert _eras(one, gate, stated="0.5.6.dev1").choose(gate) == Choice((new,))
    # Another gate says that the release is neither: there is no telling.
    others = [gate_of(_site(">=0.5.7"), name=f"other-{n}") for n in range(2)]
    third = gate_of(old, new, _site(">=0.5.6,<0.5.7", "gone"))
    looking = _eras(one, third, *others, stated="0.5.6.dev1")
    assert looking.choose(third).problem is None
    unknown = Eras(None, [gate], one.find, one._edited_alike)
    unknown.__dict__["best"] = []
    problem = unknown.choose(gate).problem
    assert problem is not None
    assert "edited differently" in problem.what


def test_what_other_releases_have_elsewhere_is_no_hindrance_where_the_release_is_clear(two: Inspector) -> None:
    old, new = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5", "choose_again")
    gate = gate_of(old, new)
    witness = gate_of(_site(">=0.5.5"), name="witness")
    assert _eras(two, gate, witness).choose(gate) == Choice((new,))


def test_what_another_release_has_in_series_is_a_hindrance_however_clear_the_release(two: Inspector) -> None:
    """A fork of 0.5.1 with half of what 0.5.5 added: opening the old half alone would open half of the gate."""
    always, added, gone = _site(">=0.5.1"), _site(">=0.5.5", "choose_again"), _site(">=0.5.5", "gone")
    gate = gate_of(always, added, gone)
    witnesses = [gate_of(_site(">=0.5.1,<0.5.5"), name=f"witness-{n}") for n in range(3)]
    look = _eras(two, gate, *witnesses)
    assert look.shown == "0.5.1 to before 0.5.5"
    problem = look.choose(gate).problem
    assert problem is not None
    assert "something that other releases have" in problem.what


def test_a_prerelease_belongs_to_the_release_before(one: Inspector) -> None:
    old, new = _site(">=0.5.1,<0.5.5"), _site(">=0.5.5")
    gate = gate_of(old, new)
    assert _eras(one, gate, stated="0.5.5.dev3+g1234").choose(gate).sites == (old,)
    assert _eras(one, gate, stated="0.5.5+g1234").choose(gate).sites == (new,)


def test_nothing_of_a_gate_is_absent_and_something_is_unrecognised(one: Inspector, two: Inspector) -> None:
    nothing = gate_of(_site(">=0.5.1,<0.5.5", "gone"), name="nothing")
    part = gate_of(_site(">=0.5.1,<0.5.5"), _site(">=0.5.1,<0.5.5", "gone"), name="part")
    here = gate_of(_site(">=0.5.5"), name="here")
    look = _eras(one, nothing, part, here, here)
    assert look.choose(nothing).sites == ()
    assert len(look.choose(part).sites) == 2
    assert not all(one.find(site).place for site in look.choose(part).sites)


@pytest.mark.parametrize("version", ["0.0.0.dev1", "0.5.23+gabcdef", "0.5.24.dev3+g1234567", "0.4.1", "0.5.9+local"])
def test_a_repack_is_unverified_and_patched_by_what_its_source_shows(tmp_path: Path, version: str) -> None:
    root = install(tmp_path / "root", version)
    originals = {path: data for path, (data, _, _) in snapshot(root).items()}
    _, data = run_json("status", "--sm", "120", root=root)
    there = data["installations"][0]["installation"]
    assert (there["version"], there["verified"]) == (version, False)
    assert there["source_shows"]
    gate = next(g for g in data["installations"][0]["gates"] if g["gate"] == GATE)
    assert (gate["state"], gate["sites"]) == ("closed", {"found": 3, "expected": 3})
    assert run("apply", "--sm", "120", "--gate", GATE, root=root).exit_code == 0
    assert {path: (root / path).read_text() for path in SERIAL.after} == dict(SERIAL.after)
    assert states(root)[GATE] == "patched"
    assert run("revert", root=root).exit_code == 0
    assert {path: data for path, (data, _, _) in snapshot(root).items()} == originals


def test_another_distribution_s_number_is_no_verified_version(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = {**SERIAL.before, "sglang/__init__.py": "", **flashinfer("0.7.2", [9, 10, 12])}
    files |= {p: t.replace("house/__init__", "sglang/__init__") for p, t in metadata("house-sglang", "0.5.9").items()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    shown = run("status", "--sm", "120", root=root)
    assert "0.5.9 (unverified; its source looks like 0.5.22 " in shown.stderr
    assert "provided by the distribution house-sglang" in shown.stderr
    assert states(root)[GATE] == "closed"


def test_a_verified_release_is_taken_at_its_word(tmp_path: Path) -> None:
    root = install(tmp_path / "root", "0.5.9")  # the source is that of another release: no site is looked for there
    assert states(root)[GATE] == "unrecognised"
    shown = run("status", "--sm", "120", root=root)
    assert "unverified" not in shown.stderr


def test_what_is_written_does_not_change_what_the_source_shows(folder_of: Folder) -> None:
    gate = catalogue.gates("sglang")[GATE]
    inspector = _blind(folder_of(SERIAL.before))
    sites: list[Site] = list(inspector.sites(gate))
    plan = inspector.plan({gate: gate.direction()})
    after = _blind(folder_of({**SERIAL.before, **{p: c.after.decode() for p, c in plan.changes.items()}}))
    assert list(after.sites(gate)) == sites
    assert not after.plan({gate: gate.direction()}).changes
