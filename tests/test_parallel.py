"""Work shared out over processes gives what one process gives, its errors included."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from pathlib import Path

import pytest

from patcher import errors, parallel
from patcher.errors import Defect, IOFailure, SmPatchError, Unparsable
from tests.installation import install, run_json

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture(autouse=True)
def single_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread by which tests are handed out holds no lock that a fork here needs."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_each_share_is_answered_once_and_by_other_processes() -> None:
    shares = [[lambda n=n: n * n] for n in range(20)]  # nothing that could be pickled

    found = list(parallel.each(lambda share: (share[0](), os.getpid()), shares, 3))

    assert sorted(square for square, _ in found) == [n * n for n in range(20)]
    assert len({process for _, process in found}) == 3
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize("count", [0, 1])
def test_one_process_is_this_one(count: int) -> None:
    assert set(parallel.each(lambda _: os.getpid(), range(4), count)) == {os.getpid()}


def test_more_threads_than_one_keep_it_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)

    assert set(parallel.each(lambda _: os.getpid(), range(4), 2)) == {os.getpid()}


def test_large_answers_travel_whole() -> None:
    assert sorted(map(len, parallel.each(lambda n: bytes(n), [3_000_000, 70_000, 0], 2))) == [0, 70_000, 3_000_000]


def test_an_error_is_raised_here_with_all_it_says() -> None:
    def fails(share: int) -> int:
        if share == 3:
            raise Unparsable("no Python", where="a.py:3", hint="read it")
        return share

    with pytest.raises(Unparsable) as caught:
        list(parallel.each(fails, range(6), 2))

    assert (caught.value.what, caught.value.where, caught.value.hint) == ("no Python", "a.py:3", "read it")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # nothing is left behind


def test_an_answer_that_cannot_travel_is_a_defect() -> None:
    with pytest.raises(Defect, match="pickle"):
        list(parallel.each(lambda n: lambda: n, range(2), 2))


def test_a_killed_worker_is_an_error_and_no_answer_short() -> None:
    def dies(share: int) -> int:
        if share == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return share

    with pytest.raises(IOFailure, match="ended from outside"):
        list(parallel.each(dies, range(4), 2))


def test_who_stops_listening_leaves_nothing_running() -> None:
    answers = parallel.each(lambda n: n, range(1_000), 2)
    next(answers)
    answers.close()  # type: ignore[attr-defined]

    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("possible", [0, 1, 2])
def test_where_no_more_processes_can_be_started_this_one_does_the_rest(
    monkeypatch: pytest.MonkeyPatch, possible: int
) -> None:
    real, calls = os.fork, iter(range(9))

    def fork() -> int:
        if next(calls) >= possible:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real()

    monkeypatch.setattr(os, "fork", fork)
    found = list(parallel.each(lambda n: (n, os.getpid()), range(12), 3))

    assert sorted(n for n, _ in found) == list(range(12))
    assert len({process for _, process in found}) == possible + 1


def kinds(base: type[SmPatchError]) -> list[type[SmPatchError]]:
    return [base, *(kind for sub in base.__subclasses__() for kind in kinds(sub))]


@pytest.mark.parametrize("kind", kinds(errors.SmPatchError), ids=lambda kind: kind.__name__)
def test_every_error_travels(kind: type[SmPatchError]) -> None:
    error = kind("what", where="where", hint="hint", link="link")
    error.gate = "gate"
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is kind
    assert (vars(again), again.as_dict()) == (vars(error), error.as_dict())


def test_status_is_the_same_by_one_process_and_by_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    rows = []
    for count in (1, 2, 5):
        monkeypatch.setattr(parallel, "workers", lambda count=count: count)
        monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / f"cache-{count}"))
        rows.append(run_json("status", "--sm", "120,121", root=tmp_path))

    assert rows[0] == rows[1] == rows[2]
