"""Systems that fail: every call that changes a disk is a step, and a fault is put at any step that is wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from patcher import disk


class Steps(disk.System):
    """Counts the steps (from 0) and hands each to ``step``, which may do it, not do it, or do half of it."""

    def __init__(self) -> None:
        self.number = -1
        self.log: list[str] = []

    def step(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
        return do(*arguments)

    def _next(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
        self.number += 1
        self.log.append(name)
        return self.step(do, name, *arguments)

    def mkdir(self, folder: int, name: str) -> None:
        self._next(super().mkdir, "mkdir", folder, name)

    def create(self, folder: int, name: str) -> int:
        handle: int = self._next(super().create, "create", folder, name)
        return handle

    def open_lock(self, folder: int, name: str) -> int:
        handle: int = self._next(super().open_lock, "open_lock", folder, name)
        return handle

    def write(self, handle: int, data: bytes | memoryview) -> int:
        written: int = self._next(super().write, "write", handle, data)
        return written

    def truncate(self, handle: int) -> None:
        self._next(super().truncate, "truncate", handle)

    def chown(self, handle: int, user: int, group: int) -> None:
        self._next(super().chown, "chown", handle, user, group)

    def chmod(self, handle: int, mode: int) -> None:
        self._next(super().chmod, "chmod", handle, mode)

    def set_attribute(self, handle: int, name: str, value: bytes) -> None:
        self._next(super().set_attribute, "set_attribute", handle, name, value)

    def set_time(self, handle: int, nanoseconds: int) -> None:
        self._next(super().set_time, "set_time", handle, nanoseconds)

    def sync(self, handle: int) -> None:
        self._next(super().sync, "sync", handle)

    def symlink(self, folder: int, name: str, target: str) -> None:
        self._next(super().symlink, "symlink", folder, name, target)

    def rename(self, folder: int, old: str, new: str) -> None:
        self._next(super().rename, "rename", folder, old, new)

    def rmdir(self, folder: int, name: str) -> None:
        self._next(super().rmdir, "rmdir", folder, name)

    def unlink(self, folder: int, name: str) -> None:
        self._next(super().unlink, "unlink", folder, name)


class At(Steps):
    """A fault at one step: before it is done, after it, or in the middle of a write."""

    def __init__(self, number: int, mode: str, fault: Callable[[], None]) -> None:
        super().__init__()
        self.wanted = number
        self.mode = mode
        self.fault = fault
        self.reached = False

    def step(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
        if self.number != self.wanted or (self.mode == "torn" and name != "write"):
            return do(*arguments)
        if self.mode == "torn":
            handle, data = arguments
            do(handle, data[: len(data) // 2])
        result = do(*arguments) if self.mode == "after" else None
        self.reached = True
        self.fault()
        return do(*arguments) if self.mode == "before" else result


class Failing(Steps):
    """An OSError at one step, or at every step from there on (of the kinds that such an error meets)."""

    def __init__(self, number: int, error: int, kinds: frozenset[str] | None = None, *, lasting: bool) -> None:
        super().__init__()
        self.wanted = number
        self.error = error
        self.kinds = kinds
        self.lasting = lasting
        self.reached = False

    def step(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
        met = self.number == self.wanted or (self.lasting and self.number > self.wanted)
        if met and (self.kinds is None or name in self.kinds):
            self.reached = True
            raise OSError(self.error, os.strerror(self.error))
        return do(*arguments)


@contextmanager
def using(system: disk.System) -> Iterator[None]:
    """Let everything be written through ``system``."""
    before, disk.system = disk.system, system
    try:
        yield
    finally:
        disk.system = before


def steps_of(work: Callable[[], object]) -> list[str]:
    """The steps that a piece of work takes."""
    system = Steps()
    with using(system):
        work()
    return system.log


def points(log: list[str]) -> Iterator[tuple[int, str]]:
    """Every place for a fault: before and after each step, and within each write."""
    for number, name in enumerate(log):
        yield number, "before"
        if name == "write":
            yield number, "torn"
    yield len(log) - 1, "after"


def killed(work: Callable[[], object], number: int, mode: str) -> bool:
    """Do the work in a process of its own that dies by SIGKILL at a step; whether it got that far."""
    child = os.fork()
    if child == 0:
        status = 3
        try:
            disk.system = At(number, mode, lambda: os.kill(os.getpid(), signal.SIGKILL))
            work()
            status = 0
        finally:
            os._exit(status)
    _, result = os.waitpid(child, 0)
    if os.WIFSIGNALED(result):
        assert os.WTERMSIG(result) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(result) == 0, "the work itself failed"
    return False
