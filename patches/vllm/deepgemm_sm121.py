"""DeepGEMM on SM121."""

from patcher.arch import SM121
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.vllm import _miniature as mini

_SUPPORT = """
    @classmethod
    def support_deep_gemm(cls) -> bool:
        return (
            cls.is_device_capability(90)
            or cls.is_device_capability_family(100)
            or cls.is_device_capability_family(120)
        )
"""
_CLOSED = """
    @classmethod
    def support_deep_gemm(cls) -> bool:
        return (
            (cls.is_device_capability(90)
            or cls.is_device_capability_family(100)
            or cls.is_device_capability_family(120)) and not cls.is_device_capability(121)
        )
"""
_EXACT = """
    @classmethod
    def support_deep_gemm(cls) -> bool:
        return cls.is_device_capability(90) or cls.is_device_capability_family(100)
"""


class DeepgemmSm121(Gate):
    """DeepGEMM, which vLLM takes for the whole family 12.x from 0.24: on SM121 its FP8 GEMM dies of a CUDA fault.

    Closed for SM121 alone, vLLM uses the kernels that it used there before. SM120 is left as upstream has it. Code
    that calls DeepGEMM without asking (DeepSeek-V4's mHC pre-norm, vllm#52732) is not reached by this gate.
    """

    id = "vllm.deepgemm-sm121"
    engine = "vllm"
    family = "deepgemm"
    title = "DeepGEMM on SM121 (DGX Spark), where it faults"
    action = Action.CLOSE
    level = Level.REPORTED
    targets = frozenset({SM121})
    sites = (
        ConditionSite(">=0.10.2,<0.19", "utils/deep_gemm.py", "is_deep_gemm_supported", mentions=("is_cuda",)),
        ConditionSite(">=0.19", "platforms/cuda.py", "CudaPlatformBase.support_deep_gemm"),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/issues/54125",
            "support_deep_gemm() admits GB10 by its family, and the block-wise FP8 GEMM then dies of a CUDA fault",
        ),
        Evidence(
            "https://github.com/timothystewart6/vllm-gb10/issues/27",
            "DeepGEMM on GB10: invalid kernel image; works with VLLM_USE_DEEP_GEMM=0",
        ),
    )
    usage = "Nothing to set. Without the recipe VLLM_USE_DEEP_GEMM=0 does the same for the whole server."
    measure = "Start an FP8 block-quantised model on a DGX Spark: the warm-up ends in a CUDA fault without the recipe."
    examples = (
        Example(
            "0.33.0",
            {**mini.PLATFORMS, mini.CUDA: mini.cuda(_SUPPORT)},
            {mini.CUDA: mini.cuda(_CLOSED)},
            "the family without 12.1",
            direction=Direction.CLOSE,
        ),
        Example(
            "0.22.0",
            {**mini.PLATFORMS, mini.CUDA: mini.cuda(_EXACT)},
            {},
            "not admitted: nothing to do",
            direction=Direction.CLOSE,
        ),
    )
