"""MXINT4 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


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
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/pull/43906",
            "the gate opened for SM12x: testers report a crash",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3294",
            "trtllm-gen kernels are cubins without an SM12x build",
        ),
    )
    risk = "the kernels are cubins for SM10x only; the server crashes when it loads them"
