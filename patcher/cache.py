"""Answers kept between calls, each with everything it depends on, so that a stale one is never given.

An answer is good while every file it was read from has the same size, mtime, ctime and inode (and every file that
was not there still is not). ctime cannot be set back by a program that edits a file, and an answer that depends on
a file changed in the last moment is not kept: a clock's tick may hide a second change.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_FRESH_SECONDS = 2.0
_KEPT = 64
Stamp = list[int] | None


def stamp(path: str) -> Stamp:
    """What identifies a file's content without reading it; None when there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - thousands of these, and Path costs more than the call
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def own_code() -> list[str]:
    """The files of sm-patch itself: an answer given by other recipes is not an answer."""
    import patcher
    import patches

    folders = [Path(p) for package in (patcher, patches) for p in package.__path__]
    found = []
    for folder in folders:
        for base, names, files in os.walk(folder):
            names[:] = [name for name in names if name != "__pycache__"]
            found.append(base)
            found += [os.path.join(base, name) for name in files if name.endswith((".py", ".json"))]  # noqa: PTH118
    return found


def _whose() -> list[str]:
    """Which sm-patch answers, and by which Python: another one may answer otherwise."""
    import patcher
    import patches

    return [patcher.__version__, *patcher.__path__, *patches.__path__, sys.version]


def remembered(folder: Path, key: str, compute: Callable[[], tuple[dict[str, Any], Iterable[str]]]) -> dict[str, Any]:
    """The answer under ``key``: kept from an earlier call when nothing it depends on changed, else computed.

    ``compute`` gives the answer (JSON-ready) and the paths it depends on. A cache that cannot be read or written
    is no error: the answer is computed.
    """
    from hashlib import sha256

    key = json.dumps([key, _whose()])
    path = folder / f"{sha256(key.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(path.read_bytes())
        if kept["key"] == key and all(stamp(p) == mark for p, mark in kept["depends"].items()):
            answer: dict[str, Any] = kept["answer"]
            return answer
    # Stamps first: a file that changes while it is read must not pass for unchanged.
    before = time.time_ns()
    answer, paths = compute()
    depends = {p: stamp(p) for p in dict.fromkeys((*paths, *own_code()))}
    newest = max((max(mark[1], mark[2]) for mark in depends.values() if mark), default=0)
    if newest < before - int(_FRESH_SECONDS * 1e9):
        _keep(path, {"key": key, "depends": depends, "answer": answer})
    return answer


def _keep(path: Path, data: dict[str, Any]) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = sorted(path.parent.iterdir(), key=lambda p: p.stat().st_mtime_ns)
        for old in kept[: max(0, len(kept) - _KEPT)]:
            old.unlink()
        scratch.write_text(json.dumps(data))
        scratch.replace(path)
