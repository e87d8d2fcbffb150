"""Fixtures of the fault tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from patcher.operations import Outcome, Workplace
from patcher.plan import Inspector, Plan
from tests.store import engine

_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _gates(monkeypatch: pytest.MonkeyPatch) -> None:
    engine.use_gates(monkeypatch)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a thing: thousands of runs need no real disk."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="sm-patch-tests-", dir=_MEMORY))
    yield folder
    shutil.rmtree(folder)


_tried: dict[str, int] = {}


@pytest.fixture
def injections(request: pytest.FixtureRequest) -> Callable[[int], None]:
    """Notes how many faults a test injected; the run ends with the table of them."""

    def note(number: int) -> None:
        _tried[request.node.nodeid.rpartition("/")[2]] = number

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _tried:
        terminalreporter.section("faults injected, without a violation")
        for name, number in sorted(_tried.items()):
            terminalreporter.write_line(f"{number:6}  {name}")
        terminalreporter.write_line(f"{sum(_tried.values()):6}  in all")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installed miniature."""
    engine.install(tmp_path / "site")
    return tmp_path / "site"


def remember_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans remembered by what they were made from: the sweeps make the same few thousands of times."""
    remembered: dict[object, Plan] = {}
    make: Callable[..., Plan] = Inspector.plan

    def plan(self: Inspector, wanted: dict[object, object]) -> Plan:
        tree = self.predicates.tree
        sources = tuple((path, source.digest) for path in engine.files() if (source := tree.get(path)))
        key = (tuple((gate.id, way) for gate, way in wanted.items()), sources)  # type: ignore[attr-defined]
        if key not in remembered:
            remembered[key] = make(self, wanted)
        return remembered[key]

    monkeypatch.setattr(Inspector, "plan", plan)


@pytest.fixture
def quick_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_plans(monkeypatch)


class World:
    """A folder with an installation and its state, copied for every run so that each starts from the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def site(self) -> Path:
        return self.folder / "site"

    def copy(self, name: str) -> World:
        target = self.folder.parent / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target, symlinks=True)
        return World(target)


class Change:
    """A change to be made in a world: what leads up to it, what it does, and the trees and states it may end in."""

    def __init__(self, name: str, before: Callable[[Path], object], do: Callable[[Path], Outcome]) -> None:
        self.name = name
        self.before = before
        self.do = do

    def world(self, folder: Path) -> World:
        """A world in which the change can be made."""
        world = World(folder / self.name)
        engine.install(world.site)
        for path in (engine.ADD_NORM, engine.COMM_FUSION):
            with contextlib.suppress(OSError):  # not every file system has them
                os.setxattr(world.site / path, "user.note", b"kept")
        self.before(world.site)
        for path in (engine.ADD_NORM, engine.COMM_FUSION):
            cached = cache_from_source(str(world.site / path))
            engine.put(Path(cached), b"stale")
        return world


CHANGES = [
    Change("apply", lambda site: None, engine.apply),
    Change("revert", engine.apply, engine.revert),
    Change("re-apply", engine.apply, lambda site: engine.apply(site, engine.BESIDE, engine.AUTO)),
    Change(
        "part-revert",
        lambda site: engine.apply(site, engine.FUSION, engine.BESIDE),
        lambda site: engine.revert(site, engine.FUSION),
    ),
]


@pytest.fixture(params=CHANGES, ids=lambda change: change.name)
def change(request: pytest.FixtureRequest) -> Change:
    chosen: Change = request.param
    return chosen


class Judge:
    """Says whether a world is exactly as before a change or exactly as after it, and whether status says which."""

    def __init__(self, change: Change, folder: Path) -> None:
        self.world = change.world(folder)
        self.old = engine.tree(self.world.site), engine.states(self.world.site)
        done = self.world.copy("done")
        change.do(done.site)
        self.new = engine.tree(done.site), engine.states(done.site)
        assert self.old != self.new
        changed = {path for path in self.new[0] if self.old[0].get(path) != self.new[0][path]}
        self.rewritten = {Path(path).stem for path in changed}
        self.outcomes = {"old": 0, "new": 0}

    def check(self, site: Path) -> str:
        """Old or new; anything else fails the test."""
        workplace: Workplace = engine.workplace(site)
        found = engine.tree(site), engine.states_of(workplace)
        assert found in (self.old, self.new), f"neither old nor new: {found[1]}, {sorted(found[0])}"
        assert not workplace.store.interrupted()
        which = "old" if found == self.old else "new"
        stale = [p for p in site.rglob("*.pyc") if p.read_bytes() == b"stale"]
        assert which == "old" or not {p.name.split(".")[0] for p in stale} & self.rewritten
        self.outcomes[which] += 1
        return which
