"""Gates that must not be opened, and gates whose code the release has not: shown, refused, forced, taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from patches.sglang import _miniature as mini
from tests.installation import install, run, run_json, snapshot

_FP8, _CUTLASS = "sglang/srt/layers/quantization/fp8.py", "sglang/srt/layers/moe/cutlass_moe.py"
_FILES = {
    **mini.PLATFORM,
    _FP8: """\
from sglang.srt.runtime_context import get_platform

_is_cuda = get_platform().is_cuda


class Fp8MoEMethod:
    def _process_mxfp8_moe_weights(self, layer):
        if not (_is_cuda and get_platform().is_sm100):
            raise RuntimeError("MXFP8 MoE needs SM100")
""",
    _CUTLASS: """\
from sglang.srt.runtime_context import get_platform


def cutlass_fused_experts_fp8(a, use_mxfp8):
    if use_mxfp8:
        assert get_platform().is_sm100
    return a
""",
}
_DSV4 = """\
from sglang.srt.utils import is_sm90_supported, is_sm100_supported


class Fp8Config:
    def get_quant_method(self):
        if is_sm90_supported() and not is_sm100_supported():
            return "cutlass"
        return "trtllm"
"""
GATE = "moe-mxfp8"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return install(tmp_path / "site", files=_FILES)


def test_it_is_shown_with_its_reason_and_link(root: Path) -> None:
    _, data = run_json("status", "--sm", "120", root=root)
    gate = next(g for g in data["installations"][0]["gates"] if g["gate"] == GATE)
    assert (gate["state"], gate["level"], gate["would"]) == ("refused", "refused", None)
    assert "es_sm100" in gate["reason"]
    assert gate["link"].startswith("https://github.com/")


def test_apply_never_opens_it(root: Path) -> None:
    before = snapshot(root)
    result = run("apply", "--sm", "120", "--gate", GATE, root=root)
    assert result.exit_code == 3
    assert "es_sm100" in result.stderr and "apply never opens it" in result.stderr
    assert snapshot(root) == before
    run("apply", "--sm", "120", root=root)
    assert snapshot(root)[_FP8][0] == before[_FP8][0]


def test_force_says_what_happened_to_those_who_did_and_revert_takes_it_back(root: Path) -> None:
    before = snapshot(root)
    result = run("apply", "--sm", "120", "--force", GATE, root=root)
    assert result.exit_code == 0
    assert f"forced: {GATE} although it is refused" in result.stderr
    assert "the first forward pass raises" in result.stderr
    after = snapshot(root)
    assert {path for path in before if after[path][0] != before[path][0]} == {_FP8, _CUTLASS}
    assert "is_sm120" in after[_FP8][0].decode()
    assert run("revert", "--gate", GATE, root=root).exit_code == 0
    assert {path: entry[0] for path, entry in snapshot(root).items() if path in before} == {
        path: entry[0] for path, entry in before.items()
    }


def test_code_that_the_release_has_not_is_named_with_the_release_that_has_it(tmp_path: Path) -> None:
    root = install(tmp_path / "old", "0.5.14", {**mini.UTILS, _FP8: _DSV4})
    before = snapshot(root)
    result = run("apply", "--sm", "121", "--gate", "dsv4-moe", root=root)
    assert result.exit_code == 3
    assert "SGLang >=0.5.16" in result.stderr and "SGLang 0.5.14" in result.stderr
    assert snapshot(root) == before


def test_a_gate_that_is_not_there_cannot_be_forced(root: Path) -> None:
    before = snapshot(root)
    for gate in ("lora-moe", "attention-trtllm-mla-prefill"):
        result = run("apply", "--sm", "120", "--force", gate, root=install(root.parent / f"old-{gate}", "0.4.6"))
        assert result.exit_code == 3
        assert f"{gate}: SGLang 0.4.6 has no such gate" in result.stderr
        assert "use a release that has it" in result.stderr
    assert snapshot(root) == before


_HOOK = "sglang/srt/arg_groups/attention_hook.py"
_CHECK = """\
from sglang.srt.runtime_context import get_platform


def handle_attention_backend_compatibility(cfg, prefill_backend):
    if prefill_backend == "trtllm_mha" and get_platform().is_sm120 and cfg.kv_cache_dtype == "fp8_e4m3":
        raise ValueError("no kernel for an fp8 KV cache")
"""


def test_a_gate_that_is_only_shown_cannot_be_forced(tmp_path: Path) -> None:
    root = install(tmp_path / "site", files={**mini.PLATFORM, _HOOK: _CHECK})
    before = snapshot(root)
    gate = "attention-trtllm-mha-fp8-prefill"
    result = run("apply", "--sm", "120", "--force", gate, root=root)
    assert result.exit_code == 3
    assert "behind the check there is no other kernel" in result.stderr and "never edited" in result.stderr
    assert snapshot(root) == before
    _, data = run_json("status", "--sm", "120", "--all", root=root)
    shown = next(g for g in data["installations"][0]["gates"] if g["gate"] == gate)
    assert shown["state"] == "refused"
