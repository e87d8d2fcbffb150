"""Mm_mxfp8, CUTLASS backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmMxfp8Cutlass(Gate):
    """The capabilities that mm_mxfp8 takes its CUTLASS backend for. 0.6.8 listed 120 and 121 together with a kernel
    of their own; the code before it has SM10x tiles only.
    """

    id = "flashinfer.mm-mxfp8-cutlass"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_mxfp8, CUTLASS backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.4",
            "gemm/gemm_base.py",
            "_cutlass_gemm_mxfp8_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    upstream_since = "0.6.8"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.8",
            "the first release that lists 120 and 121; the requirement's body and the kernels changed with the list",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.6.8: the SM12x kernel came with that release, not only the list"
