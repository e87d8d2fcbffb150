"""Gates that are opened for SM12x, on real releases: the patched functions run for every SM beside the originals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM
from tests.releases.beside import SMS, TARGETS, outcome, pair
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
