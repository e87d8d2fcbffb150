"""Gates that are opened for SM12x, on real releases: the patched functions run for every SM beside the originals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM
from tests.releases.beside import SMS, TARGETS, Settings, outcome, pair
from tests.releases.linker import Anything, torch_on

pytestmark = pytest.mark.releases

REGISTRY = "sglang.srt.layers.attention.attention_registry"
ARGS = "sglang.srt.server_args"


def runner(backend: str) -> Any:
    """A model runner of a hybrid GDN model with this attention backend."""
    arguments = SimpleNamespace(attention_backend=backend, enable_double_sparsity=False)
    return SimpleNamespace(
        hybrid_gdn_config=SimpleNamespace(full_attention_layer_ids=[1]),
        mambaish_config=SimpleNamespace(full_attention_layer_ids=[1]),
        mamba2_config=None,
        kimi_linear_config=None,
        use_mla_backend=False,
        server_args=arguments,
        model_config=SimpleNamespace(),
    )


@pytest.mark.parametrize("release", ["0.5.4.post2", "0.5.6", "0.5.8.post1", "0.5.9"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_hybrid_gdn_models_may_use_flashinfer(release: str, sm: SM) -> None:
    stand_ins = {
        **dict.fromkeys(("KimiLinearAttnBackend", "Mamba2AttnBackend", "LightningAttentionBackend"), Anything()),
        "check_environments": lambda: None,
        "GDNAttnBackend": lambda runner: "gdn",
        "HybridLinearAttnBackend": lambda full, linear, layers: (full, linear, layers),
        "is_npu": lambda: False,
        "is_cpu": lambda: False,
        "initialize_linear_attn_config": lambda arguments: None,
    }
    original, patched = pair("hybrid-gdn-attention", release, sm, REGISTRY, "attn_backend_wrapper", stand_ins)
    for backend in ("flashinfer", "triton", "fa3"):
        before, after = (outcome(function, runner(backend), "full") for function in (original, patched))
        if sm in TARGETS and backend != "triton":
            assert before[0] == "AssertionError"
            assert after == ("full", "gdn", [1])
        else:
            assert after == before
            assert backend != "triton" or after == ("full", "gdn", [1])


HICACHE = {
    "0.5.8.post1": "ServerArgs._handle_hicache",
    "0.5.12": "ServerArgs._resolve_io_decode_attention_compatibility",
    "0.5.13.post1": "ServerArgs._resolve_io_decode_attention_compatibility",
}


@pytest.mark.parametrize("release", HICACHE)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_decode_fallback_of_hicache(release: str, sm: SM) -> None:
    stand_ins = {"is_flashinfer_available": lambda: True, "is_npu": lambda: False}
    functions = pair("attention-hicache-decode", release, sm, ARGS, HICACHE[release], stand_ins)
    for mla in (True, False):
        for asked in (None, "triton"):
            results = []
            for function in functions:
                settings = SimpleNamespace(
                    attention_backend="fa3",
                    decode_attention_backend=asked,
                    prefill_attention_backend=None,
                    hicache_io_backend="kernel",
                    hicache_mem_layout="layer_first",
                    hicache_storage_backend=None,
                    disable_radix_cache=False,
                    enable_hierarchical_cache=True,
                    use_mla_backend=lambda mla=mla: mla,
                    get_model_config=lambda: SimpleNamespace(has_attention_sinks=False),
                )
                result = outcome(function, settings)
                assert not isinstance(result, tuple), result
                results.append((result, settings.decode_attention_backend, settings.hicache_io_backend))
            before, after = results
            if sm in TARGETS and mla and asked is None:
                assert before[1] == "triton"
                assert after == (before[0], "flashinfer", before[2])
            else:
                assert after == before


@pytest.mark.parametrize("release", ["0.5.20", "0.5.23"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_flashinfer_a2a(release: str, sm: SM) -> None:
    stand_ins = {"is_mnnvl_fabric_device": lambda: False}
    module = "sglang.srt.utils.common"
    original, patched = pair("flashinfer-a2a", release, sm, module, "is_fi_a2a_supported", stand_ins)
    for dcp in (2, 3):
        sizes = {"dcp_size": dcp, "tp_size": 8, "pp_size": 1, "nnodes": 1}
        before, after = original(**sizes), patched(**sizes)
        if sm in TARGETS:
            assert before is False
            assert after is (dcp == 2)
        else:
            assert after is before


GPT_OSS = {
    "0.5.19": "sglang.srt.arg_groups.model_overrides.gpt_oss",
    "0.5.23": "sglang.srt.arg_groups.model_overrides.gpt_oss",
}


@pytest.mark.parametrize("release", GPT_OSS)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_default_of_gpt_oss(release: str, sm: SM) -> None:
    stand_ins: dict[str, Any] = {
        "is_attention_backend_not_set": lambda cfg: True,
        "resolving_view": lambda server_args: server_args,
        "is_triton_kernels_available": lambda: False,
        "is_mps": lambda: False,
        "is_cpu": lambda: False,
    }
    absent = SimpleNamespace(is_available=lambda: False)
    stand_ins["torch"] = torch_on(sm, xpu=absent, npu=absent, hpu=absent)
    functions = pair("attention-gpt-oss-default", release, sm, GPT_OSS[release], "_gpt_oss_overrides", stand_ins)
    results = []
    for function in functions:
        arguments = SimpleNamespace(dtype="auto", moe_runner_backend="triton", ep_size=1, attention_backend=None)
        result = outcome(function, arguments, SimpleNamespace(quantization_config=None))
        assert isinstance(result, dict), result
        results.append(result)
    before, after = results
    if sm in TARGETS:
        assert before["attention_backend"] == "triton"
        assert after == {**before, "attention_backend": "trtllm_mha"}
    else:
        assert after == before


VISION = "sglang.srt.layers.attention.vision"


@pytest.mark.parametrize("release", ["0.5.18", "0.5.20", "0.5.23"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_vision_towers_get_fa4(release: str, sm: SM) -> None:
    name = "VisionAttention._determine_attention_backend"
    absent = SimpleNamespace(is_available=lambda: False)
    torch = torch_on(sm, xpu=absent, npu=absent, hpu=absent, musa=absent)
    for asked in (None, "sdpa"):
        stand_ins = {"torch": torch, "get_mm": lambda asked=asked: SimpleNamespace(mm_attention_backend=asked)}
        functions = pair("vision-attention-fa4", release, sm, VISION, name, stand_ins)
        for passed in (None, "triton_attn"):
            before, after = (function(SimpleNamespace(), passed) for function in functions)
            if sm in TARGETS and asked is passed is None:
                assert (before, after) == ("triton_attn", "fa4")
            else:
                assert after == before == (asked or passed or before)
    assert functions[0](SimpleNamespace(), None) == "sdpa"


LINEAR = {
    "0.5.11": (ARGS, "ServerArgs._handle_linear_attn_backend"),
    "0.5.18": (ARGS, "ServerArgs._handle_linear_attn_backend"),
    "0.5.23": ("sglang.srt.arg_groups.attention_hook", "handle_linear_attn_backend"),
}


@pytest.mark.parametrize("release", LINEAR)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_linear_attention_decodes_through_flashinfer_where_the_state_is_bf16(release: str, sm: SM) -> None:
    stand_ins = {
        "resolving_view": lambda settings: settings,
        "declare_resolution": lambda settings, where, **chosen: settings.__dict__.update(chosen),
        "pp_spec_stable_rows_enabled": lambda: False,
    }
    functions = pair("linear-attention-flashinfer", release, sm, *LINEAR[release], stand_ins)
    for asked in (None, "triton"):
        for dtype in ("bfloat16", "float32"):
            results = []
            for function in functions:
                settings = Settings(
                    linear_attn_decode_backend=asked, linear_attn_backend="triton", mamba_ssm_dtype=dtype
                )
                results.append((outcome(function, settings), settings.linear_attn_decode_backend))
            before, after = results
            if sm in TARGETS and asked is None and dtype == "bfloat16":
                assert (before[1], after) == (None, (None, "flashinfer"))
            else:
                assert after == before
                assert after == (
                    None,
                    "flashinfer" if asked is None and sm.major == 10 and dtype == "bfloat16" else asked,
                )


MODELOPT = "sglang.srt.layers.quantization.modelopt_quant"


@pytest.mark.parametrize("release", ["0.5.14", "0.5.16"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_layers_with_one_scale_use_the_gemm_of_flashinfer(release: str, sm: SM) -> None:
    for available in (True, False):
        stand_ins = {
            "is_flashinfer_available": lambda available=available: available,
            "cutlass_fp8_supported": lambda: True,
            "super": lambda: SimpleNamespace(__init__=lambda: None),
            "can_auto_enable_marlin_fp8": lambda: False,
            "envs": Anything(),
        }
        name = "ModelOptFp8LinearMethod.__init__"
        held = []
        for function in pair("gemm-fp8-per-tensor", release, sm, MODELOPT, name, stand_ins):
            method = SimpleNamespace()
            function(method, "config")
            held.append(method.enable_flashinfer_bmm)
        before, after = held
        assert before is (available and sm.major == 10)
        assert after is (available and (sm in TARGETS or sm.major == 10))
