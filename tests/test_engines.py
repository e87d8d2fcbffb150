"""Several engines in one environment: shown together, planned together, taken back apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.errors import SmPatchError
from tests.installation import GATE, flashinfer, install, metadata, run, run_json, snapshot

FUSION = catalogue.gates("vllm")["vllm.allreduce-rms-fusion"]
DEEPGEMM = catalogue.gates("vllm")["vllm.deepgemm-sm121"]
CUBLASLT = catalogue.gates("flashinfer")["flashinfer.mm-bf16-cublaslt"]


def all_engines(root: Path, kernels: str = "0.7.2", majors: tuple[int, ...] = (9, 10, 12)) -> Path:
    """SGLang, vLLM and FlashInfer as miniatures, side by side."""
    files = {
        "vllm/__init__.py": "",
        **FUSION.examples[0].before,
        "vllm/platforms/cuda.py": DEEPGEMM.examples[0].before["vllm/platforms/cuda.py"],
        **metadata("vllm", "0.33.0"),
        **CUBLASLT.examples[0].before,
        **flashinfer(kernels, list(majors)),
    }
    for old in root.glob("flashinfer_python-*.dist-info"):
        shutil.rmtree(old)
    install(root, files=files)
    if kernels != "0.7.2":
        shutil.rmtree(root / "flashinfer_python-0.7.2.dist-info")
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLASHINFER_WORKSPACE_BASE", raising=False)
    return all_engines(tmp_path / "site")


def states(root: Path, *words: str) -> dict[str, str]:
    _, data = run_json("status", "--sm", "120", *words, root=root, every_engine=True)
    return {gate["gate"]: gate["state"] for place in data["installations"] for gate in place["gates"]}


def test_status_shows_all_three(root: Path) -> None:
    _, data = run_json("status", "--sm", "121", root=root, every_engine=True)
    names = [place["installation"]["engine"] for place in data["installations"]]
    assert names == ["flashinfer", "sglang", "vllm"], "those that others ask about come first"
    found = {gate["gate"]: gate["state"] for place in data["installations"] for gate in place["gates"]}
    assert found["flashinfer.comm-jit"] == "open"
    assert found[GATE] == "closed"
    assert found[FUSION.id] == "closed"
    assert found[DEEPGEMM.id] == "too-open"


def test_apply_plans_across_them_and_revert_of_one_leaves_the_others(root: Path) -> None:
    before = snapshot(root)
    result = run("apply", "--sm", "120", root=root, every_engine=True)
    assert result.exit_code == 0, result.stderr
    assert {states(root)[name] for name in (GATE, FUSION.id, DEEPGEMM.id)} >= {"patched"}
    applied = snapshot(root)
    changed = {path for path in before if before[path][0] != applied[path][0]}
    assert {path.split("/")[0] for path in changed} == {"flashinfer", "sglang", "vllm"}

    assert run("apply", "--sm", "120", root=root, every_engine=True).exit_code == 0
    assert snapshot(root) == applied, "a second time there is nothing to do"

    assert run("revert", "--engine", "vllm", root=root).exit_code == 0
    reverted = snapshot(root)
    for path in changed:
        wanted = before if path.startswith("vllm/") else applied
        assert reverted[path][0] == wanted[path][0], path
    assert states(root)[GATE] == "patched"

    assert run("revert", root=root, every_engine=True).exit_code == 0
    assert {path: parts[0] for path, parts in snapshot(root).items()} == {p: parts[0] for p, parts in before.items()}


def test_a_requirement_names_the_gate_of_the_other_engine(root: Path) -> None:
    all_engines(root, majors=(9, 10))
    for gate in (GATE, FUSION.id):
        result = run("apply", "--gate", gate, "--sm", "120", root=root, every_engine=True)
        assert result.exit_code == 3
        assert "flashinfer.comm-jit refuses SM120" in result.stderr
        assert "flashinfer/jit/comm.py:5" in result.stderr
    assert states(root)[FUSION.id] == "refused"


def test_what_stands_in_the_way_of_one_engine_stops_all(root: Path) -> None:
    before = snapshot(root)
    (root / "vllm/config/vllm.py").write_text("def enable_allreduce_rms_fusion(cfg):\n    return False\n")
    names = ("--gate", GATE, "--gate", FUSION.id)
    assert run("apply", *names, "--sm", "120", root=root, every_engine=True).exit_code == 3
    after = snapshot(root)
    assert all(after[path][0] == before[path][0] for path in before if path.startswith("sglang/"))


def test_a_dry_run_sees_what_is_planned_for_the_engine_before(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate of vLLM that needs the one that apply is about to open in FlashInfer."""
    from patcher.requirements import OtherGate

    all_engines(root, kernels="0.6.14")
    needs = OtherGate(CUBLASLT, "flashinfer-python", ">=0.6.15", because="it uses it")
    monkeypatch.setattr(FUSION, "requires", (needs,))
    assert states(root)[FUSION.id] == "refused"
    alone = run("apply", "--gate", FUSION.id, "--sm", "120", "--dry-run", root=root, every_engine=True)
    assert alone.exit_code == 3
    names = ("--gate", CUBLASLT.id, "--gate", FUSION.id)
    for more in (["--dry-run"], []):
        result = run("apply", *names, "--sm", "120", *more, root=root, every_engine=True)
        assert result.exit_code == (1 if more else 0), result.stderr
    assert states(root)[FUSION.id] == "patched"


def _keep(home: Path, version: str, architectures: str, module: str) -> Path:
    folder = home / f".cache/flashinfer/{version}/{architectures}/cached_ops/{module}"
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text("")
    return folder


@pytest.mark.parametrize("clear", [False, True])
def test_stale_jit_modules(clear: bool, root: Path, tmp_path: Path) -> None:
    all_engines(root, kernels="0.6.14")
    home = tmp_path / "home"
    stale = [_keep(home, "0.6.14", name, "mm_bf16_cublaslt") for name in ("100_120", "89_121a")]
    kept = [
        _keep(home, "0.6.14", "90_100", "mm_bf16_cublaslt"),  # no target among its architectures
        _keep(home, "0.6.14", "100_120", "mm_bf16_cutlass"),  # not built by the code that changes
        _keep(home, "0.6.13", "100_120", "mm_bf16_cublaslt"),  # of another release
    ]
    words = ["--clear-jit-cache"] if clear else []
    code, data = run_json("apply", "--gate", CUBLASLT.id, "--sm", "120", *words, root=root, every_engine=True)
    assert code == 0
    assert data["outcomes"][0]["stale_jit_modules"] == sorted(str(path) for path in stale)
    assert [path.exists() for path in stale] == [not clear] * 2
    assert all(path.exists() for path in kept)
    again, data = run_json("apply", "--gate", CUBLASLT.id, "--sm", "120", *words, root=root, every_engine=True)
    assert (again, data["outcomes"][0]["stale_jit_modules"]) == (0, [])


def test_a_dry_run_clears_nothing(root: Path, tmp_path: Path) -> None:
    all_engines(root, kernels="0.6.14")
    stale = _keep(tmp_path / "home", "0.6.14", "120a", "mm_bf16_cublaslt")
    words = ("apply", "--gate", CUBLASLT.id, "--sm", "120", "--dry-run", "--clear-jit-cache")
    result = run(*words, root=root, every_engine=True)
    assert str(stale) in result.stderr
    assert stale.exists()


def test_the_place_of_the_cache_may_be_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_engines(root, kernels="0.6.14")
    monkeypatch.setenv("FLASHINFER_WORKSPACE_BASE", str(tmp_path / "elsewhere"))
    stale = _keep(tmp_path / "elsewhere", "0.6.14", "120a", "mm_bf16_cublaslt")
    _keep(tmp_path / "home", "0.6.14", "120a", "mm_bf16_cublaslt")
    run("apply", "--gate", CUBLASLT.id, "--sm", "120", root=root, every_engine=True)
    result = run("revert", "--clear-jit-cache", root=root, every_engine=True)
    assert result.stderr.count("removed ") == 1
    assert not stale.exists()


def test_a_cache_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from patcher import jit_cache

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(SmPatchError, match="cannot remove") as caught:
        jit_cache.clear([tmp_path])
    assert caught.value.exit_code == 6
