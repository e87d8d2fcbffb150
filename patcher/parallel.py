"""Work shared out over forked processes: for reading many files, where what is read is large and the answer small.

A forked process has everything that this one has read and worked out, so nothing but the answers travels.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

from patcher.errors import Defect, IOFailure

_Share = TypeVar("_Share")
_Answer = TypeVar("_Answer")
_LENGTH = 8  # bytes that hold the length of an answer


def workers() -> int:
    """How many processes are worth their start: as many as there are cores for this process, four at most."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, cores)


def each(function: Callable[[_Share], _Answer], shares: Sequence[_Share], count: int) -> Iterator[_Answer]:
    """``function(share)`` for every share, by ``count`` processes, in the order in which the answers are ready.

    Only the answers have to be picklable. What a worker raises is raised here; IOFailure when one was killed.
    """
    count = min(count, len(shares))
    if count < 2 or not hasattr(os, "fork") or threading.active_count() > 1:  # a lock could be held in a fork
        yield from map(function, shares)
        return
    readers: dict[int, int] = {}
    left: list[_Share] = []  # for this process, where the system lets it start no more
    try:
        for number in range(count):
            started = _started(function, shares[number::count])
            if started is None:
                left += shares[number::count]
            else:
                readers.update([started])
        yield from map(function, left)
        while readers:
            for reader in select.select(list(readers), [], [])[0]:
                answered, answer = _received(reader)
                if answered is None:
                    os.close(reader)
                    os.waitpid(readers.pop(reader), 0)
                elif not answered:
                    raise answer
                else:
                    yield answer
    finally:
        for reader, process in readers.items():
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _started(function: Callable[[Any], Any], shares: Sequence[Any]) -> tuple[int, int] | None:
    """A new process that answers for the shares: what it is heard by, and its number. None where there can be none."""
    reader, writer = os.pipe()
    try:
        process = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return None
    if process == 0:
        os.close(reader)
        _work(function, shares, writer)
    os.close(writer)
    return reader, process


def _work(function: Callable[[Any], Any], shares: Sequence[Any], writer: int) -> NoReturn:
    """What a forked process does: it answers, and ends without doing anything that this process does at its end."""
    try:
        try:
            for share in shares:
                _send(writer, (True, function(share)))
            _send(writer, (None, None))
        except Exception as error:
            _send(writer, (False, error))
    finally:
        os._exit(0)


def _send(writer: int, message: tuple[bool | None, Any]) -> None:
    try:
        data = pickle.dumps(message)
    except Exception as error:
        data = pickle.dumps((False, Defect.of(error)))
    with os.fdopen(writer, "wb", closefd=False) as stream:
        stream.write(len(data).to_bytes(_LENGTH, "big") + data)


def _received(reader: int) -> tuple[bool | None, Any]:
    message: tuple[bool | None, Any] = pickle.loads(  # noqa: S301  # from our own fork
        _exactly(reader, int.from_bytes(_exactly(reader, _LENGTH), "big"))
    )
    return message


def _exactly(reader: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(reader, count - len(data))
        if not part:
            raise IOFailure(
                "a process that sm-patch started was ended from outside",
                hint="run it again; if the machine is short of memory, when it is less busy",
            )
        data += part
    return data
