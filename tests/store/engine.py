"""A miniature engine for the fault tests: hand-written files in the shapes that the real recipes know.

Three gates: ``allreduce-fusion`` (two files), ``allreduce-fusion-auto`` (a third) and ``beside``, made for the tests,
which shares a file with the first, so that applying it writes over a file that sm-patch wrote before.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from patcher import catalogue, environment
from patcher.arch import SM120, SM121
from patcher.gate import Action, Direction, Gate, Level
from patcher.operations import Workplace
from patcher.sites import ConditionSite
from patcher.store import Store

ENGINE = catalogue.engine_named("sglang")
FUSION, AUTO, BESIDE = "allreduce-fusion", "allreduce-fusion-auto", "beside"
OPEN = Direction.OPEN
ASSUMED = {"flashinfer-python": "0.7.2"}

ADD_NORM = "sglang/srt/layers/layer_boundary/residual/add_norm.py"
COMM_FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"
OVERRIDES = "sglang/srt/arg_groups/overrides.py"

_BESIDE = """

def beside(size):
    return get_platform().is_sm100 and size > 1
"""


class Beside(Gate):
    """A gate in a file that another gate changes too."""

    id = BESIDE
    engine = "sglang"
    family = "test"
    title = "a neighbour"
    action = Action.OPEN
    level = Level.REPORTED
    targets = frozenset({SM120, SM121})
    opt_in = "for the tests only"
    sites = (
        ConditionSite(
            ">=0.5.22", "srt/layers/layer_boundary/residual/add_norm.py", "beside", mentions=("get_platform",)
        ),
    )


_REAL = catalogue.gates("sglang")
GATES = {FUSION: _REAL[FUSION], AUTO: _REAL[AUTO], BESIDE: Beside}


def use_gates(monkeypatch: pytest.MonkeyPatch, *left_out: str) -> None:
    """Make the catalogue hold the three gates, or fewer of them."""
    gates = {name: gate for name, gate in GATES.items() if name not in left_out}
    monkeypatch.setattr(catalogue, "gates", lambda engine: gates if engine == "sglang" else {})
    monkeypatch.setattr(catalogue, "engines", lambda: {"sglang": ENGINE})


def files(version: str = "0.5.23") -> dict[str, bytes]:
    """The miniature's files for a version that the recipes have an example of."""
    found: dict[str, str] = {"sglang/__init__.py": "", "sglang/srt/__init__.py": ""}
    for name in (AUTO, FUSION):
        example = next((e for e in _REAL[name].examples if e.version == version and e.after), None)
        found |= example.before if example else {}
    if ADD_NORM in found:
        found[ADD_NORM] += _BESIDE
    return {path: text.encode() for path, text in found.items()}


def install(root: Path, version: str = "0.5.23", contents: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """Put the miniature (or other ``contents``) below ``root`` as an installer does, with a RECORD; path → bytes."""
    wanted = dict(files(version) if contents is None else contents)
    info = f"sglang-{version}.dist-info"
    for old in root.glob("sglang-*.dist-info"):
        for part in old.iterdir():
            part.unlink()
        old.rmdir()
    record = "".join(f"{path},sha256={_encoded(data)},{len(data)}\n" for path, data in wanted.items())
    metadata = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    extra = {f"{info}/METADATA": metadata.encode(), f"{info}/RECORD": record.encode()}
    for path, data in {**wanted, **extra}.items():
        put(root / path, data)
    return wanted


def put(path: Path, data: bytes) -> None:
    """Write a file as installers do: a new one in place of the old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def workplace(root: Path) -> Workplace:
    """The installation below ``root``, freshly looked at."""
    found = environment.of_root(root, ["sglang"])
    return Workplace(environment.installation_at(found, ENGINE, root), ASSUMED)


def store(root: Path) -> Store:
    return workplace(root).store


def apply(root: Path, *gates: str) -> Any:
    return workplace(root).apply([SM120], gates)


def revert(root: Path, *gates: str) -> Any:
    return workplace(root).revert(gates)


def states(root: Path) -> dict[str, str]:
    """Gate → state, as status tells it."""
    return states_of(workplace(root))


def states_of(found: Workplace) -> dict[str, str]:
    return {report.gate.id: report.state.value for report in found.reports(SM120)}


def tree(root: Path) -> dict[str, bytes | str]:
    """Every file below the package but bytecode: its bytes, or where the link points."""
    found: dict[str, bytes | str] = {}
    for path in sorted((root / "sglang").rglob("*")):
        if "__pycache__" in path.parts or (path.is_dir() and not path.is_symlink()):
            continue
        name = str(path.relative_to(root))
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes()
    return found
