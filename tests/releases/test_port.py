"""Port on real borders: the committed evaluation is what the script computes, and proposals can be planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.condition import Truth
from patcher.haystack import Haystack
from patcher.port import Lost, port
from patcher.predicate import ALL_WORLDS
from patcher.skeleton import sketch
from scripts import matrix, port_eval, releases
from tests.installation import run_json

pytestmark = pytest.mark.releases

BORDERS = (("0.5.20", "0.5.21"), ("0.5.21", "0.5.22"))
GATE = "allreduce-fusion"


@cache
def lost(before: str, after: str) -> list[Lost]:
    gate = catalogue.gates("sglang")[GATE]
    return port(gate, Haystack(matrix.inspector_of(after)), Haystack(matrix.inspector_of(before)), after)


@pytest.mark.parametrize(("before", "after"), BORDERS)
def test_the_site_that_moved_is_first_and_its_line_can_be_planned(before: str, after: str) -> None:
    gate = catalogue.gates("sglang")[GATE]
    (item,) = lost(before, after)
    first = item.candidates[0]
    assert item.confidence == "likely"
    new = matrix.inspector_of(after)
    truth = new.find(gate.sites_for(after)[0]).place
    assert truth is not None
    assert (first.path, first.line) == (truth.path, truth.line)
    assert first.site is not None
    ported = type("Ported", (gate,), {"sites": (first.site,)})
    plan = new.plan({ported: gate.direction()})
    assert first.path in plan.changes
    assert plan.steps[0].checks


def _section(text: str, heading: str) -> str:
    return text.split(f"## {heading}\n")[1].split("\n## ")[0]


def _totals(text: str) -> tuple[int, int]:
    """How many sites moved, and how many were ranked first, by the rows of tables."""
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| 0.")]
    return sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)


def test_the_committed_tables_reach_what_they_claim() -> None:
    text = port_eval.OUTPUT.read_text()
    for name in port_eval.ENGINES:
        section = _section(text, catalogue.engine_named(name).called)
        moved, first = _totals(section)
        assert f"{moved} sites moved; ranked first: {first} ({100 * first / moved:.0f} %)" in section
    moved, first = _totals(_section(text, "SGLang"))
    assert first >= 0.9 * moved
    moved, first = _totals(text)
    assert f"All engines: {moved} sites moved; ranked first: {first} ({100 * first / moved:.0f} %)" in text
    assert _section(text, "Not ranked first").count("\n- ") == moved - first
    right, likely = map(int, re.findall(r"likely: (\d+) of (\d+) right", text)[0])
    assert right >= 0.95 * likely


@pytest.mark.parametrize(
    ("engine", "before", "after"), [*(("sglang", *border) for border in BORDERS), ("flashinfer", "0.5.2", "0.5.3")]
)
def test_a_row_computed_again_is_the_committed_one(engine: str, before: str, after: str) -> None:
    border = [before, after]
    page = port_eval.page({engine: list(port_eval.evaluate(border, engine))}, {engine: border})
    (row,) = [line for line in page.splitlines() if line.startswith("| 0.")]
    assert row in port_eval.OUTPUT.read_text()


# -- the release after the newest, made of a real one ----------------------------------------------------------------


def next_release(distribution: str, version: str, root: Path, edits: Mapping[str, Callable[[str], str]]) -> Path:
    """A copy of a release under a version that nobody knows, some files changed. Gives the original's folder."""
    original = releases.unpacked(distribution, version)
    for part in original.iterdir():
        if part.suffix == ".dist-info" or (part / "__init__.py").is_file():
            matrix.linked_copy(part, root / part.name, without=("data",))
    metadata = next(root.glob("*.dist-info")) / "METADATA"
    for path, edit in {metadata.relative_to(root).as_posix(): _newer(version), **edits}.items():
        text = (root / path).read_text()
        (root / path).unlink()  # a hard link to the original
        (root / path).write_text(edit(text))
    return original


def _newer(version: str) -> Callable[[str], str]:
    return lambda text: text.replace(f"\nVersion: {version}\n", "\nVersion: 99.1.0\n")


def _renamed(before: str, after: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert before in text
        return text.replace(before, after)

    return edit


def test_what_moved_in_the_next_vllm_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tables = "vllm/compilation/passes/fusion/allreduce_rms_fusion.py"
    edits = {
        "vllm/config/vllm.py": _renamed("def enable_allreduce_rms_fusion", "def fusion_by_default"),
        "vllm/platforms/cuda.py": _renamed("def support_deep_gemm", "def deep_gemm_works"),
    }
    original = next_release("vllm", "0.24.0", root, edits)
    (root / tables).rename((root / tables).with_name("fused_all_reduce.py"))
    code, data = run_json("port", "--sm", "121", "--from", str(original), root=root, every_engine=True)
    assert code == 1
    found = {(lost["gate"], lost["candidates"][0]["within"]): lost for lost in data["installations"][0]["lost"]}
    lines = {key: lost["candidates"][0]["recipe_line"] for key, lost in found.items()}
    assert lines[("vllm.allreduce-rms-fusion", "fusion_by_default")].startswith(
        'ConditionSite(">=99.1.0", "config/vllm'
    )
    assert "deep_gemm_works" in lines[("vllm.deepgemm-sm121", "CudaPlatformBase.deep_gemm_works")]
    tabled = [lost["candidates"][0] for lost in data["installations"][0]["lost"] if lost["site"]["within"] == ""]
    assert {place["path"] for place in tabled} == {"vllm/compilation/passes/fusion/fused_all_reduce.py"}
    assert len({place["line"] for place in tabled}) == 2
    assert all(lost["confidence"] == "likely" for lost in data["installations"][0]["lost"])


def test_what_moved_in_the_next_flashinfer_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    edits = {
        "flashinfer/gemm/gemm_base.py": _renamed("_cublaslt_mm_bf16_requirement", "_check_mm_bf16_by_cublaslt"),
        "flashinfer/jit/comm.py": _renamed("def gen_trtllm_comm_module", "def trtllm_comm_module"),
    }
    original = next_release("flashinfer-python", "0.7.2", root, edits)
    code, data = run_json("port", "--sm", "121", "--from", str(original), root=root, every_engine=True)
    assert code == 1
    firsts = {
        (lost["gate"], lost["candidates"][0]["within"], lost["confidence"]): lost["candidates"][0]["recipe_line"]
        for lost in data["installations"][0]["lost"]
    }
    assert firsts == {
        ("flashinfer.mm-bf16-cublaslt", "_check_mm_bf16_by_cublaslt", "likely"): (
            'KeyedSite(">=99.1.0", "gemm/gemm_base.py", "_check_mm_bf16_by_cublaslt", unit=Unit.CAPABILITY, '
            'decorator="supported_compute_capability"),'
        ),
        ("flashinfer.comm-jit", "trtllm_comm_module", "likely"): (
            'KeyedSite(">=99.1.0", "jit/comm.py", "trtllm_comm_module", unit=Unit.MAJOR, '
            'keyword="supported_major_versions"),'
        ),
    }


# -- skeletons --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "version", "gate"),
    [
        ("vllm", "0.24.0", "vllm.allreduce-rms-fusion"),
        ("vllm", "0.24.0", "vllm.deepgemm-sm121"),
        ("vllm", "0.24.0", "vllm.symm-mem-all-reduce"),
        ("flashinfer-python", "0.7.2", "flashinfer.mm-bf16-cublaslt"),
        ("flashinfer-python", "0.7.2", "flashinfer.comm-jit"),
    ],
)
def test_a_skeleton_of_a_gate_that_is_known_finds_its_places(distribution: str, version: str, gate: str) -> None:
    engine = gate.split(".")[0]
    inspector = matrix.inspector_of(version, engine)
    for site in catalogue.gates(engine)[gate].sites_for(version):
        known = inspector.find(site).place
        assert known is not None
        made = sketch(inspector, site.path, known.line, "", f">={version}")
        found = inspector.find(made.site).place
        assert found is not None
        assert found.node is known.node
        assert type(made.site).__name__ in ("ConditionSite", "KeyedSite")
        assert {world: truth is Truth.NEVER for world, truth in made.truths.items()} == {
            str(world): known.admits(world) is Truth.NEVER for world in ALL_WORLDS
        }
