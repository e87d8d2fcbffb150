"""Which files of a git checkout have changes that are not committed. Runs nothing that the checkout configures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_SECONDS = 20
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")


def local_changes(folder: Path, files: Sequence[Path]) -> list[Path]:
    """Those of ``files`` that differ from what is committed in the checkout around ``folder``; none outside of one."""
    real = folder.resolve()
    if not files or not any((above / ".git").exists() for above in (real, *real.parents)):
        return []
    import subprocess

    command = ["git", *_SAFE, "status", "--porcelain", "-z", "--untracked-files=no", "--"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        asked = subprocess.run(
            [*command, *(str(file.resolve()) for file in files)],
            cwd=real,
            env=environment,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    # Each entry is two letters, a space and the path below the checkout's top.
    told = [os.fsdecode(entry[3:]) for entry in asked.stdout.split(b"\0") if len(entry) > 3]
    return [file for file in files if any(str(file.resolve()).endswith(f"/{path}") for path in told)]
