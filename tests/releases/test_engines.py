"""FlashInfer and vLLM on real releases: their matrices, real patched functions, and all engines side by side."""

from __future__ import annotations

import ast
import contextlib
import json
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

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
"""The one vLLM release computed again: a wheel is 250 to 440 MB. All 36 are in the committed matrix."""
FIRST = "0.17.1"
RUN = (FIRST, VLLM, "0.33.0")
"""vLLM releases whose patched functions are run: the first era of the default, the one above, and the newest."""
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


@pytest.mark.parametrize("engine", ["sglang", *ENGINES])
def test_what_an_unknown_release_is_compared_with_is_the_newest_that_is_known(engine: str) -> None:
    named = catalogue.engine_named(engine)
    pinned = releases.versions(matrix.distribution_of(engine))
    assert named.newest == pinned[-1]
    assert all(SpecifierSet(named.verified).contains(version) for version in pinned)


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
    "vllm.indexer-fp4": ("0.19.1", "absent", "0.20.0", "refused"),
    "vllm.mla-prefill-trtllm": ("0.11.0", "absent", "0.11.1", "refused"),
    "flashinfer.moe-trtllm-gen-jit": ("0.6.6", "refused", "0.6.7", "open"),
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


_NEVER_ABSENT = {
    "flashinfer.moe-trtllm-gen-jit": "0.3.1",
    "vllm.attention-trtllm": "0.10.2",
    "vllm.indexer-fp4": "0.20.0",
    "vllm.mla-cutlass": "0.10.2",
    "vllm.mla-flashinfer": "0.10.2",
    "vllm.mla-flashmla": "0.10.2",
    "vllm.mla-prefill-trtllm": "0.11.1",
    "vllm.moe-cutedsl": "0.12.0",
    "vllm.moe-flashinfer-cutlass": "0.10.2",
    "vllm.moe-trtllm-fp8": "0.12.0",
    "vllm.moe-trtllm-mxfp4": "0.10.2",
    "vllm.moe-trtllm-mxint4": "0.16.0",
    "vllm.moe-trtllm-nvfp4": "0.12.0",
}


@pytest.mark.parametrize("gate", _NEVER_ABSENT)
def test_a_gate_is_there_in_every_release_from_its_first_on(gate: str) -> None:
    rows = [row for row in committed(gate.split(".")[0])["rows"] if row["gate"] == gate]
    first = Version(_NEVER_ABSENT[gate])
    assert all((row["before"] == "absent") is (Version(row["release"]) < first) for row in rows)


# -- behaviour ---------------------------------------------------------------------------------------------------


@cache
def vllm_patched(release: str, gate: str, direction: Direction) -> dict[str, bytes]:
    """The files that a gate changes, by path, as it would write them."""
    plan = matrix.inspector_of(release, "vllm").plan({catalogue.gates("vllm")[gate]: direction})
    return {path: change.after for path, change in plan.changes.items()}


def vllm_pair(release: str, sm: SM, gate: str, direction: Direction, **stand_ins: Any) -> list[Linker]:
    """Linkers of the original and the patched source of vLLM, with its real platform classes on a GPU of this SM."""
    root = releases.unpacked("vllm", release)
    found = []
    for overlay in ({}, vllm_patched(release, gate, direction)):
        linker = Linker(root, "vllm", {"torch": torch_on(sm), **stand_ins}, overlay)
        for needed in ("vllm.platforms.interface", "vllm.platforms.cuda"):
            _link_all(linker, needed)
        platform = linker.get("vllm.platforms.cuda", "NonNvmlCudaPlatform")()
        linker.stand_ins["vllm.platforms:current_platform"] = platform
        found.append(linker)
    return found


def _link_all(linker: Linker, module: str) -> None:
    """Link what a module binds: the body of a class reads its names from what is there already."""
    namespace = linker.namespace(module)
    for name in namespace.module.bindings:
        with contextlib.suppress(Exception):  # what needs more than stand-ins is not needed here
            namespace[name]


@pytest.mark.parametrize("sm", SMS, ids=str)
@pytest.mark.parametrize("release", [VLLM, "0.33.0"])
def test_deepgemm_is_closed_on_sm121_alone(release: str, sm: SM) -> None:
    pair = vllm_pair(release, sm, "vllm.deepgemm-sm121", Direction.CLOSE)
    original, patched = (part.get("vllm.platforms.cuda", "NonNvmlCudaPlatform.support_deep_gemm") for part in pair)
    assert original() is (sm.major in (9, 10, 12))
    assert patched() is (original() and sm != SM121)


@pytest.mark.parametrize("sm", SMS, ids=str)
def test_deepgemm_is_closed_upstream_before_vllm_takes_it_for_the_family(sm: SM) -> None:
    stand_ins = {"has_deep_gemm": lambda: True, "vllm.envs": None}
    assert vllm_patched(FIRST, "vllm.deepgemm-sm121", Direction.CLOSE) == {}
    original, _ = vllm_pair(FIRST, sm, "vllm.deepgemm-sm121", Direction.CLOSE, **stand_ins)
    original.stand_ins["vllm.utils.deep_gemm:envs"] = SimpleNamespace(VLLM_USE_DEEP_GEMM=True)
    assert bool(original.get("vllm.utils.deep_gemm", "is_deep_gemm_supported")()) is (sm.major in (9, 10))


@pytest.mark.parametrize("sm", SMS, ids=str)
@pytest.mark.parametrize("release", RUN)
def test_the_fusion_is_on_by_default_for_two_gpus(release: str, sm: SM) -> None:
    pair = vllm_pair(release, sm, "vllm.allreduce-rms-fusion", Direction.OPEN, has_flashinfer=lambda: True)
    original, patched = (part.get("vllm.config.vllm", "enable_allreduce_rms_fusion") for part in pair)
    admitted = sm in (SM(9, 0), SM(10, 0)) or (sm.major == 10 and release != FIRST)  # later the whole family
    for size, data, pipeline in product((1, 2, 4, 8), (1, 2), (1, 2)):
        sizes = {"tensor": size, "data": data, "pipeline": pipeline}
        parallel = SimpleNamespace(**{f"{kind}_parallel_size": count for kind, count in sizes.items()})
        config = SimpleNamespace(parallel_config=parallel)
        alone = release != FIRST or data == pipeline == 1  # combinations that were broken then
        before, after = bool(original(config)), bool(patched(config))
        assert before is (size > 1 and admitted and alone)
        assert after is (size == 2 and alone if sm in SM12X else before)


@pytest.mark.parametrize("name", ["FI_ALLREDUCE_FUSION_MAX_SIZE_MB", "_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB"])
@pytest.mark.parametrize("release", RUN)
def test_the_tables_have_the_same_entries_for_every_other_key(release: str, name: str) -> None:
    pair = vllm_pair(release, SM121, "vllm.allreduce-rms-fusion", Direction.OPEN)
    original, patched = (part.get("vllm.compilation.passes.fusion.allreduce_rms_fusion", name) for part in pair)
    assert original
    assert {key: value for key, value in patched.items() if key in original} == original
    assert {key: value for key, value in patched.items() if key not in original} == {120: {2: 2}, 121: {2: 2}}
    assert list(patched)[: len(original)] == list(original)


@pytest.mark.parametrize("sm", SMS, ids=str)
@pytest.mark.parametrize("release", RUN)
def test_mamba2_takes_the_tiles_of_blackwell_when_told_to(release: str, sm: SM) -> None:
    module, gate = "vllm.model_executor.layers.mamba.mamba_mixer2", "vllm.mamba2-blackwell"
    flags = []
    for part in vllm_pair(release, sm, gate, Direction.OPEN):
        namespace = part.namespace(module)
        (made,) = [
            node.value
            for node in ast.walk(namespace.module.source.tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.is_blackwell"
        ]
        flags.append(bool(eval(compile(ast.Expression(made), module, "eval"), namespace)))
    assert flags == [sm.major == 10, sm.major == 10 or sm in SM12X]


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
