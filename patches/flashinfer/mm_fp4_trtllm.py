"""Mm_fp4, trtllm backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmFp4Trtllm(Gate):
    """The capabilities that mm_fp4 takes its trtllm backend for: SM10x in every release. The kernels are cubins, and
    there are none for SM12x; cutlass, cudnn and b12x do the job there.
    """

    id = "flashinfer.mm-fp4-trtllm"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_fp4, trtllm backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.5,<0.5.3",
            "gemm.py",
            "_trtllm_gemm_fp4_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
        KeyedSite(
            ">=0.5.3",
            "gemm/gemm_base.py",
            "_trtllm_gemm_fp4_requirement",
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
    risk = "the kernels are cubins for SM10x only; use backend cutlass, cudnn, or b12x (flashinfer-python>=0.6.9)"
