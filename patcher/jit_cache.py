"""Modules that an engine builds at run time and keeps: which of them were built by code that has just changed.

An engine says where it keeps them (``Engine.jit_cache``), a recipe which of them its code builds
(``Gate.jit_modules``). Looked at is the cache of the user who runs sm-patch, or the one that the environment names.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from patcher import catalogue
from patcher.arch import SM
from patcher.errors import IOFailure
from patcher.gate import Gate
from patcher.operations import Outcome

_VARIABLE = re.compile(r"\{([A-Z_]+):([^}]*)\}")
_ARCHITECTURE = re.compile(r"(\d{2,3})[a-z]?")


def stale(outcome: Outcome) -> list[Path]:
    """The kept modules that were built for the targets by code which this outcome changed (or would change)."""
    if not outcome.written:
        return []
    known = catalogue.gates(outcome.installation.engine.name)
    gates = [step.gate for step in outcome.steps if step.edited]
    gates += [known[name] for name in outcome.reverted if name in known]
    found = [path for gate in gates for module in gate.jit_modules for path in _entries(outcome, gate, module)]
    return sorted(dict.fromkeys(found))


def _entries(outcome: Outcome, gate: type[Gate], module: str) -> Iterable[Path]:
    installation = outcome.installation
    if not installation.engine.jit_cache or installation.version is None:
        return []
    pattern = _VARIABLE.sub(lambda m: os.environ.get(m[1]) or m[2], installation.engine.jit_cache)
    pattern = pattern.format(version=installation.version, module=module)
    base, _, rest = str(Path(pattern).expanduser()).partition("*")
    depth = rest.count("/")
    folders = Path(base).glob(f"*{rest}") if Path(base).is_dir() else []
    return [path for path in folders if _built_for(path.parents[depth - 1].name, gate.targets)]


def _built_for(architectures: str, sms: Iterable[SM]) -> bool:
    """Whether a folder's name (``89_120a``) names one of the SMs."""
    named = {match[1] for part in architectures.split("_") if (match := _ARCHITECTURE.fullmatch(part))}
    return any(str(sm) in named for sm in sms)


def clear(paths: Iterable[Path]) -> None:
    """Remove these folders and nothing else. Raises IOFailure."""
    for path in paths:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise IOFailure(
                f"cannot remove the kept module: {error.strerror}",
                where=str(path),
                hint="the change itself is made; remove the folder by hand, or run it as its owner",
            ) from error
