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
    if not any((above / ".git").exists() for above in (real, *real.parents)):
        return []
    import subprocess

    told = {}
    for file in files:
        command = ["git", *_SAFE, "status", "--porcelain", "--untracked-files=no", "--", str(file.resolve())]
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        try:
            asked = subprocess.run(
                command, cwd=real, env=environment, capture_output=True, timeout=_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return []
        told[file] = bool(asked.stdout.strip())
    return [file for file, changed in told.items() if changed]
