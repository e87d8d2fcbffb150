"""A miniature installation on disk: the engine's example files, a FlashInfer beside it, and their metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from patcher.catalogue import gates
from patcher.cli import main

GATE = "allreduce-fusion"
AUTO = "allreduce-fusion-auto"
SERIAL = gates("sglang")[GATE].examples[2]
FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"
ADD_NORM = "sglang/srt/layers/layer_boundary/residual/add_norm.py"


def flashinfer(version: str, majors: list[int]) -> dict[str, str]:
    """A FlashInfer whose all-reduce is built for these majors."""
    comm = f"\n\ndef gen_trtllm_comm_module():\n    return flags(\n        supported_major_versions={majors}\n    )\n"
    return {
        "flashinfer/__init__.py": "",
        "flashinfer/jit/comm.py": comm,
        **metadata("flashinfer-python", version),
    }


def metadata(name: str, version: str) -> dict[str, str]:
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    package = name.split("-")[0]
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/RECORD": f"{package}/__init__.py,,\n",
    }


def install(root: Path, version: str = "0.5.23", files: Mapping[str, str] | None = None) -> Path:
    """Write an installation below ``root``; gives ``root``."""
    parts = {
        "sglang/__init__.py": "",
        **SERIAL.before,
        "sglang/srt/arg_groups/overrides.py": gates("sglang")[AUTO]
        .examples[0]
        .before["sglang/srt/arg_groups/overrides.py"],
        **metadata("sglang", version),
        **flashinfer("0.7.2", [9, 10, 12]),
        **(files or {}),
    }
    for path, text in parts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    return root


def run(
    *words: str, root: Path | None = None, env: Mapping[str, str] | None = None, every_engine: bool = False
) -> Result:
    """Run a command as a user would, stdout and stderr apart."""
    place = ["--root", str(root)] if root else []
    if root and not every_engine and "--engine" not in words:
        place += ["--engine", "sglang"]  # the FlashInfer beside it is a miniature of one function
    return CliRunner().invoke(main, [*words, *place], env=env, catch_exceptions=False)


def run_json(
    *words: str, root: Path, env: Mapping[str, str] | None = None, every_engine: bool = False
) -> tuple[int, dict[str, Any]]:
    result = run(*words, "--format", "json", root=root, env=env, every_engine=every_engine)
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["schema_version"] == 1
    return result.exit_code, data


def states(root: Path, *words: str) -> dict[str, str]:
    """Gate → state for SM120."""
    _, data = run_json("status", "--sm", "120", *words, root=root)
    return {gate["gate"]: gate["state"] for gate in data["installations"][0]["gates"]}


def snapshot(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file's bytes, mode and mtime."""
    files = [p for p in root.rglob("*") if p.is_file()]
    return {str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mode, p.stat().st_mtime_ns) for p in sorted(files)}
