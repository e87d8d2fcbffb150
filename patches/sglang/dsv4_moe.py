"""DeepSeek-V4's MXFP4 experts."""

from patcher.arch import SM
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FP8 = "srt/layers/quantization/fp8.py"
_METHOD = "Fp8Config.get_quant_method"
_SM90 = SM(9, 0)

_IN = f"sglang/{_FP8}"
_SOURCE = """\
import torch

from sglang.srt.utils import is_cuda, is_sm90_supported, is_sm120_supported


class Fp8Config:
    def get_quant_method(self):
        if {test}:
            return "cutlass"
        return "trtllm"
"""
_UPSTREAM = _SOURCE.replace("{test}", "is_sm90_supported() or is_sm120_supported()")
_ONE = "is_sm90_supported() or (is_sm120_supported() and torch.cuda.get_device_capability() == (12, 0))"
_EXACT = _SOURCE.replace("{test}", _ONE)
_WIDENED = _SOURCE.replace("{test}", f"{_ONE} or (is_cuda() and torch.cuda.get_device_capability() == (12, 1))")


class Dsv4Moe(Gate):
    """DeepSeek-V4's MXFP4 experts on FlashInfer's CUTLASS kernels instead of TensorRT-LLM's.

    With ``flashinfer_mxfp4`` the quantization config picks the CUTLASS method on SM90 and the TensorRT-LLM one
    elsewhere. The CUTLASS method learns SM120 and SM121 in 0.5.16 (it prepares the scales differently there), so
    opening the test alone in an older release runs code that is for SM90.
    """

    id = "dsv4-moe"
    engine = "sglang"
    family = "mxfp4"
    title = "MXFP4 experts of DeepSeek-V4 on CUTLASS"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.16"
    needs_because = "only from there on does its CUTLASS MXFP4 method know SM12x"
    upstream_since = "0.5.16"
    sites = (
        ConditionSite(">=0.5.12,<0.5.16", _FP8, _METHOD, mentions=("is_sm90_supported",), witness=_SM90),
        ConditionSite(
            ">=0.5.16,<0.5.19", _FP8, _METHOD, mentions=("is_sm90_supported", "is_sm120_supported"), witness=_SM90
        ),
        ConditionSite(">=0.5.19", _FP8, _METHOD, mentions=("is_sm90", "is_sm120"), witness=_SM90),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/30272",
            "the SM120 method for DeepSeek-V4, first in 0.5.16",
            "serves at TP2 where every earlier path failed",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/24692",
            "DeepSeek-V4 on SM120 before that: no FlashInfer MoE call worked with FlashInfer 0.6.11",
        ),
    )
    examples = (
        Example("0.5.18", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream has it"),
        Example("0.5.18", {**mini.UTILS, _IN: _EXACT}, {_IN: _WIDENED}, "were it for SM120 only, SM121 is added"),
    )
    risk = "The CUTLASS method of the release prepares scales for SM90: no valid tactics, or wrong answers."
    usage = "From 0.5.16 on nothing to set; before, use --moe-runner-backend marlin or triton."
    measure = "Check answers first (a GSM8K sample), then tokens/s against --moe-runner-backend marlin."
