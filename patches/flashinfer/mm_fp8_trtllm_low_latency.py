"""Mm_fp8 for few tokens, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmFp8TrtllmLowLatency(Gate):
    """The capabilities that the low-latency FP8 GEMM of trtllm-gen is taken for: SM10x in every release. The kernels
    are cubins, and there are none for SM12x.
    """

    id = "flashinfer.mm-fp8-trtllm-low-latency"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_fp8 for few tokens, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.7",
            "gemm/gemm_base.py",
            "_trtllm_low_latency_gemm_fp8_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3294",
            "trtllm-gen kernels are cubins without an SM12x build",
        ),
    )
    risk = "the kernels are cubins for SM10x only"
