"""FP8 MoE, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite


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
