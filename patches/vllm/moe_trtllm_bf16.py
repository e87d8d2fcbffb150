"""BF16 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Gate, Level
from patcher.sites import ConditionSite
from patches.vllm import _trtllm_gen


class MoeTrtllmBf16(Gate):
    """The trtllm-gen BF16 MoE: SM10x in every release. Its kernels are cubins for sm_100f and sm_103a; flashinfer-
    cubin holds none for SM12x, and who opened the gate got a crash.
    """

    id = "vllm.moe-trtllm-bf16"
    engine = "vllm"
    family = "moe"
    title = "BF16 MoE, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.20,<0.26",
            "model_executor/layers/fused_moe/experts/trtllm_bf16_moe.py",
            "TrtLlmBf16Experts._supports_current_device",
        ),
        ConditionSite(
            ">=0.26",
            "model_executor/layers/fused_moe/experts/trtllm_bf16_moe.py",
            "TrtLlmBf16ExpertsBase._supports_current_device",
        ),
    )
    evidence = _trtllm_gen.EVIDENCE
    risk = _trtllm_gen.RISK
