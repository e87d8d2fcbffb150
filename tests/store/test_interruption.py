"""kill -9, SIGINT and SIGTERM at every step that changes the disk, of every kind of change and of the undo itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from patcher import cli
from tests.store import engine
from tests.store.conftest import CHANGES, Change, Judge
from tests.store.faults import At, killed, points, steps_of, using

pytestmark = pytest.mark.usefixtures("quick_plans")


def test_kill_at_every_step(change: Change, memory: Path, injections: Callable[[int], None]) -> None:
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    tried = 0
    for number, mode in points(log):
        broken = judge.world.copy("broken")
        assert killed(lambda: change.do(broken.site), number, mode)  # noqa: B023
        tried += 1
        engine.states(broken.site)  # status can always be asked
        settled = broken.copy("settled").site
        engine.workplace(settled).clean()
        judge.check(settled)
        # and any other command leads on from there
        (change.do if tried % 2 else engine.revert)(broken.site)
        if tried % 2:
            assert (engine.tree(broken.site), engine.states(broken.site)) == judge.new
        else:
            assert engine.tree(broken.site) == engine.files()
    injections(tried)
    assert tried > len(log) > 20
    assert judge.outcomes["old"]
    assert judge.outcomes["new"]


def test_kill_at_every_step_of_the_undo(memory: Path, injections: Callable[[int], None]) -> None:
    change = CHANGES[2]
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    first_file = [number for number, name in enumerate(log) if name == "rename"][-3]  # then another, then the manifest
    broken = judge.world.copy("broken")
    assert killed(lambda: change.do(broken.site), first_file, "after")
    assert engine.tree(broken.site) not in (judge.old[0], judge.new[0])
    undo = steps_of(lambda: engine.workplace(broken.copy("count").site).clean())
    for number, mode in points(undo):
        again = broken.copy("again")
        assert killed(lambda: engine.workplace(again.site).clean(), number, mode)  # noqa: B023
        engine.workplace(again.site).clean()
        assert judge.check(again.site) == "old"
    injections(len(list(points(undo))))
    assert len(undo) > 10


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Ctrl-C as Python has it, also where the tests were started in the background, with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_at_every_step(
    change: Change, memory: Path, number: signal.Signals, injections: Callable[[int], None]
) -> None:
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    before = signal.getsignal(number)
    if number is not signal.SIGINT:
        signal.signal(number, cli._end)
    try:
        for step, mode in points(log):
            world = judge.world.copy("signalled")
            system = At(step, mode, lambda: os.kill(os.getpid(), number))
            with using(system), pytest.raises((KeyboardInterrupt, SystemExit)):
                change.do(world.site)
            assert system.reached
            engine.workplace(world.site).clean()
            judge.check(world.site)
    finally:
        signal.signal(number, before)
    injections(len(list(points(log))))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_undone_at_once(memory: Path, number: signal.Signals) -> None:
    judge = Judge(CHANGES[0], memory)
    log = steps_of(lambda: engine.apply(judge.world.copy("count").site))
    replaced = [number for number, name in enumerate(log) if name == "rename"][-2]
    world = judge.world.copy("signalled")
    before = signal.getsignal(number)
    if number is not signal.SIGINT:
        signal.signal(number, cli._end)
    try:
        system = At(replaced, "after", lambda: os.kill(os.getpid(), number))
        with using(system), pytest.raises((KeyboardInterrupt, SystemExit)):
            engine.apply(world.site)
    finally:
        signal.signal(number, before)
    assert judge.check(world.site) == "old"


def test_a_second_signal_at_every_step_of_the_undo(memory: Path, injections: Callable[[int], None]) -> None:
    judge = Judge(CHANGES[0], memory)
    log = steps_of(lambda: engine.apply(judge.world.copy("count").site))
    replaced = [number for number, name in enumerate(log) if name == "rename"][-2]

    def interrupt() -> None:
        raise KeyboardInterrupt

    class Twice(At):
        """A fault at one step, and another while the first is being undone."""

        def __init__(self, second: int) -> None:
            super().__init__(replaced, "after", interrupt)
            self.second = second
            self.reached_second = False

        def step(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
            if self.number == self.second:
                self.reached_second = True
                interrupt()
            return super().step(do, name, *arguments)

    tried = 0
    for second in range(replaced + 1, replaced + 60):
        world = judge.world.copy("signalled")
        system = Twice(second)
        with using(system), pytest.raises(KeyboardInterrupt):
            engine.apply(world.site)
        engine.workplace(world.site).clean()
        assert judge.check(world.site) == "old"
        if not system.reached_second:
            break
        tried += 1
    injections(tried)
    assert tried > 8
