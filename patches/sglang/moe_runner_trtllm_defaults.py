"""The MoE runner that the server chooses by model on SM100."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.requirements import ShutOutBy
from patcher.sites import ConditionSite
from patches.sglang import SM12X

_ARGS, _OVERRIDES = "srt/server_args.py", "srt/arg_groups/overrides.py"
_ADJUST = "ServerArgs._handle_model_specific_adjustments"
_MODELS = "srt/arg_groups/model_overrides"

TRTLLM_GEN = ShutOutBy(
    "flashinfer-python",
    lines=(
        ("flashinfer/data/csrc/trtllm_batched_gemm_runner.cu", r"case tg::CudaArch::Sm100a"),
        ("flashinfer/data/csrc/trtllm_fused_moe_kernel_launcher.cu", r"ICHECK_EQ\(.*\b10\)"),
    ),
    because="its TensorRT-LLM MoE kernels are binaries for SM100 and SM103, chosen by the GPU's SM",
    link="https://github.com/flashinfer-ai/flashinfer/issues/2723",
)


class MoeRunnerTrtllmDefaults(Gate):
    """``flashinfer_trtllm`` as the MoE runner chosen for a model (Llama 4, DeepSeek, Qwen3, GLM, …) on SM100.

    The runner's kernels are TensorRT-LLM's generated ones: binaries for SM100 and SM103 that the launcher picks by
    the GPU's SM. From 0.6.16 FlashInfer compiles the launcher for major 12 too, and its check lets it through; that
    brings no kernels. Those who widened the checks before got invalid output or a crash.
    On SM120 and SM121 the servers leave ``auto``, which takes triton or, for NVFP4, FlashInfer's CUTLASS runner.
    The site that is shown stands for all models: Llama 4's.
    """

    id = "moe-runner-trtllm-defaults"
    engine = "sglang"
    family = "moe"
    title = "TensorRT-LLM MoE runner chosen by model"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    requires = (TRTLLM_GEN,)
    sites = (
        ConditionSite(
            ">=0.5.4.post2,<0.5.15",
            _ARGS,
            _ADJUST,
            mentions=("is_sm100_supported", "moe_runner_backend"),
            decides=("moe_runner_backend",),
        ),
        ConditionSite(
            ">=0.5.15,<0.5.19", _OVERRIDES, "_llama4_overrides", mentions=("is_sm100_supported", "moe_runner_backend")
        ),
        ConditionSite(
            ">=0.5.19", f"{_MODELS}/llama4.py", "_llama4_overrides", mentions=("is_sm100", "moe_runner_backend")
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/2723",
            "what happened to those who widened the launcher's checks on SM120: invalid output",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/35617",
            "the TensorRT-LLM FP4 MoE kernels are for SM100 only and use another weight layout",
        ),
    )
    risk = "The kernels are binaries for SM100 and SM103; those who widened the checks got invalid output or a crash."
    usage = "Leave --moe-runner-backend at auto, or pass flashinfer_cutlass for NVFP4 experts."
