"""Forks of SGLang on the index, and releases whose metadata says nothing: the source decides."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from packaging.version import Version

from patcher import catalogue
from patcher.arch import SM120, SM121
from patcher.environment import installation_at, of_root
from patcher.gate import Level, State
from patcher.operations import Workplace
from patcher.plan import Inspector
from patcher.source import SourceTree
from scripts import matrix, releases
from tests.conftest import Met
from tests.installation import run

pytestmark = pytest.mark.releases

# Distribution, version, and the release that its source is derived from.
FORKS = (
    ("sglang-kt", "0.5.2", "0.5.9"),
    ("sglang-kt", "0.6.2.post3", "0.5.9"),
    ("sglang-usf", "0.5.1.post6", "0.5.1.post2"),
)
BLIND = ("0.4.9", "0.5.4.post2", "0.5.8.post1", "0.5.14", "0.5.20", "0.5.23")


@cache
def workplace(distribution: str, version: str) -> Workplace:
    root = releases.unpacked(distribution, version)
    engine = catalogue.engine_named("sglang")
    installation = installation_at(of_root(root, [engine.package]), engine, root)
    return Workplace(installation, matrix.ASSUMED)


def _within(look: Inspector, release: str) -> bool:
    """Whether the releases that a source looks like include this one."""
    borders, best = look.eras.borders, look.eras.best
    after = borders.index(best[-1]) + 1
    return best[0] <= Version(release) and (after == len(borders) or Version(release) < borders[after])


@pytest.mark.parametrize(("distribution", "version", "base"), FORKS)
def test_a_fork_is_unverified_and_looks_like_what_it_was_made_from(distribution: str, version: str, base: str) -> None:
    place = workplace(distribution, version)
    assert place.installation.distribution == distribution
    assert place.installation.repackaged
    assert not place.installation.verified
    assert _within(place.inspector, base)


@pytest.mark.parametrize(("distribution", "version", "base"), FORKS)
@pytest.mark.parametrize("sm", [SM120, SM121])
def test_every_gate_of_a_fork_is_proven_or_refused_with_a_reason(
    distribution: str, version: str, base: str, sm: tuple[int, int]
) -> None:
    place = workplace(distribution, version)
    proven = 0
    for report in place.reports(SM120 if sm == SM120 else SM121):
        assert report.state is not State.UNRECOGNISED, f"{report.gate.id}: {report.reason}"
        assert report.reason
        if report.state is State.REFUSED:
            assert report.link
            assert report.direction is None
        elif report.direction is not None and report.gate.level is not Level.REFUSED:
            plan = place.inspector.plan({report.gate: report.direction})
            assert plan.changes
            assert all(step.checks for step in plan.steps)
            proven += 1
        else:
            assert report.state in (State.OPEN, State.CLOSED, State.ABSENT)
    assert proven >= 2


@pytest.mark.parametrize(("distribution", "version", "base"), FORKS)
def test_a_fork_has_the_states_of_the_release_it_was_made_from(distribution: str, version: str, base: str) -> None:
    """The gates that a fork itself did not touch: at least nine of ten are as in its base."""
    ours = {report.gate.id: report.state for report in workplace(distribution, version).reports(SM120)}
    theirs = {report.gate.id: report.state for report in workplace("sglang", base).reports(SM120)}
    same = [name for name in ours if ours[name] is theirs[name]]
    assert len(same) >= 0.9 * len(ours), {n: (ours[n].value, theirs[n].value) for n in ours if n not in same}


@pytest.mark.parametrize(("distribution", "version", "base"), FORKS)
def test_a_fork_is_patched_and_given_back(distribution: str, version: str, base: str, tmp_path: Path) -> None:
    original = releases.unpacked(distribution, version)
    root = tmp_path / "root"
    shutil.copytree(original, root)
    assumed = ("--assume", "flashinfer-python==0.7.2", "--sm", "120")
    applied = run("apply", *assumed, root=root)
    assert applied.exit_code == 0
    assert "opened allreduce-fusion: 1 of 1 sites edited, proven" in applied.stderr
    assert matrix.compare(original / "sglang", root / "sglang")
    assert run("status", *assumed, "--check", root=root).exit_code == 0
    assert run("revert", root=root).exit_code == 0
    assert matrix.compare(original / "sglang", root / "sglang") == []


@pytest.mark.parametrize("release", BLIND)
def test_a_release_is_known_by_its_source_alone(release: str) -> None:
    engine = catalogue.engine_named("sglang")
    tree = SourceTree(releases.unpacked("sglang", release))
    told = Inspector(engine, tree, release, Met())
    blind = Inspector(engine, tree, "0.0.0.dev1", Met(), verified=False)
    assert _within(blind, release)
    for gate in catalogue.gates("sglang").values():
        choice = blind.eras.choose(gate)
        assert choice.problem is None
        # Where the catalogue says a release has no such gate, the source may still hold one like it.
        assert choice.sites == tuple(told.sites(gate)) or not told.sites(gate), gate.id
