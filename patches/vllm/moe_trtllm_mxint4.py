"""MXINT4 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Gate, Level
from patcher.sites import ConditionSite
from patches.vllm import _trtllm_gen


class MoeTrtllmMxint4(Gate):
    """The trtllm-gen MXINT4 MoE: SM10x in every release. Its kernels are cubins for sm_100f and sm_103a;
    flashinfer-cubin holds none for SM12x, and who opened the gate got a crash.
    """

    id = "vllm.moe-trtllm-mxint4"
    engine = "vllm"
    family = "moe"
    title = "MXINT4 MoE, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.16,<0.23",
            "model_executor/layers/quantization/utils/flashinfer_mxint4_moe.py",
            "is_flashinfer_mxint4_moe_available",
        ),
        ConditionSite(
            ">=0.23",
            "model_executor/layers/fused_moe/experts/trtllm_mxint4_moe.py",
            "TrtLlmMxint4ExpertsMonolithic._supports_current_device",
        ),
    )
    evidence = _trtllm_gen.EVIDENCE
    risk = _trtllm_gen.RISK
