"""Gates that are closed for SM12x, on real releases: the patched functions run for every SM beside the originals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM
from tests.releases.beside import SMS, TARGETS, Settings, outcome, pair
from tests.releases.linker import torch_on

pytestmark = pytest.mark.releases

OVERRIDES = "sglang.srt.arg_groups.overrides"
ARGS = "sglang.srt.server_args"
COMPATIBILITY = "ServerArgs._handle_attention_backend_compatibility"


MLA = {
    "0.5.8.post1": (ARGS, COMPATIBILITY),
    "0.5.14": (ARGS, COMPATIBILITY),
    "0.5.15.post1": (OVERRIDES, "_mla_kv_cache_dtype_checks"),
    "0.5.23": (OVERRIDES, "_mla_kv_cache_dtype_checks"),
}


def mla(prefill: str | None, decode: str | None, default: str) -> Settings:
    model = SimpleNamespace(
        hf_config=SimpleNamespace(architectures=["DeepseekV3ForCausalLM"]), is_encoder_decoder=False
    )
    return Settings(
        attention_backend=default,
        prefill_attention_backend=prefill,
        decode_attention_backend=decode,
        kv_cache_dtype="auto",
        page_size=64,
        speculative_algorithm=None,
        use_mla_backend=lambda: True,
        get_model_config=lambda: model,
        model_config=model,
        get_attention_backends=lambda: (prefill or default, decode or default),
        is_attention_backend_not_set=lambda: False,
        disable_radix_cache=True,
    )


@pytest.mark.parametrize("release", MLA)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_trtllm_mla_prefill_is_closed_and_decode_stays(release: str, sm: SM) -> None:
    original, patched = pair("attention-trtllm-mla-prefill", release, sm, *MLA[release], {})
    cases = [
        (None, None, "trtllm_mla"),
        ("trtllm_mla", None, "triton"),
        ("trtllm_mla", "triton", "triton"),
        (None, "trtllm_mla", "triton"),
        ("triton", None, "trtllm_mla"),
        ("triton", "trtllm_mla", "triton"),
        (None, None, "triton"),
    ]
    for case in cases:
        before, after = (outcome(function, mla(*case)) for function in (original, patched))
        prefill = case[0] or case[2]
        if sm in TARGETS and prefill == "trtllm_mla":
            assert after[0] == "ValueError"
            assert "prefill has no kernel for SM12X" in after[1]
            assert before in (None, {})
        else:
            assert after == before
            if sm in TARGETS:
                assert after in (None, {})


DSA = {
    "0.5.9": (ARGS, "ServerArgs._set_default_nsa_backends", "nsa"),
    "0.5.12.post1": (ARGS, "ServerArgs._set_default_nsa_backends", "nsa"),
    "0.5.14": (ARGS, "ServerArgs._set_default_dsa_backends", "dsa"),
    "0.5.16": (OVERRIDES, "_dsa_split_backend_resolution", "dsa"),
    "0.5.23": (OVERRIDES, "_dsa_split_backend_resolution", "dsa"),
}


def dsa(kind: str, prefill: str | None, decode: str | None, dtype: str) -> Settings:
    hf_config = SimpleNamespace(architectures=["DeepseekV32ForCausalLM"], learnable_sink=False)
    model = SimpleNamespace(hf_config=hf_config)
    chosen = {f"{kind}_prefill_backend": prefill, f"{kind}_decode_backend": decode}
    return Settings(**chosen, kv_cache_dtype=dtype, get_model_config=lambda: model, model=model, enable_hisparse=False)


@pytest.mark.parametrize("release", DSA)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_default_dsa_backends_are_not_trtllm(release: str, sm: SM) -> None:
    module, name, kind = DSA[release]
    stand_ins = {
        "is_deepseek_dsa": lambda config: True,
        "is_npu": lambda: False,
        "is_xpu": lambda: False,
        "model_config_of": lambda view: view.model,
        "apply_hisparse_dsa_backend_defaults": lambda *args: False,
        "apply_hisparse_nsa_backend_defaults": lambda *args: False,
    }
    functions = pair("dsa-trtllm-default", release, sm, module, name, stand_ins)
    refused, chosen = 0, set[Any]()
    for dtype in ("fp8_e4m3", "bfloat16"):
        for prefill, decode in ((None, None), ("tilelang", None), (None, "tilelang"), ("tilelang", "tilelang")):
            results = []
            for function in functions:
                settings = dsa(kind, prefill, decode, dtype)
                arguments = (settings,) if module == OVERRIDES else (settings, dtype, sm.major)
                result = outcome(function, *arguments)
                held = {**vars(settings), **(result if isinstance(result, dict) else {})}
                backends = (held[f"{kind}_prefill_backend"], held[f"{kind}_decode_backend"])
                results.append((result, backends))
            (before, wanted), (after, got) = results
            if sm in TARGETS and "trtllm" in wanted:
                refused += 1
                assert after[0] == "ValueError"
                assert f"--{kind}-prefill-backend" in after[1]
            elif sm in TARGETS and isinstance(before, tuple):
                assert after[0] == before[0]  # refused upstream too, in other words
            else:
                assert (after, got) == (before, wanted)
                chosen |= set(got)
    assert chosen - {None, "tilelang"} or sm in TARGETS
    assert bool(refused) is (sm in TARGETS)


SYMMETRIC = {
    "0.5.3": ("sglang.srt.distributed.device_communicators.symm_mem", "SymmMemCommunicator.__init__"),
    "0.5.8.post1": (
        "sglang.srt.distributed.device_communicators.torch_symm_mem",
        "TorchSymmMemCommunicator.__init__",
    ),
    "0.5.13.post1": (
        "sglang.srt.distributed.device_communicators.torch_symm_mem",
        "TorchSymmMemCommunicator.__init__",
    ),
}


class Memory:
    """torch's symmetric memory on GPUs with NVLink multicast."""

    def empty(self, size: int, **more: Any) -> Any:
        return SimpleNamespace(size=size)

    def rendezvous(self, buffer: Any, group: str) -> Any:
        return SimpleNamespace(multicast_ptr=1)


@pytest.mark.parametrize("release", SYMMETRIC)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_symmetric_memory_communicator_turns_itself_off(release: str, sm: SM) -> None:
    on = {"symm_mem_available": True, "torch_symm_mem_available": True, "torch_symm_mem": Memory()}
    torch = torch_on(sm)
    torch.cuda.set_device = lambda device: None
    stand_ins = {**on, "dist": SimpleNamespace(get_world_size=lambda group: group.size), "torch": torch}
    functions = pair("torch-symm-mem", release, sm, *SYMMETRIC[release], stand_ins)
    for size in (2, 3, 8):
        results = []
        for function in functions:
            communicator = SimpleNamespace()
            group = SimpleNamespace(size=size, group_name="tp")
            result = outcome(function, communicator, group, SimpleNamespace())
            results.append((result, communicator.disabled))
        before, after = results
        if sm in TARGETS:
            assert before[0] == ("KeyError", str(sm.major))
            assert after == (None, True)
        else:
            assert after == before


DEFAULT = {"0.5.6.post1": (ARGS, COMPATIBILITY), "0.5.6.post2": (ARGS, COMPATIBILITY)}


@pytest.mark.parametrize("release", DEFAULT)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_default_of_mha_models_is_not_trtllm_mha(release: str, sm: SM) -> None:
    stand_ins = {"is_flashinfer_available": lambda: True}
    functions = pair("attention-trtllm-mha-default", release, sm, *DEFAULT[release], stand_ins)
    results = []
    for function in functions:
        settings = mla(None, None, "")
        settings.attention_backend = None
        settings.use_mla_backend = lambda: False
        results.append((outcome(function, settings), settings.attention_backend))
    before, after = results
    if sm in TARGETS:
        assert before[1] == "trtllm_mha"
        assert before[0][0] == "ValueError"
        assert after == (None, "flashinfer")
    else:
        assert after == before


CUTLASS = {
    "0.5.18": (OVERRIDES, "_mla_backend_page_constraints"),
    "0.5.19": (OVERRIDES, "_mla_backend_page_constraints"),
}


@pytest.mark.parametrize("release", CUTLASS)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_cutlass_mla_is_refused_at_start_up(release: str, sm: SM) -> None:
    original, patched = pair("attention-cutlass-mla", release, sm, *CUTLASS[release], {})
    for case in ((None, None, "cutlass_mla"), (None, "cutlass_mla", "triton"), (None, None, "triton")):
        before, after = (outcome(function, mla(*case)) for function in (original, patched))
        if sm in TARGETS and "cutlass_mla" in case:
            assert after[0] == "ValueError"
            assert "no kernel for SM12X" in after[1]
        else:
            assert after == before
            assert not isinstance(after, tuple)


@pytest.mark.parametrize("release", ["0.5.5", "0.5.5.post3", "0.5.6.post2"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_diffusion_models_do_not_take_flash_attention(release: str, sm: SM) -> None:
    module, name = "sglang.multimodal_gen.runtime.platforms.cuda", "CudaPlatformBase.get_attn_backend_cls_str"
    backends = "sglang.multimodal_gen.runtime.layers.attention.backends"
    flash = SimpleNamespace(get_supported_head_sizes=lambda: [64, 128])
    torch = torch_on(sm, bfloat16="bfloat16", float16="float16", float32="float32")
    stand_ins = {"torch": torch, "FlashAttentionBackend": flash, "set_fa_ver": lambda version: None}
    functions = pair("diffusion-attention-default", release, sm, module, name, stand_ins)
    platform = SimpleNamespace(
        has_device_capability=lambda least: sm >= SM(least // 10, least % 10), device_name="cuda", device_type="cuda"
    )
    taken = set()
    for head, dtype in ((64, "bfloat16"), (128, "float16"), (80, "bfloat16"), (128, "float32")):
        before, after = (outcome(function, platform, None, head, dtype) for function in functions)
        assert isinstance(before, str), before
        taken.add(before)
        if sm in TARGETS:
            assert after == f"{backends}.sdpa.SDPABackend"
        else:
            assert after == before
    assert (f"{backends}.flash_attn.FlashAttentionBackend" in taken) is not (release == "0.5.5" and sm.major == 10)


FA3 = {
    "0.5.15": [(OVERRIDES, "_olmo2_overrides")],
    "0.5.18": [(OVERRIDES, "_olmo2_overrides")],
    "0.5.23": [
        ("sglang.srt.arg_groups.model_overrides.olmo2", "_olmo2_overrides"),
        ("sglang.srt.arg_groups.model_overrides.exaone", "_exaone_overrides"),
    ],
}


@pytest.mark.parametrize("release", FA3)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_the_default_of_olmo_is_not_fa3(release: str, sm: SM) -> None:
    stand_ins = {"resolving_view": lambda settings: settings, "is_npu": lambda: False}
    for module, name in FA3[release]:
        functions = pair("attention-fa3-default", release, sm, module, name, stand_ins)
        model = SimpleNamespace(architectures=["Olmo3ForCausalLM"], sliding_window_pattern="LLLG")
        for asked in (None, "flashinfer"):
            settings = Settings(attention_backend=asked)
            before, after = (outcome(function, settings, model) for function in functions)
            assert isinstance(before, dict), before
            if sm in TARGETS and asked is None:
                assert before["attention_backend"] == "fa3"
                assert after == {**before, "attention_backend": "triton"}
            else:
                assert after == before
                assert asked is None or "attention_backend" not in after
