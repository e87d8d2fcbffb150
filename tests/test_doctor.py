"""Versions that must fit, the compiler, and the SMs in kernel libraries: on a hand-made environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.elf import SPECIFIC, container, cubin, entry, library
from tests.installation import install, metadata, run, run_json

COMMON_OPS = library([(".nv_fatbin", container(entry(90, SPECIFIC), entry(120, SPECIFIC)))])
FLASH_OPS = library([(".nv_fatbin", container(entry(80), entry(90, SPECIFIC)))])


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def compiler(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
    nvcc.chmod(0o755)
    return nvcc


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pins = "Requires-Dist: flashinfer_python==0.7.2\nRequires-Dist: torch==2.14.1\nRequires-Dist: left-pad>=1\n"
    pins += "Requires-Dist: sgl-kernel==9; python_version < '3'\nRequires-Dist: triton; extra == 'x'\n"
    files = {
        "sglang-0.5.23.dist-info/METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n{pins}",
        "torch/__init__.py": "",
        "torch/version.py": "cuda: str = '12.9'\n",
        **metadata("torch", "2.14.1"),
        **metadata("left-pad", "1.1"),
        **metadata("flashinfer-cubin", "0.7.2"),
        "sgl_kernel/__init__.py": "",
        "flashinfer_cubin/__init__.py": "",
    }
    root = install(tmp_path / "site", files=files)
    (root / "sgl_kernel/sm100").mkdir()
    (root / "sgl_kernel/sm100/common_ops.abi3.so").write_bytes(COMMON_OPS)
    (root / "sgl_kernel/flash_ops.abi3.so").write_bytes(FLASH_OPS)
    (root / "flashinfer_cubin/cubins").mkdir()
    for name in ("a_sm100f", "b_sm100f", "c_sm103a"):
        (root / f"flashinfer_cubin/cubins/{name}.cubin").write_bytes(cubin(100))
    return root


def checks(root: Path, *words: str, code: int = 0) -> dict[str, dict[str, object]]:
    result = run("doctor", "--format", "json", "--sm", "120", *words, root=root)
    assert result.exit_code == code, result.stderr
    return {c["subject"]: c for c in json.loads(result.stdout)["installations"][0]["checks"]}


def test_an_environment_that_fits(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "13.0")
    found = checks(root)
    assert found["version pins"]["found"] == "3 requirements are met"
    assert found["flashinfer-python / flashinfer-cubin"]["verdict"] == "ok"
    assert found["torch for SM120"]["found"] == "built for CUDA 12.9"
    assert found["nvcc"]["verdict"] == "ok" and "sm_120f" in str(found["nvcc"]["found"])
    assert found["sgl_kernel/sm100/common_ops.abi3.so"]["verdict"] == "ok"
    flash = found["sgl_kernel/flash_ops.abi3.so"]
    assert flash["verdict"] == "note" and flash["found"] == "has no sm_120 code for FlashAttention 3: 80 (1), 90a (1)"
    cubins = found["flashinfer_cubin/**/*.cubin"]
    assert "no sm_120 code" in str(cubins["found"]) and "100f (2), 103a (1)" in str(cubins["found"])


def test_specific_code_for_120_is_none_for_121(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "13.0")
    found = run_json("doctor", "--sm", "121", root=root)[1]["installations"][0]["checks"]
    (common,) = [c for c in found if c["subject"].endswith("common_ops.abi3.so")]
    assert "has no sm_121 code" in common["found"]


def test_each_thing_that_does_not_fit_is_told(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "12.6")
    (root / "torch-2.14.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    (root / "torch/version.py").write_text("cuda: str = '12.6'\n")
    (root / "flashinfer_cubin-0.7.2.dist-info/METADATA").write_text("Name: flashinfer-cubin\nVersion: 0.6.13\n")
    (root / "sgl_kernel/flash_ops.abi3.so").write_bytes(b"cut")
    found = checks(root, code=1)
    assert found["torch==2.14.1"]["found"] == "2.9.0 is installed"
    assert found["flashinfer-python / flashinfer-cubin"]["verdict"] == "problem"
    assert found["torch for SM120"]["verdict"] == "problem"
    assert found["nvcc"]["verdict"] == "problem" and "12.9" in str(found["nvcc"]["hint"])
    assert "not read" in str(found["sgl_kernel/flash_ops.abi3.so"]["found"])


def test_no_compiler_and_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patcher.doctor.find_nvcc", lambda roots: None)
    found = checks(install(tmp_path / "bare"), code=1)
    assert found["nvcc"]["found"] == "none found"
    assert found["torch"]["verdict"] == "note"


def test_the_compiler_of_cuda_home_comes_first(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, "12.6")
    compiler(tmp_path / "cuda", "13.0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert str(checks(root)["nvcc"]["found"]).startswith("13.0")


def test_a_local_version_is_the_same_release(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "13.0")
    (root / "flashinfer_jit_cache-0.7.2+cu130.dist-info").mkdir()
    text = "Name: flashinfer-jit-cache\nVersion: 0.7.2+cu130\n"
    (root / "flashinfer_jit_cache-0.7.2+cu130.dist-info/METADATA").write_text(text)
    trio = checks(root)["flashinfer-python / flashinfer-cubin / flashinfer-jit-cache"]
    assert trio["verdict"] == "ok"


def test_markdown_names_no_folder_of_this_machine(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "13.0")
    block = run("doctor", "--format", "markdown", "--sm", "120", root=root).stdout
    assert block.startswith("### sm-patch doctor") and "<packages>" in block
    assert str(root) not in block and str(Path.home()) not in block
    assert str(root) in run("doctor", "--format", "markdown", "--sm", "120", "--paths", root=root).stdout


def test_the_table_ends_with_a_verdict(root: Path, tmp_path: Path) -> None:
    compiler(tmp_path, "13.0")
    result = run("doctor", "--sm", "120", root=root)
    assert result.exit_code == 0 and "no problem found" in result.stderr
