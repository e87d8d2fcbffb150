"""FlashInfer and vLLM on real releases: their matrices, real patched functions, and all engines side by side."""

from __future__ import annotations

import contextlib
import json
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patcher import catalogue
from patcher.arch import SM, parse_sm
from patcher.gate import Direction
from scripts import matrix, releases
from tests.installation import run, run_json
from tests.releases.linker import Linker, torch_on

pytestmark = pytest.mark.releases

SMS = [parse_sm(text) for text in ("80", "90", "100", "103", "110", "120", "121")]
SM121 = SM(12, 1)
SM12X = {SM(12, 0), SM121}
VLLM = "0.24.0"
"""The one vLLM release computed again: a wheel is 270 to 440 MB. All 35 are in the committed matrix."""
SPREAD = [
    ("flashinfer", "0.5.3"),
    ("flashinfer", "0.6.1"),
    ("flashinfer", "0.6.14"),
    ("flashinfer", "0.6.16.post4"),
    ("flashinfer", "0.6.17"),
    ("flashinfer", "0.7.2"),
    ("vllm", VLLM),
]
ENGINES = ("flashinfer", "vllm")


@cache
def committed(engine: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(matrix.output_of(engine).read_text())
    return data


@pytest.mark.parametrize("engine", ENGINES)
def test_the_matrix_covers_every_release_gate_and_target(engine: str) -> None:
    pinned = releases.versions(matrix.distribution_of(engine))
    rows = {(row["release"], row["gate"], row["sm"]) for row in committed(engine)["rows"]}
    assert rows == {(r, g, sm) for r in pinned for g in catalogue.gates(engine) for sm in ("120", "121")}
    assert [trip["release"] for trip in committed(engine)["round_trips"]] == pinned


@pytest.mark.parametrize("engine", ENGINES)
def test_the_matrix_holds_no_problem(engine: str) -> None:
    assert matrix.problems(committed(engine)) == []


@pytest.mark.parametrize(("engine", "release"), SPREAD)
def test_rows_computed_again_are_the_same(engine: str, release: str) -> None:
    kept = [row for row in committed(engine)["rows"] if row["release"] == release]
    again = matrix.rows(release, catalogue.gates(engine).values(), engine=engine)
    assert json.loads(json.dumps(again)) == kept


@pytest.mark.parametrize(("engine", "release"), [("flashinfer", "0.6.14"), ("vllm", VLLM)])
def test_a_round_trip_on_disk_gives_everything_back(engine: str, release: str) -> None:
    kept = next(trip for trip in committed(engine)["round_trips"] if trip["release"] == release)
    assert kept["written"]
    assert json.loads(json.dumps(matrix.round_trip(release, name=engine))) == kept


_BORDERS = {
    "flashinfer.comm-jit": ("0.6.16.post4", "refused", "0.6.17", "open"),
    "flashinfer.mm-bf16-cublaslt": ("0.6.14", "closed", "0.6.15", "open"),
    "flashinfer.mm-bf16-cudnn": ("0.6.10.post1", "refused", "0.6.11", "open"),
    "flashinfer.mm-mxfp8-cutlass": ("0.6.7.post3", "refused", "0.6.8", "open"),
    "flashinfer.mm-fp4-cute-dsl": ("0.7.0.post1", "refused", "0.7.1", "open"),
    "flashinfer.fmha-cutlass-jit": ("0.6.6", "open", "0.6.7", "refused"),
    "vllm.deepgemm-sm121": ("0.23.0", "closed", "0.24.0", "too-open"),
    "vllm.moe-flashinfer-cutlass": ("0.15.0", "refused", "0.15.1", "open"),
    "vllm.allreduce-rms-fusion": ("0.11.0", "absent", "0.11.1", "closed"),
}


@pytest.mark.parametrize("gate", _BORDERS)
def test_borders(gate: str) -> None:
    before, was, after, is_now = _BORDERS[gate]
    rows = {
        r["release"]: r["before"]
        for r in committed(gate.split(".")[0])["rows"]
        if (r["gate"], r["sm"]) == (gate, "121")
    }
    assert (rows[before], rows[after]) == (was, is_now)


# -- behaviour ---------------------------------------------------------------------------------------------------


def vllm_pair(sm: SM, gate: str, direction: Direction, module: str, name: str, **stand_ins: Any) -> list[Any]:
    """The original and the patched function of vLLM, linked with its real platform classes on a GPU of this SM."""
    root = releases.unpacked("vllm", VLLM)
    plan = matrix.inspector_of(VLLM, "vllm").plan({catalogue.gates("vllm")[gate]: direction})
    patched = {path: change.after for path, change in plan.changes.items()}
    found = []
    for overlay in ({}, patched):
        linker = Linker(root, "vllm", {"torch": torch_on(sm), **stand_ins}, overlay)
        for needed in ("vllm.platforms.interface", "vllm.platforms.cuda"):
            _link_all(linker, needed)
        platform = linker.get("vllm.platforms.cuda", "NonNvmlCudaPlatform")()
        linker.stand_ins["vllm.platforms:current_platform"] = platform
        found.append(linker.get(module, name))
    return found


def _link_all(linker: Linker, module: str) -> None:
    """Link what a module binds: the body of a class reads its names from what is there already."""
    namespace = linker.namespace(module)
    for name in namespace.module.bindings:
        with contextlib.suppress(Exception):  # what needs more than stand-ins is not needed here
            namespace[name]


@pytest.mark.parametrize("sm", SMS, ids=str)
def test_deepgemm_is_closed_on_sm121_alone(sm: SM) -> None:
    module, name = "vllm.platforms.cuda", "NonNvmlCudaPlatform.support_deep_gemm"
    original, patched = vllm_pair(sm, "vllm.deepgemm-sm121", Direction.CLOSE, module, name)
    assert original() is (sm.major in (9, 10, 12))
    assert patched() is (original() and sm != SM121)


@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_fusion_is_on_by_default_for_two_gpus(sm: SM) -> None:
    module, name = "vllm.config.vllm", "enable_allreduce_rms_fusion"
    pair = vllm_pair(sm, "vllm.allreduce-rms-fusion", Direction.OPEN, module, name, has_flashinfer=lambda: True)
    original, patched = pair
    for size in (1, 2, 4, 8):
        config = SimpleNamespace(parallel_config=SimpleNamespace(tensor_parallel_size=size))
        before, after = bool(original(config)), bool(patched(config))
        assert before is (size > 1 and sm.major in (9, 10))
        assert after is (size == 2 if sm in SM12X else before)


@pytest.mark.parametrize("name", ["FI_ALLREDUCE_FUSION_MAX_SIZE_MB", "_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB"])
def test_the_tables_have_the_same_entries_for_every_other_key(name: str) -> None:
    module = "vllm.compilation.passes.fusion.allreduce_rms_fusion"
    original, patched = vllm_pair(SM121, "vllm.allreduce-rms-fusion", Direction.OPEN, module, name)
    assert {key: value for key, value in patched.items() if key in original} == original
    assert {key: value for key, value in patched.items() if key not in original} == {120: {2: 2}, 121: {2: 2}}
    assert list(patched)[: len(original)] == list(original)


# -- side by side --------------------------------------------------------------------------------------------------


@pytest.fixture
def together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SGLang 0.5.23, FlashInfer 0.7.2 and vLLM 0.24.0 in one folder, as wheels unpack."""
    parts = {"sglang": "0.5.23", "flashinfer-python": "0.7.2", "vllm": VLLM}
    folders = {name: releases.unpacked(name, version) for name, version in parts.items()}
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "site-packages"
    for folder in folders.values():
        for part in folder.iterdir():
            if part.is_dir() and (part.suffix == ".dist-info" or (part / "__init__.py").is_file()):
                matrix.linked_copy(part, root / part.name, without=("data",))
    return root


def test_all_engines_side_by_side(together: Path, tmp_path: Path) -> None:
    pristine = tmp_path / "pristine"
    shutil.copytree(together, pristine)
    _, data = run_json("status", "--sm", "121", root=together, every_engine=True)
    assert [place["installation"]["engine"] for place in data["installations"]] == ["flashinfer", "sglang", "vllm"]

    result = run("apply", "--sm", "121", root=together, every_engine=True)
    assert result.exit_code == 0, result.stderr
    _, data = run_json("status", "--sm", "121", root=together, every_engine=True)
    states = {gate["gate"]: gate["state"] for place in data["installations"] for gate in place["gates"]}
    for gate in ("allreduce-fusion", "vllm.allreduce-rms-fusion", "vllm.deepgemm-sm121"):
        assert states[gate] == "patched"
    assert "unrecognised" not in states.values()

    assert run("revert", "--engine", "vllm", root=together).exit_code == 0
    changed = {path.split("/")[0] for path in matrix.compare(pristine, together) if path.endswith(".py")}
    assert changed == {"sglang"}
    assert run("revert", root=together, every_engine=True).exit_code == 0
    assert [path for path in matrix.compare(pristine, together) if path.endswith(".py")] == []
