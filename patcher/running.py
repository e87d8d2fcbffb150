"""Processes that use an environment's engine: what they have imported stays as it was until they are restarted.

Needs psutil (an extra); without it nothing is known, and ``processes`` says so with None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


@dataclass(frozen=True)
class Running:
    """A process that uses the engine. ``since``: when it started, in seconds since the epoch."""

    pid: int
    command: str
    since: float

    def as_dict(self) -> dict[str, str | int]:
        started = datetime.fromtimestamp(self.since, timezone.utc).isoformat(timespec="seconds")
        return {"pid": self.pid, "command": self.command, "started": started}


def processes(
    package: str, root: Path, prefix: Path | None = None, before: float | None = None
) -> list[Running] | None:
    """Processes that use the engine ``package`` below ``root`` (of the environment at ``prefix``, where it is known).

    ``before``: only those that started before that time, in seconds since the epoch. None where it cannot be told:
    psutil is not installed.
    """
    if not _mentioned(package):
        return []
    try:
        import psutil
    except ImportError:
        return None
    homes = {str(path) for path in (root, root.resolve(), prefix or _prefix(root)) if path}
    found: dict[int, Running] = {}
    everybody = list(psutil.process_iter(["pid", "ppid", "name", "cmdline", "create_time"]))
    for process in everybody:
        if process.pid != os.getpid() and _uses(process, package, homes):
            found[process.pid] = _running(process)
    # What an engine's process starts (workers that rename themselves) uses the same files.
    grew = True
    while grew:
        more = [p for p in everybody if p.pid not in found and p.info["ppid"] in found and p.pid != os.getpid()]
        more = [p for p in more if _names_engine(p, package) or _is_python(p)]
        found |= {p.pid: _running(p) for p in more}
        grew = bool(more)
    return [r for _, r in sorted(found.items()) if before is None or r.since < before]


def _mentioned(package: str) -> bool:
    """A quick look, before psutil is imported, whether any process names the engine at all."""
    try:
        pids = [entry for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return True  # no /proc on this system
    for pid in pids:
        try:
            if package.encode() in Path(pid.path, "cmdline").read_bytes() and int(pid.name) != os.getpid():
                return True
        except OSError:
            continue
    return False


def _uses(process: psutil.Process, package: str, homes: Iterable[str]) -> bool:
    """Whether a process names the engine and runs from this environment."""
    return _names_engine(process, package) and any(_below(path, homes) for path in _paths(process))


def _names_engine(process: psutil.Process, package: str) -> bool:
    words = [*(process.info["cmdline"] or ()), process.info["name"] or ""]
    # "-m sglang.launch_server", "…/bin/sglang serve", "sglang::scheduler"; not a path that only contains the word
    return any(word.split("/")[-1].replace("::", ".").split(".")[0] == package for word in words)


def _is_python(process: psutil.Process) -> bool:
    return "python" in (process.info["name"] or "") or "python" in " ".join((process.info["cmdline"] or ())[:1])


def _paths(process: psutil.Process) -> Iterator[str]:
    """Paths that tell which environment a process runs in, cheapest first."""
    import psutil

    for word in process.info["cmdline"] or ():
        if word.startswith("/"):
            yield word
    for look in (_environment, _maps):
        try:
            yield from look(process)
        except (psutil.Error, OSError):  # another user's process: what its command line says must do
            continue


def _environment(process: psutil.Process) -> Iterable[str]:
    variables = process.environ()
    yield variables.get("VIRTUAL_ENV", "")
    for name in ("PYTHONPATH", "CONDA_PREFIX"):
        yield from variables.get(name, "").split(os.pathsep)


def _maps(process: psutil.Process) -> Iterable[str]:
    yield process.exe()
    for part in process.memory_maps():
        yield part.path


def _below(path: str, homes: Iterable[str]) -> bool:
    return any(path == home or path.startswith(home.rstrip("/") + "/") for home in homes)


def _prefix(root: Path) -> Path | None:
    """The environment that a site-packages belongs to."""
    if root.name not in ("site-packages", "dist-packages"):
        return None
    return next((above.parent for above in root.parents if above.name in ("lib", "lib64", "Lib")), None)


def _running(process: psutil.Process) -> Running:
    command = " ".join(process.info["cmdline"] or ()).strip() or process.info["name"] or "?"
    shown = "".join(c if c.isprintable() else " " for c in command)
    return Running(process.pid, shown[:120], process.info["create_time"])
