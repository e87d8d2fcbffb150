"""Real wheels side by side, as a user has them: SGLang with the FlashInfer it pins."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts import matrix, releases
from tests.installation import run, states

pytestmark = pytest.mark.releases


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "site-packages"


def install(root: Path, release: str, flashinfer: str) -> None:
    matrix.linked_copy(releases.unpacked("sglang", release), root)
    kernels = releases.unpacked("flashinfer-python", flashinfer)
    (root / "flashinfer" / "jit").mkdir(parents=True)
    for path in ("flashinfer/__init__.py", "flashinfer/jit/comm.py"):
        shutil.copy(kernels / path, root / path)
    shutil.copytree(next(kernels.glob("*.dist-info")), root / next(kernels.glob("*.dist-info")).name)


def test_0_5_23_with_its_flashinfer_is_opened(installed: Path) -> None:
    pristine = releases.unpacked("sglang", "0.5.23")
    install(installed, "0.5.23", "0.7.2")
    assert run("apply", "--sm", "120", root=installed).exit_code == 0
    assert states(installed)["allreduce-fusion"] == "patched"
    assert run("revert", root=installed).exit_code == 0
    assert matrix.compare(pristine / "sglang", installed / "sglang") == []


@pytest.mark.parametrize(
    ("flashinfer", "state"), [("0.6.1", "refused"), ("0.6.16.post4", "refused"), ("0.6.17", "closed")]
)
def test_the_border_of_the_kernel(installed: Path, flashinfer: str, state: str) -> None:
    install(installed, "0.5.8.post1", flashinfer)
    assert states(installed)["allreduce-fusion"] == state
    result = run("apply", "--gate", "allreduce-fusion", "--sm", "120", root=installed)
    assert result.exit_code == (3 if state == "refused" else 0)
    if state == "refused":
        assert "flashinfer/jit/comm.py:" in result.stderr
        assert "flashinfer-python>=0.6.17" in result.stderr


def test_too_open_upstream_is_shown_and_closed(installed: Path) -> None:
    install(installed, "0.5.7", "0.6.1")
    assert states(installed)["allreduce-fusion-auto"] == "too-open"
    assert run("apply", "--gate", "allreduce-fusion-auto", root=installed).exit_code == 0
    assert states(installed)["allreduce-fusion-auto"] == "patched"
