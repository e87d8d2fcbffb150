"""DeepSeek's router GEMM from FlashInfer."""

from patcher.arch import SM
from patcher.gate import Action, Evidence, Gate, Level
from patcher.requirements import ListedCapability
from patcher.sites import ConditionSite
from patches.sglang import SM12X

_MODEL = "srt/models/deepseek_v2.py"


class GemmDsv3Router(Gate):
    """FlashInfer's router GEMM for 256 experts, used for at most 16 tokens on SM100 and SM103.

    Up to 0.5.14 the test is for exactly those two; all other GPUs from SM90 on use the router GEMM of the kernel
    library beside it, so nothing is lost on SM120 and SM121. FlashInfer lists SM90, SM100 and SM103 for its kernel.
    From 0.5.15 upstream has one kernel, compiled at run time, for all of them.
    """

    id = "gemm-dsv3-router"
    engine = "sglang"
    family = "gemm"
    title = "FlashInfer router GEMM (DeepSeek)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    requires = (
        ListedCapability(
            "flashinfer-python",
            path="flashinfer/gemm/routergemm.py",
            function="_mm_M1_16_K7168_N256_shape_checks",
            since="",
            because="FlashInfer's kernel does not list SM12x",
            link="https://github.com/sgl-project/sglang/pull/21531",
        ),
    )
    sites = (
        ConditionSite(
            ">=0.5.10,<0.5.15", _MODEL, "MoEGate.forward", mentions=("_device_sm", "weight"), outsider=SM(9, 0)
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/pull/23285", "FlashInfer's router GEMM taken in for SM103"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/21531",
            "the router GEMM compiled at run time that replaces it for every GPU",
        ),
    )
    risk = "FlashInfer refuses the call on SM12x; the kernel beside it, which SM12x uses, does the same work."
    usage = "Nothing to do: SM12x uses the router GEMM of the kernel library."
