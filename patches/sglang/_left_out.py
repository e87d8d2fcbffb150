"""What a scan shows that lets SM100 through and never SM120, and why it is no gate of the catalogue.

Checked against five releases: whatever such a scan of them shows is covered by a recipe or named here, and nothing is
named here that none of them has. So what a new release brings is seen.
"""

from dataclasses import dataclass
from enum import Enum

RELEASES = ("0.4.9", "0.5.8.post1", "0.5.14", "0.5.18", "0.5.23")


class Why(str, Enum):
    FOLLOWS = "part of a gate of the catalogue, or decided by it"
    SM100 = "leads to a kernel made of what SM12x has not (tcgen05, tensor memory, machine code for SM10x, NVLink)"
    DEFAULT = "chooses a default for SM100; what SM12x gets instead works, and a flag takes the other where it can run"
    UNTRIED = "the kernel may run; nobody has published that it does on SM12x, and what is taken instead works"
    OWN = "SM12x has a path of its own here, and the condition keeps it there"
    TUNING = "numbers or a faster form of the same thing, chosen for SM100"
    FACT = "says what a GPU is, and decides nothing by itself"
    TEST = "a test of SGLang's own"


@dataclass(frozen=True)
class LeftOut:
    """Places below the package (``*`` in paths and definitions stands for anything), and what they are.

    ``gates``: the gates of the catalogue that they follow.
    """

    path: str
    why: Why
    says: str
    within: tuple[str, ...] = ("*",)
    gates: tuple[str, ...] = ()


_TRTLLM = ("moe-runner-trtllm-defaults", "attention-trtllm-mha-decode", "attention-mla-default")
_MODELS = tuple(
    f"_{model}_overrides"
    for model in (
        *("deepseek_family", "falcon_h1_jet", "gemma4", "glm4_moe", "granite_moe_hybrid", "inkling", "lfm2", "llama4"),
        *("mimo_v2", "minicpm_v4_6", "minimax_m2", "minimax_m3", "nemotron_h", "olmo2", "qwen3_moe_family"),
    )
)
_HOOKS = "srt/arg_groups"
_LAYERS = "srt/layers"
_ATTENTION = f"{_LAYERS}/attention"
_LINEAR = f"{_ATTENTION}/linear"
_QUANT = f"{_LAYERS}/quantization"
_OPS = "kernels/ops"
_VISUAL = "multimodal_gen/runtime/layers/attention/backends"

LEFT_OUT = (
    # -- what a GPU is
    LeftOut("srt/utils.py", Why.FACT, "is_blackwell, major 10 in those days"),
    LeftOut("srt/utils/common.py", Why.FACT, "the lists of majors behind is_sm100_supported and its kin", ("",)),
    LeftOut("srt/layers/utils.py", Why.FACT, "is_sm100_supported", ("is_sm100_supported",)),
    LeftOut("multimodal_gen/runtime/platforms/interface.py", Why.FACT, "is_blackwell, with is_sm120 beside it"),
    LeftOut("srt/models/bailing_moe_*.py", Why.FACT, "a name that nothing reads", ("",)),
    LeftOut("multimodal_gen/test/*", Why.TEST, "which tests run on which GPU"),
    # -- defaults by model
    LeftOut(
        f"{_HOOKS}/model_overrides/*.py",
        Why.DEFAULT,
        "trtllm-gen attention and MoE runners, FA4 or flashinfer as a model's defaults",
        (*_MODELS, "_beam_overrides", "_deepseek_v4_overrides", "_exaone_overrides"),
        _TRTLLM,
    ),
    LeftOut(
        f"{_HOOKS}/model_overrides/qwen4_exp.py",
        Why.UNTRIED,
        "the attention default, and --qsa-indexer-dtype fp8_e4m3 (TileLang, said to be for SM90 and SM100)",
    ),
    LeftOut(
        f"{_HOOKS}/overrides.py",
        Why.DEFAULT,
        "the same defaults as they were before 0.5.19, and DeepSeek's quantization by checkpoint",
        (*_MODELS, "_deepseek_moe_quant_resolution"),
        _TRTLLM,
    ),
    LeftOut(
        "srt/server_args.py",
        Why.DEFAULT,
        "the same defaults as they were before 0.5.15",
        ("ServerArgs._handle_model_specific_adjustments",),
        _TRTLLM,
    ),
    LeftOut(f"{_HOOKS}/nemotron_h_hook.py", Why.DEFAULT, "Nemotron-H's defaults in 0.5.14", gates=_TRTLLM),
    LeftOut(f"{_HOOKS}/kimi_k3_hook.py", Why.DEFAULT, "Kimi K3's draft and linear attention", gates=_TRTLLM),
    LeftOut(f"{_HOOKS}/speculative_hook.py", Why.DEFAULT, "FA4 for a draft whose layers trtllm_mha cannot do"),
    LeftOut(
        f"{_HOOKS}/overrides.py", Why.TUNING, "the page size that FA4's SM100 kernel wants", ("_fa4_page_constraint",)
    ),
    LeftOut(
        "srt/server_args.py",
        Why.TUNING,
        "the same page size in 0.5.14",
        ("ServerArgs._handle_attention_backend_compatibility",),
    ),
    LeftOut(
        "srt/server_args.py",
        Why.DEFAULT,
        "embedding models without a KV cache, where FA3 or FA4 is the default",
        ("ServerArgs._handle_model_capability_adjustments",),
    ),
    LeftOut(f"{_HOOKS}/model_hook.py", Why.DEFAULT, "the same from 0.5.19 on"),
    LeftOut(
        "srt/server_args.py",
        Why.FOLLOWS,
        "FP8 attention of MiniMax M3, with trtllm_mha alone",
        ("m3_fp8_attn_gemm_enabled",),
        ("minimax-msa",),
    ),
    LeftOut(
        f"{_HOOKS}/kv_cache_hook.py",
        Why.FOLLOWS,
        "prefill on NVFP4 itself, and what trtllm_mha's NVFP4 cache cannot be combined with",
        gates=("kv-cache-nvfp4-prefill", "kv-cache-nvfp4"),
    ),
    # -- attention
    LeftOut(
        f"{_ATTENTION}/trtllm_mha_backend.py",
        Why.OWN,
        "SM12x (and SM90) decode through XQA: what is trtllm-gen's alone is left out there",
        gates=("attention-trtllm-mha-decode", "kv-cache-nvfp4"),
    ),
    LeftOut(
        f"{_ATTENTION}/qwen_sparse_attn_backend.py",
        Why.FOLLOWS,
        "an FP8 scratch for trtllm-gen; SM12x keeps one of 16 bits",
        gates=("qsa-trtllm-decode",),
    ),
    LeftOut(
        f"{_ATTENTION}/dsa_backend.py",
        Why.SM100,
        "the schedule of DeepGEMM's indexer for several draft tokens at once",
        gates=("dsa-paged-mqa-cutedsl",),
    ),
    LeftOut(
        f"{_ATTENTION}/deepseek_v4_backend.py",
        Why.OWN,
        "no FlashMLA sparse prefill on SM12x",
        ("*.forward", "*._use_sparse_prefill"),
    ),
    LeftOut(
        f"{_ATTENTION}/deepseek_v4_backend.py",
        Why.SM100,
        "attention with operands swapped, for DeepSeek V4.1 decode",
        ("*._forward_attention",),
    ),
    LeftOut("srt/dllm/attention.py", Why.SM100, "DiffusionGemma's FA4"),
    LeftOut("srt/dllm/algorithm/gemma4_renoise.py", Why.TUNING, "DiffusionGemma's statistics in parts"),
    LeftOut(f"{_LINEAR}/kernels/[gk]d[an]_cutedsl.py", Why.SM100, "CuteDSL prefill of GDN and KDA"),
    LeftOut(f"{_LINEAR}/kernels/kda_[np]*.py", Why.SM100, "NVIDIA's and the PTX prefill of KDA"),
    LeftOut(
        f"{_LINEAR}/kernels/gdn_flashinfer.py",
        Why.UNTRIED,
        "FlashInfer's GDN kernels for verifying drafts",
        gates=("linear-attention-flashinfer",),
    ),
    LeftOut(
        f"{_LINEAR}/gdn_backend.py",
        Why.DEFAULT,
        "FlashInfer's GDN prefill; --linear-attn-prefill-backend flashinfer takes it on SM12x as well",
    ),
    LeftOut(
        f"{_LINEAR}/kda_backend.py",
        Why.FOLLOWS,
        "FlashInfer's KDA prefill as a default",
        gates=("kda-flashinfer-prefill",),
    ),
    # -- kernels
    LeftOut(f"{_OPS}/attention/linear/kda_ptx_prefill/__init__.py", Why.SM100, "for which GPUs the PTX is assembled"),
    LeftOut(f"{_OPS}/attention/attn_res.py", Why.SM100, "a form with TMA; the caller asks first and has another"),
    LeftOut(f"{_OPS}/attention/deep_select.py", Why.UNTRIED, "DeepSelect's top-k, built for SM90, SM100 and SM103"),
    LeftOut(f"{_OPS}/attention/dsv4/index_logits.py", Why.TUNING, "the type of DeepSeek V4's index logits"),
    LeftOut(f"{_OPS}/attention/fla/fused_recurrent.py", Why.TUNING, "tile sizes for one shape"),
    LeftOut(
        f"{_OPS}/attention/msa_v1/compact_dequant.py", Why.FOLLOWS, "MiniMax's sparse attention", gates=("minimax-msa",)
    ),
    LeftOut(f"{_OPS}/communication/sp_collective_gemm.py", Why.SM100, "GEMMs with collectives over NVLink"),
    LeftOut(
        f"{_OPS}/gemm/cutedsl_[bd]*_gemm.py",
        Why.SM100,
        "CuteDSL GEMMs in 16 bits, and two at once with SwiGLU",
        ("_tgv_bf16_gemm_run", "_tgv_bf16_gemm_out_run", "_dual_gemm_swiglu*_run", "can_use_dual_gemm"),
        ("gemm-bf16-cutedsl",),
    ),
    LeftOut(f"{_OPS}/gemm/muse_spark_router_gemv_cutedsl.py", Why.SM100, "Muse Spark's router"),
    LeftOut(f"{_OPS}/layernorm/mhc.py", Why.OWN, "SM12x compiles it without warp specialization"),
    LeftOut("kernels/kda_kernels/sm120_fp8.py", Why.OWN, "an FP8 linear layer of SM12x's own"),
    LeftOut("kernels/kda_kernels/norm_scale_shift_jit.py", Why.TUNING, "fused norms of diffusion models"),
    LeftOut("*/sana_wm_gdn_chunkwise*.py", Why.TUNING, "launch parameters; SM12x has its own rows in the same tables"),
    # -- quantization and GEMM
    LeftOut(
        f"{_QUANT}/fp8.py", Why.FOLLOWS, "the CUTLASS MoE of SGLANG_CUTLASS_MOE, in 0.4.9", gates=("moe-fp8-cutlass",)
    ),
    LeftOut(
        f"{_QUANT}/fp8_utils.py",
        Why.FOLLOWS,
        "FlashInfer's block-FP8 GEMM, first behind a switch",
        ("", "dispatch_w8a8_block_fp8_linear"),
        ("gemm-fp8-block-auto",),
    ),
    LeftOut(
        f"{_QUANT}/fp8_utils.py",
        Why.SM100,
        "--fp8-gemm-backend flashinfer_trtllm, refused with a message elsewhere",
        ("_dispatch_explicit_backend", "resolve_mxfp8_dense_gemm_backend"),
    ),
    LeftOut(
        f"{_QUANT}/fp8_utils.py",
        Why.SM100,
        "DeepGEMM with blocks of 32 by 32",
        ("_deepgemm_block_fp8_supported",),
        ("deepgemm-enable",),
    ),
    LeftOut(
        f"{_QUANT}/fp8_utils.py",
        Why.TUNING,
        "tiles of the triton MXFP8 GEMM",
        ("_raw_triton_mxfp8_blockscaled_linear",),
    ),
    LeftOut(f"{_QUANT}/fp8_kernel.py", Why.TUNING, "the same, in the kernel"),
    LeftOut(f"{_QUANT}/fp4_utils.py", Why.TUNING, "which of FlashInfer's quantizers is called", ("",)),
    LeftOut(f"{_QUANT}/mxfp4_flashinfer_trtllm_moe.py", Why.TUNING, "likewise", ("",)),
    LeftOut(f"{_QUANT}/modelopt_quant.py", Why.OWN, "an operator that SM12x does not use", ("",)),
    LeftOut(
        f"{_QUANT}/modelopt_quant.py",
        Why.FOLLOWS,
        "layers with one scale",
        ("ModelOptFp8LinearMethod.apply",),
        ("gemm-fp8-per-tensor",),
    ),
    LeftOut(
        f"{_QUANT}/mxfp4.py", Why.TUNING, "constraints of triton_kernels' persistent matmul", ("", "_swizzle_mxfp4")
    ),
    LeftOut(
        f"{_QUANT}/mxfp4.py",
        Why.FOLLOWS,
        "which of FlashInfer's MXFP4 kernels, and its padding",
        ("Mxfp4MoEMethod.*",),
        ("mxfp4-gptoss-moe",),
    ),
    LeftOut(
        f"{_QUANT}/mxfp4_flashinfer_cutlass_moe.py",
        Why.OWN,
        "SM12x scales activations in MXFP8",
        gates=("mxfp4-method",),
    ),
    LeftOut(
        f"{_QUANT}/fp4_kv_cache_quant_method.py",
        Why.OWN,
        "how trtllm-gen and SM12x's kernels read the same scales",
        gates=("kv-cache-nvfp4",),
    ),
    LeftOut(
        f"{_QUANT}/compressed_tensors/compressed_tensors.py",
        Why.DEFAULT,
        "the triton MoE for 4-bit weights; --moe-runner-backend triton takes it instead of Marlin",
    ),
    LeftOut(f"{_QUANT}/unquant.py", Why.FOLLOWS, "the GEMM of 16-bit weights", gates=("gemm-bf16-cutedsl",)),
    LeftOut(f"{_LAYERS}/deep_gemm_wrapper/configurer.py", Why.FOLLOWS, "DeepGEMM's scales", ("",), ("deepgemm-ue8m0",)),
    # -- MoE
    LeftOut(f"{_LAYERS}/moe/mega_moe.py", Why.FOLLOWS, "whether MegaMoE is ready", gates=("moe-mega",)),
    LeftOut(
        f"{_LAYERS}/moe/moe_runner/deep_gemm_sm120.py",
        Why.OWN,
        "how SM12x runs DeepGEMM's MoE",
        gates=("deepgemm-enable",),
    ),
    # -- collectives
    LeftOut(
        f"{_LAYERS}/communicator.py",
        Why.FOLLOWS,
        "who asks whether all-reduce and norm are fused",
        gates=("allreduce-fusion",),
    ),
    LeftOut(f"{_LAYERS}/layer_boundary/residual/add_norm.py", Why.FOLLOWS, "likewise", ("",), ("allreduce-fusion",)),
    LeftOut(
        f"{_LAYERS}/flashinfer_comm_fusion.py",
        Why.SM100,
        "the fusion over NVLink (mnnvl, cutedsl); SM12x gets trtllm, which its gate opens",
        gates=("allreduce-fusion",),
    ),
    LeftOut(
        "srt/distributed/device_communicators/*custom_all_reduce_v2.py", Why.TUNING, "sizes of the custom all-reduce"
    ),
    # -- models, memory, LoRA
    LeftOut(f"{_LAYERS}/hyperconnection.py", Why.SM100, "a CuteDSL GEMM in two parts"),
    LeftOut(
        "srt/models/deepseek_v2.py",
        Why.FOLLOWS,
        "the fused GEMM in front of MLA",
        ("DeepseekV2AttentionMLA.prepare_qkv_latent",),
        ("gemm-fused-a",),
    ),
    LeftOut("srt/models/deepseek_v2.py", Why.TUNING, "the router's GEMM", ("MoEGate.forward",), ("gemm-dsv3-router",)),
    LeftOut(
        "srt/models/deepseek_v2.py",
        Why.SM100,
        "NVFP4 GEMM and SwiGLU in one CuteDSL kernel",
        ("DeepseekV2MoE.__init__",),
        ("gemm-fp4-cutedsl",),
    ),
    LeftOut("srt/models/deepseek_v4.py", Why.SM100, "the fused output projection, and DeepGEMM's norm"),
    LeftOut("srt/models/deepseek_v4_mhc.py", Why.SM100, "DeepGEMM's norm, and one kernel for all of mHC"),
    LeftOut("srt/models/gemma4_diffusion.py", Why.TUNING, "fused norms and RoPE"),
    LeftOut("srt/models/beam.py", Why.UNTRIED, "a small GEMM for the router, built for SM90 and SM100"),
    LeftOut("srt/mem_cache/deepseek_v4_memory_pool.py", Why.SM100, "DeepSeek V4.1's layouts; SM12x keeps V4's"),
    LeftOut(
        "srt/mem_cache/minimax_m3_nvfp4_pool.py",
        Why.UNTRIED,
        "quantizing and storing at once: upstream has not compared it bit for bit on SM120",
    ),
    LeftOut("srt/lora/marlin_lora_temp/moe_runner.py", Why.TUNING, "a tail for one shape, on SM100 exactly"),
    LeftOut("srt/lora/trtllm_lora_temp/inkling_dense.py", Why.TUNING, "for how many tokens two streams overlap"),
    # -- diffusion
    LeftOut(f"{_VISUAL}/sage_attn.py", Why.TUNING, "which kernel of SageAttention SM100 takes"),
    LeftOut(f"{_VISUAL}/sdpa.py", Why.DEFAULT, "cuDNN before FA4 on SM100"),
    LeftOut(f"{_VISUAL}/skip_softmax.py", Why.OWN, "trtllm-gen on SM100, fmha_v2 on SM12x"),
    LeftOut(f"{_VISUAL}/subblock_sparse_attn.py", Why.OWN, "one kernel for each of SM90, SM100 and SM120"),
    LeftOut(f"{_VISUAL}/fp8_fa_sm120_attn.py", Why.OWN, "an FP8 attention for exactly SM120; SM121 is untried"),
    LeftOut("multimodal_gen/configs/quantization/nunchaku.py", Why.OWN, "SVDQuant is for SM8x and SM12x"),
)


@dataclass(frozen=True)
class Admitted:
    """A condition that looks like a gate and treats SM120 and SM121 as SM90, in every release that has it.

    ``release``: one that it is tested on.
    """

    path: str
    within: str
    release: str
    says: str


ADMITTED = (
    Admitted(
        "srt/model_executor/model_runner.py",
        "ModelRunner._should_run_flashinfer_autotune",
        "0.5.8.post1",
        "FlashInfer's autotuner needs SM90 or newer; which runners it tunes is moe-autotune-cutlass",
    ),
    Admitted(
        f"{_QUANT}/fp8_utils.py",
        "cutlass_block_fp8_supported",
        "0.4.9",
        "the block-FP8 GEMM of the kernel library: SM90 and newer, later SM90 and every Blackwell",
    ),
    Admitted(
        f"{_QUANT}/fp8_utils.py",
        "_dispatch_auto_backend",
        "0.5.8.post1",
        "the same, as the choice of the automatic backend; what comes before it is gemm-fp8-block-auto",
    ),
    Admitted(
        "jit_kernel/utils.py", "is_arch_support_pdl", "0.5.8.post1", "programmatic dependent launch: SM90 and newer"
    ),
)
