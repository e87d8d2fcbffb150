"""Many processes at once on one installation."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patcher.arch import SM120
from patcher.errors import Busy, ChangedMeanwhile, SmPatchError
from patcher.store import Store
from tests.store import engine


def _together(site: Path, works: list[Callable[[Path], Any]]) -> list[str]:
    """Run each in a process of its own, all let go at once; what each came to."""
    context = multiprocessing.get_context("fork")
    ready, answers = context.Event(), context.Queue()

    def run(number: int, work: Callable[[Path], Any]) -> None:
        ready.wait()
        try:
            answers.put((number, str(work(site))))
        except SmPatchError as error:
            answers.put((number, f"{error.id}: {error.what}"))
        except BaseException as error:
            answers.put((number, f"TRACEBACK {error!r}"))

    processes = [context.Process(target=run, args=pair) for pair in enumerate(works)]
    for process in processes:
        process.start()
    ready.set()
    found = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [found[number] for number in range(len(works))]


def _applied(site: Path) -> str:
    return ",".join(step.gate.id for step in engine.apply(site).steps)


def _both(site: Path) -> str:
    return ",".join(sorted(step.gate.id for step in engine.apply(site, engine.BESIDE, engine.AUTO).steps))


def test_many_applies_change_it_once(site: Path) -> None:
    done = _together(site, [_applied] * 8)
    assert sorted(done) == [""] * 7 + [engine.FUSION]
    assert engine.states(site)[engine.FUSION] == "patched"
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_different_applies_all_take_effect(site: Path) -> None:
    done = _together(site, [_applied, _both] * 3)
    assert not [text for text in done if "TRACEBACK" in text or ":" in text]
    assert engine.states(site) == dict.fromkeys((engine.FUSION, engine.AUTO, engine.BESIDE), "patched")
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_apply_and_revert_and_gc_end_in_one_or_the_other(site: Path) -> None:
    def reverted(site: Path) -> str:
        return ",".join(engine.revert(site).reverted)

    def cleaned(site: Path) -> str:
        return str(len(engine.workplace(site).clean().forgotten))

    for _ in range(3):
        done = _together(site, [_applied, reverted, cleaned] * 3)
        assert not [text for text in done if "TRACEBACK" in text]
        assert engine.states(site)[engine.FUSION] in ("patched", "closed")
        assert not engine.store(site).interrupted()
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_status_beside_apply_and_revert_tells_one_or_the_other(site: Path) -> None:
    """Whenever nothing was written during a look, the look is of one state: old or new."""

    def changes(site: Path) -> str:
        for _ in range(12):
            engine.apply(site)
            engine.revert(site)
        return "done"

    def looks(site: Path) -> str:
        seen = set()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            workplace = engine.workplace(site)
            mark, interrupted = workplace.store.mark(), workplace.store.interrupted()
            state = workplace.report(workplace.gates[engine.FUSION], SM120).state.value
            if not interrupted and workplace.store.mark() == mark:
                seen.add(state)
        return ",".join(sorted(seen))

    done = _together(site, [changes, looks, looks])
    assert done[0] == "done"
    for seen in done[1:]:
        assert set(seen.split(",")) <= {"patched", "closed"}, seen


def test_the_one_who_waits_is_told_who_holds_it(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "lock_seconds", 0.2)
    holder = os.fork()
    if holder == 0:
        try:
            with engine.store(site).locked():
                time.sleep(60)
        finally:
            os._exit(0)
    try:
        while engine.store(site).holder() is None:
            time.sleep(0.01)
        with pytest.raises(Busy) as caught:
            engine.apply(site)
        assert f"process {holder} on " in caught.value.what
        assert caught.value.exit_code == 4
        assert engine.tree(site) == engine.files()
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    assert engine.store(site).holder() is None  # the lock died with its process
    engine.apply(site)
    assert engine.states(site)[engine.FUSION] == "patched"


def test_a_lock_file_that_is_removed_does_not_let_two_in(site: Path) -> None:
    store = engine.store(site)
    with store.locked():
        (store.state / "lock").unlink()
        # the next one makes a new lock; only a change of the same files can tell, and does
        workplace = engine.workplace(site)
        _, manifest, writes = workplace.planned([SM120], [], [])
        engine.apply(site)
        with pytest.raises(ChangedMeanwhile):
            store.commit(writes, manifest)
    assert engine.states(site)[engine.FUSION] == "patched"


def test_two_command_lines(site: Path) -> None:
    """The same through the command line, in interpreters of their own."""
    command = [sys.executable, "-m", "patcher", "apply", "--root", str(site), "--sm", "120"]
    command += ["--assume", "flashinfer-python==0.7.2", "--gate", engine.FUSION]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum("opened allreduce-fusion" in text for text in said) == 1
    assert sum("nothing to do" in text for text in said) == 2
