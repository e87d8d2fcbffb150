"""An installer that replaces the files while sm-patch works, after any of its steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patcher.errors import ChangedMeanwhile
from tests.store import engine
from tests.store.conftest import Change, Judge
from tests.store.faults import At, steps_of, using

pytestmark = pytest.mark.usefixtures("quick_plans")


def _newer() -> dict[str, bytes]:
    changed = (engine.ADD_NORM, engine.COMM_FUSION, engine.OVERRIDES)
    return {path: b"# a new release\n" + data if path in changed else data for path, data in engine.files().items()}


@pytest.mark.parametrize("what", ["upgrade", "reinstall", "uninstall"])
def test_after_every_step(change: Change, memory: Path, what: str, injections: Callable[[int], None]) -> None:
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    wanted = {"upgrade": _newer(), "reinstall": engine.files(), "uninstall": {}}[what]
    refused = 0
    for number in range(len(log)):
        world = judge.world.copy("meanwhile")

        def installer(site: Path = world.site) -> None:
            for path in engine.files():
                (site / path).unlink()
            if wanted:
                engine.install(site, "0.5.24" if what == "upgrade" else "0.5.23", wanted)

        system, done = At(number, "after", installer), True
        try:
            with using(system):
                change.do(world.site)
        except ChangedMeanwhile:
            refused += 1
            done = False
            assert engine.tree(world.site) == wanted
        # What the installer wrote is there, to the byte, and nothing else; or, where it wrote the very bytes that
        # the change had started from, the change was made in full on what it wrote.
        assert system.reached
        made = what == "reinstall" and done and engine.tree(world.site) == judge.new[0]
        assert made or engine.tree(world.site) == wanted
        if made:
            assert engine.states(world.site) == judge.new[1]
            engine.revert(world.site)
        elif wanted:
            assert "patched" not in engine.states(world.site).values()
        if wanted and number % 4 == 0:
            engine.apply(world.site, engine.FUSION, engine.AUTO, engine.BESIDE)
            assert set(engine.states(world.site).values()) == {"patched"}
            engine.revert(world.site)
            assert engine.tree(world.site) == wanted
        engine.workplace(world.site).clean()
        assert engine.tree(world.site) == wanted
    injections(len(log))
    # The very same bytes are noticed only where the new file is told from the old by more than those.
    assert refused > (0 if what == "reinstall" else 5)
