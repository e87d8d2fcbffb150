"""The CuTe-DSL GEMM for BF16 linear layers."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.requirements import ListedCapability
from patcher.sites import ConditionSite
from patches.sglang import SM12X

_UNQUANT = "srt/layers/quantization/unquant.py"
_FUNCTION = "initialize_bf16_gemm_config"


class GemmBf16Cutedsl(Gate):
    """``--bf16-gemm-backend cutedsl``: a BF16 GEMM written for the tensor memory of SM100.

    It is built on tcgen05 instructions, which SM120 and SM121 do not have, and FlashInfer lists SM100 and SM103
    for it. The ``gemv`` choice beside it, which upstream opened to SM12x in 0.5.23, is another kernel.
    """

    id = "gemm-bf16-cutedsl"
    engine = "sglang"
    family = "gemm"
    title = "CuTe-DSL BF16 GEMM"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    requires = (
        ListedCapability(
            "flashinfer-python",
            path="flashinfer/gemm/gemm_base.py",
            function="_cute_dsl_mm_bf16_requirement",
            since="",
            because="the kernel uses tcgen05 instructions, which SM12x lacks",
            link="https://github.com/NVIDIA/cutlass/issues/3096",
        ),
    )
    sites = (
        ConditionSite(">=0.5.15,<0.5.19", _UNQUANT, _FUNCTION, mentions=("is_sm100_supported",), refuses=True),
        ConditionSite(">=0.5.19", _UNQUANT, _FUNCTION, mentions=("is_sm100",), refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/NVIDIA/cutlass/issues/3096",
            "CuTe-DSL admits tcgen05 code for SM100 only; what it took to get past that on SM120, and what came out",
        ),
    )
    risk = "The kernel needs tcgen05 and tensor memory, which SM12x has not: it fails to compile at start."
    usage = "Leave --bf16-gemm-backend at its default."
