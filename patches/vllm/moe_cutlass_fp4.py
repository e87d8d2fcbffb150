"""NVFP4 MoE, vLLM's CUTLASS backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MoeCutlassFp4(Gate):
    """vLLM's own CUTLASS NVFP4 MoE, which has code for SM12x: admitted since the backends ask their device (0.15)."""

    id = "vllm.moe-cutlass-fp4"
    engine = "vllm"
    family = "moe"
    title = "NVFP4 MoE, vLLM's CUTLASS backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.15,<0.20",
            "model_executor/layers/fused_moe/cutlass_moe.py",
            "CutlassExpertsFp4._supports_current_device",
        ),
        ConditionSite(
            ">=0.20",
            "model_executor/layers/fused_moe/experts/cutlass_moe.py",
            "CutlassExpertsFp4._supports_current_device",
        ),
    )
    upstream_since = "0.15.0"
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.20.2/vllm/model_executor/layers/fused_moe/experts/cutlass_moe.py",
            "the families that it admits",
        ),
    )
    risk = "there is nothing to open"
