"""FP8 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite
from patches.vllm import _trtllm_gen


class MoeTrtllmFp8(Gate):
    """The trtllm-gen FP8 MoE: SM10x in every release. Its kernels are cubins for sm_100f and sm_103a; flashinfer-
    cubin holds none for SM12x, and who opened the gate got a crash.
    """

    id = "vllm.moe-trtllm-fp8"
    engine = "vllm"
    family = "moe"
    title = "FP8 MoE, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.12,<0.17",
            "model_executor/layers/quantization/utils/flashinfer_utils.py",
            "get_flashinfer_moe_backend",
            mentions=("latency",),
            refuses=True,
        ),
        ConditionSite(
            ">=0.17,<0.18",
            "model_executor/layers/fused_moe/experts/trtllm_fp8_moe.py",
            "TrtLlmFp8Experts._supports_current_device",
        ),
        ConditionSite(
            ">=0.18",
            "model_executor/layers/fused_moe/experts/trtllm_fp8_moe.py",
            "TrtLlmFp8ExpertsBase._supports_current_device",
        ),
    )
    evidence = _trtllm_gen.EVIDENCE
    risk = _trtllm_gen.RISK
