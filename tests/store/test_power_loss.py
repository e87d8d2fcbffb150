"""The power fails after any step, and takes any part of what was not synced with it."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from patcher import disk
from patcher.errors import SmPatchError
from tests.store import engine
from tests.store.conftest import CHANGES, Change, Judge
from tests.store.faults import killed, steps_of, using
from tests.store.power import Disk, crashes, materialise, selections

pytestmark = pytest.mark.usefixtures("quick_plans")


def _lose_power(
    judge: Judge, folder: Path, do: Callable[[Path], object], check: Callable[[Path], object]
) -> tuple[int, int]:
    """Do it once; at every step look at everything that a power loss may leave. Steps, and distinct trees tried."""
    seen: set[bytes] = set()
    failures: list[Exception] = []
    chance = random.Random(20)
    fallen = folder / "fallen"

    def look(model: Disk) -> None:
        for tree in crashes(model, chance) if not failures else ():
            key = hashlib.sha256(repr(sorted(tree.items())).encode()).digest()
            if key in seen:
                continue
            seen.add(key)
            shutil.rmtree(fallen, ignore_errors=True)
            materialise(tree, fallen)
            try:
                with using(disk.System()):
                    engine.states(fallen / "site")
                    engine.workplace(fallen / "site").clean()
                    check(fallen / "site")
            except Exception as error:  # the change that is under way must not take it for a fault of its own
                failures.append(error)
                return

    world = judge.world.copy("running")
    system = Disk(world.folder, look)
    with using(system):
        do(world.site)
    if failures:
        raise failures[0]
    return len(system.log), len(seen)


def test_power_loss_at_every_step(change: Change, memory: Path, injections: Callable[[int], None]) -> None:
    judge = Judge(change, memory)
    steps, trees = _lose_power(judge, memory, change.do, judge.check)
    injections(trees)
    assert trees > steps
    assert judge.outcomes["old"]
    assert judge.outcomes["new"]


def test_power_loss_at_every_step_of_the_undo(memory: Path, injections: Callable[[int], None]) -> None:
    change = CHANGES[2]
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    first_file = [number for number, name in enumerate(log) if name == "rename"][-3]
    broken = judge.world.copy("broken")
    assert killed(lambda: change.do(broken.site), first_file, "after")
    judge.world = broken

    def check(site: Path) -> None:
        assert judge.check(site) == "old"

    _, trees = _lose_power(judge, memory, lambda site: engine.workplace(site).clean(), check)
    injections(trees)
    assert trees > 10


def test_after_a_command_has_ended_nothing_of_it_can_be_lost(change: Change, memory: Path) -> None:
    judge = Judge(change, memory)
    world = judge.world.copy("running")
    system = Disk(world.folder, lambda disk: None)
    with using(system):
        change.do(world.site)
    for number, tree in enumerate(crashes(system, random.Random(5))):
        fallen = memory / f"fallen-{number}"
        materialise(tree, fallen)
        engine.workplace(fallen / "site").clean()
        assert judge.check(fallen / "site") == "new"
        shutil.rmtree(fallen)


def test_the_model_finds_a_missing_sync(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is no rubber stamp: without the syncs before the renames, files are lost."""
    monkeypatch.setattr(disk.Unsynced, "sync", lambda self, path: self.forget())
    judge = Judge(CHANGES[0], memory)
    with pytest.raises((AssertionError, SmPatchError)):
        _lose_power(judge, memory, engine.apply, judge.check)


def test_selections() -> None:
    assert list(selections(2)) == [(), (0,), (1,), (0, 1)]
    assert len(list(selections(5))) == 32
    assert {(), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5, 7)} <= set(selections(8))
