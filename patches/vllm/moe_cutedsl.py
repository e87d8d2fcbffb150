"""NVFP4 MoE, CuTe-DSL backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MoeCutedsl(Gate):
    """FlashInfer's CuTe-DSL MoE: SM10x in every release. The kernels use tcgen05. Opening it was proposed and
    closed.
    """

    id = "vllm.moe-cutedsl"
    engine = "vllm"
    family = "moe"
    title = "NVFP4 MoE, CuTe-DSL backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.12,<0.15",
            "model_executor/layers/quantization/utils/flashinfer_fp4_moe.py",
            "is_flashinfer_fp4_cutedsl_moe_available",
        ),
        ConditionSite(
            ">=0.15,<0.19",
            "model_executor/layers/fused_moe/flashinfer_cutedsl_moe.py",
            "FlashInferCuteDSLExperts._supports_current_device",
        ),
        ConditionSite(
            ">=0.19",
            "model_executor/layers/fused_moe/experts/flashinfer_cutedsl_moe.py",
            "FlashInferCuteDSLExperts._supports_current_device",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/pull/36453",
            "opening it for SM12x, proposed and closed",
        ),
    )
    risk = "the kernels use tcgen05, which SM12x lacks"
