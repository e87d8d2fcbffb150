"""MXFP4 experts on FlashInfer."""

from patcher.arch import SM120
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_MXFP4 = "srt/layers/quantization/mxfp4.py"
_INIT, _CREATE = "Mxfp4MoEMethod.__init__", "Mxfp4MoEMethod.create_weights"

_IN = f"sglang/{_MXFP4}"
_SOURCE = """\
from sglang.srt.utils import get_device_sm, is_cuda, is_sm120_supported


class Mxfp4MoEMethod:
    def __init__(self):
        if {test}:
            self.kind = "cutlass"
"""
_UPSTREAM = _SOURCE.replace("{test}", "is_sm120_supported()")
_EXACT = _SOURCE.replace("{test}", "is_sm120_supported() and get_device_sm() == 120")
_WIDENED = _SOURCE.replace(
    "{test}", "is_sm120_supported() and (get_device_sm() == 120 or (is_cuda() and get_device_sm() == 121))"
)


class Mxfp4Method(Gate):
    """``Mxfp4MoEMethod`` with ``--moe-runner-backend flashinfer_mxfp4``.

    Up to 0.5.16 its FlashInfer path prepares weights for the TensorRT-LLM kernels of SM100. The CUTLASS path for
    SM120 and SM121 is code of its own, which came with 0.5.17: there is nothing to open before it.
    """

    id = "mxfp4-method"
    engine = "sglang"
    family = "mxfp4"
    title = "MXFP4 experts on FlashInfer (gpt-oss)"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.17"
    needs_because = "only from there on has it the CUTLASS path for SM12x"
    upstream_since = "0.5.17"
    sites = (
        ConditionSite(">=0.5.1,<0.5.10", _MXFP4, _CREATE, mentions=("_is_sm100_supported",)),
        ConditionSite(">=0.5.10,<0.5.17", _MXFP4, _CREATE, mentions=("is_sm100_supported",)),
        ConditionSite(">=0.5.17,<0.5.19", _MXFP4, _INIT, mentions=("is_sm120_supported",), witness=SM120),
        ConditionSite(">=0.5.19", _MXFP4, _INIT, mentions=("is_sm120",), witness=SM120),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32668",
            "the CUTLASS path for SM120, first in 0.5.17",
            "2.8 to 30.1 % more tokens/s than Marlin, gpt-oss-20b at concurrency 1 to 256",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/2847",
            "what it took in FlashInfer to let SM120 use its CUTLASS MXFP4 kernels",
        ),
    )
    examples = (
        Example("0.5.18", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream has it"),
        Example("0.5.18", {**mini.UTILS, _IN: _EXACT}, {_IN: _WIDENED}, "were it for SM120 only, SM121 is added"),
    )
    risk = "The release prepares the weights for kernels that exist for SM100 only: it crashes or answers garbage."
    usage = "From 0.5.17 on nothing to set; before, use --moe-runner-backend triton_kernel or marlin."
    measure = "Compare gpt-oss tokens/s with --moe-runner-backend marlin."
