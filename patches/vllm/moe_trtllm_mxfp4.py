"""MXFP4 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Gate, Level
from patcher.sites import ConditionSite
from patches.vllm import _trtllm_gen


class MoeTrtllmMxfp4(Gate):
    """The trtllm-gen MXFP4 MoE: SM10x in every release. Its kernels are cubins for sm_100f and sm_103a; flashinfer-
    cubin holds none for SM12x, and who opened the gate got a crash.
    """

    id = "vllm.moe-trtllm-mxfp4"
    engine = "vllm"
    family = "moe"
    title = "MXFP4 MoE, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.10.2,<0.19",
            "model_executor/layers/quantization/mxfp4.py",
            "get_mxfp4_backend",
            mentions=("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",),
        ),
        ConditionSite(
            ">=0.19",
            "model_executor/layers/fused_moe/experts/trtllm_mxfp4_moe.py",
            "TrtLlmMxfp4ExpertsBase._supports_current_device",
        ),
    )
    evidence = _trtllm_gen.EVIDENCE
    risk = _trtllm_gen.RISK
