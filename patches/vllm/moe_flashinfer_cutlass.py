"""MoE, FlashInfer CUTLASS backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MoeFlashinferCutlass(Gate):
    """FlashInfer's CUTLASS MoE, which has a build for SM12x: admitted from 0.15.1. Before 0.15 the question is asked
    for NVFP4 alone, and from 0.11.1 on answered for SM12x as well.
    """

    id = "vllm.moe-flashinfer-cutlass"
    engine = "vllm"
    family = "moe"
    title = "MoE, FlashInfer CUTLASS backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.10.2,<0.15",
            "model_executor/layers/quantization/utils/flashinfer_fp4_moe.py",
            "is_flashinfer_fp4_cutlass_moe_available",
        ),
        ConditionSite(
            ">=0.15,<0.21",
            "model_executor/layers/fused_moe/flashinfer_cutlass_moe.py",
            "FlashInferExperts._supports_current_device",
        ),
        ConditionSite(
            ">=0.21",
            "model_executor/layers/fused_moe/experts/flashinfer_cutlass_moe.py",
            "FlashInferExperts._supports_current_device",
        ),
    )
    upstream_since = "0.15.1"
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/pull/33417",
            "admitted SM12x",
        ),
    )
    risk = "upgrade to vllm>=0.15.1"
