"""Mm_fp4, CuTe-DSL backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmFp4CuteDsl(Gate):
    """The capabilities that mm_fp4 takes its CuTe-DSL backend for. 0.7.1 listed 120 and 121 together with a kernel
    for them; before it, use cutlass, cudnn or (from 0.6.9) b12x.
    """

    id = "flashinfer.mm-fp4-cute-dsl"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_fp4, CuTe-DSL backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.5",
            "gemm/gemm_base.py",
            "_cute_dsl_gemm_fp4_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    upstream_since = "0.7.1"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.7.1",
            "the first release that lists 120 and 121",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.7.1: the kernel for SM12x came with that release"
