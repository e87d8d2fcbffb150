"""NVFP4 MoE, batched CuTe-DSL backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MoeCutedslBatched(Gate):
    """FlashInfer's batched CuTe-DSL MoE: SM10x in every release. The kernels use tcgen05."""

    id = "vllm.moe-cutedsl-batched"
    engine = "vllm"
    family = "moe"
    title = "NVFP4 MoE, batched CuTe-DSL backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.20",
            "model_executor/layers/fused_moe/experts/flashinfer_cutedsl_batched_moe.py",
            "FlashInferCuteDSLBatchedExperts._supports_current_device",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/pull/36453",
            "opening it for SM12x, proposed and closed",
        ),
    )
    risk = "the kernels use tcgen05, which SM12x lacks"
