"""The automatic choice of a dense FP4 GEMM."""

from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.requirements import ListedCapability
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FP4 = "srt/layers/quantization/fp4_utils.py"
_FUNCTION = "initialize_fp4_gemm_config"

_IN = f"sglang/{_FP4}"
_SOURCE = """\
from sglang.srt.runtime_context import get_platform


def initialize_fp4_gemm_config(backend):
    if backend == "auto":
        if {test}:
            backend = "flashinfer_cutedsl"
        else:
            backend = "flashinfer_cutlass"
    return backend
"""
_BEFORE = _SOURCE.replace("{test}", "get_platform().is_sm100")
_AFTER = _SOURCE.replace("{test}", "get_platform().is_sm100 or get_platform().is_sm120")


class GemmFp4Cutedsl(Gate):
    """``auto`` for dense FP4 layers: the CuTe-DSL GEMM on SM100, CUTLASS on SM120 and SM121.

    Nothing is closed to SM12x here: CUTLASS is a choice of upstream's (cuDNN in 0.5.10 to 0.5.12.post1, because
    CUTLASS gave NaN then). From FlashInfer 0.7.1 on the CuTe-DSL GEMM is listed for SM120 and SM121 too. Published
    numbers are a few percent to either side of CUTLASS, and FlashInfer's own automatic choice leaves it out on these
    GPUs, so this is an experiment and never part of the default set.
    """

    id = "gemm-fp4-cutedsl"
    engine = "sglang"
    family = "gemm"
    title = "CuTe-DSL FP4 GEMM as the automatic choice"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    requires = (
        ListedCapability(
            "flashinfer-python",
            path="flashinfer/gemm/gemm_base.py",
            function="_cute_dsl_gemm_fp4_requirement",
            since=">=0.7.1",
            because="FlashInfer lists the SMs that its CuTe-DSL FP4 GEMM has kernels for",
        ),
    )
    sites = (
        ConditionSite(">=0.5.12,<0.5.19", _FP4, _FUNCTION, mentions=("is_sm100_supported",)),
        ConditionSite(">=0.5.19", _FP4, _FUNCTION, mentions=("is_sm100",)),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/5100",
            "native SM12x kernels behind the CuTe-DSL backend, with a comparison",
            "1,856 x 2,688, in us: 32.3 (CUTLASS 33.8) at M=1, 39.3 (38.5) at M=128, 103.7 (110.5) at M=2,000",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/20047",
            "why the choice on SM120 changed before: NaN from the CUTLASS FP4 GEMM of an older FlashInfer",
        ),
    )
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _IN: _BEFORE}, {_IN: _AFTER}),
        Example("0.5.23", {**mini.PLATFORM, _IN: _AFTER}, {}, "open already"),
    )
    risk = "It may be slower than CUTLASS on your shapes, or refuse them (FlashInfer checks N and K)."
    usage = "Nothing to set; --fp4-gemm-backend still overrides the choice."
    measure = "Compare prefill and decode tokens/s with --fp4-gemm-backend flashinfer_cutlass and flashinfer_cutedsl."
