"""MXFP8 MoE on CUTLASS kernels."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X

_FP8, _CUTLASS = "srt/layers/quantization/fp8.py", "srt/layers/moe/cutlass_moe.py"
_WEIGHTS = "Fp8MoEMethod._process_mxfp8_moe_weights"


class MoeMxfp8(Gate):
    """MXFP8 experts: the weight preparation and the expert-specialised CUTLASS GEMM behind it.

    Both ask for SM100. The kernels behind them are the ``es_sm100_*`` ones of the kernel library, which has no
    version for SM120 or SM121, so letting these two through gives an exception from the kernel instead of this one.
    """

    id = "moe-mxfp8"
    engine = "sglang"
    family = "moe"
    title = "MXFP8 MoE (expert-specialised CUTLASS)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        ConditionSite(">=0.5.9,<0.5.19", _CUTLASS, "cutlass_fused_experts_fp8", mentions=("is_sm100_supported",)),
        ConditionSite(">=0.5.19", _CUTLASS, "cutlass_fused_experts_fp8", mentions=("is_sm100",)),
        ConditionSite(">=0.5.9,<0.5.19", _FP8, _WEIGHTS, mentions=("is_sm100_supported",), refuses=True),
        ConditionSite(">=0.5.19", _FP8, _WEIGHTS, mentions=("is_sm100",), refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/kvcache-ai/ktransformers/issues/2058",
            "an MXFP8 MoE model on RTX PRO 6000: stopped by the assertion for SM90 or SM100",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28125",
            "the grouped FP8 GEMMs of the kernel library: cases for SM90 and SM100 only",
        ),
    )
    risk = "The kernel library has these grouped GEMMs for SM100 only (es_sm100_*): the first forward pass raises."
    usage = "Use a checkpoint in NVFP4 or FP8 for the experts."
