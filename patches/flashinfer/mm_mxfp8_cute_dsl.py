"""Mm_mxfp8, CuTe-DSL backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmMxfp8CuteDsl(Gate):
    """The capabilities that mm_mxfp8 takes its CuTe-DSL backend for: SM10x in every release. On SM12x the b12x
    backend (0.6.18) and CUTLASS (0.6.8) do this job.
    """

    id = "flashinfer.mm-mxfp8-cute-dsl"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_mxfp8, CuTe-DSL backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.6",
            "gemm/gemm_base.py",
            "_cute_dsl_gemm_mxfp8_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.18",
            "brought the b12x backend, which lists 120 and 121",
        ),
    )
    risk = (
        "the kernel is written for SM10x (tcgen05); on SM12x use backend b12x (flashinfer-python>=0.6.18) or cutlass "
        "(>=0.6.8)"
    )
