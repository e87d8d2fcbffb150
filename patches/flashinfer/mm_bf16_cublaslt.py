"""mm_bf16 through cuBLASLt."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.keyed import KeyedSite, Unit

_BASE = """\
import torch

from ..utils import supported_compute_capability


@supported_compute_capability([100, 103])
def _cublaslt_mm_bf16_requirement(a, b):
    return True
"""
_JIT = """\
from ..core import context, gen_jit_spec


def gen_mm_bf16_cublaslt_module():
    nvcc_flags = context.get_nvcc_flags_list(
        supported_major_versions=[10]
    )
    return gen_jit_spec("mm_bf16_cublaslt", extra_cuda_cflags=nvcc_flags)
"""
_BEFORE = {"flashinfer/gemm/gemm_base.py": _BASE, "flashinfer/jit/gemm/core.py": _JIT}
_AFTER = {
    "flashinfer/gemm/gemm_base.py": _BASE.replace("[100, 103]", "[100, 103, 120, 121]"),
    "flashinfer/jit/gemm/core.py": _JIT.replace("[10]", "[10, 12]"),
}
_LATER = {
    "flashinfer/gemm/gemm_base.py": _BASE.replace("[100, 103]", "[80, 90, 100, 103, 110, 120, 121]"),
    "flashinfer/jit/gemm/core.py": _JIT.replace("[10]", "[8, 9, 10, 11, 12]"),
}


class MmBf16Cublaslt(Gate):
    """The cuBLASLt backend of ``mm_bf16``: a list of capabilities, and the majors that its module is built for.

    cuBLASLt does BF16 on every GPU since SM80; 0.6.11, which brought the backend, took it for SM10x only and said
    that the list can be widened later. 0.6.15 did that and nothing else: ``mm_bf16_cublaslt.cu`` and ``.cuh``, the
    requirement's body and the runner are the same from 0.6.11 to 0.6.15. The module holds host code only.
    """

    id = "flashinfer.mm-bf16-cublaslt"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_bf16, cuBLASLt backend"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.11",
            "gemm/gemm_base.py",
            "_cublaslt_mm_bf16_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
        KeyedSite(
            ">=0.6.11",
            "jit/gemm/core.py",
            "gen_mm_bf16_cublaslt_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
    )
    upstream_since = "0.6.15"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.15",
            "the first release that lists SM80 to SM121 here; the kernel and its runner are those of 0.6.14",
        ),
    )
    jit_modules = ("mm_bf16_cublaslt",)
    usage = (
        'flashinfer.mm_bf16(a, b, backend="cublaslt"); backend="auto" then considers it too. The module is built '
        "again on its first use."
    )
    measure = 'Time mm_bf16 on your shapes with backend="cublaslt" and with "cudnn"; compare both with torch.matmul.'
    risk = "On a cuBLAS without BF16 algorithms for SM12x the heuristic finds none and mm_bf16 raises."
    examples = (
        Example("0.6.14", _BEFORE, _AFTER, "the list of capabilities and the list of majors, together"),
        Example("0.6.15", _LATER, {}, "upstream lists them: nothing to do"),
    )
