"""The MoE runner that the server chooses for gpt-oss."""

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ARGS = "srt/server_args.py"
_ADJUST = "ServerArgs._handle_model_specific_adjustments"
_MENTIONS = ("is_mxfp4_quant_format",)

_IN = f"sglang/{_ARGS}"
_SOURCE = """\
from sglang.srt.utils import is_blackwell_supported, is_sm100_supported, is_sm120_supported


class ServerArgs:
    def _handle_model_specific_adjustments(self, is_mxfp4_quant_format):
        if {test} and is_mxfp4_quant_format:
            self.moe_runner_backend = "flashinfer_mxfp4"
        elif self.moe_runner_backend == "auto":
            self.moe_runner_backend = "triton_kernel"
"""
_OPEN = _SOURCE.replace("{test}", "is_blackwell_supported()")
_CLOSED = _SOURCE.replace("{test}", "(is_blackwell_supported() and not is_sm120_supported())")
_UPSTREAM = _SOURCE.replace("{test}", "is_sm100_supported()")


class Mxfp4GptossMoe(Gate):
    """gpt-oss with MXFP4 experts: the ``flashinfer_mxfp4`` runner of SM100.

    From 0.5.4.post2 to 0.5.9 upstream takes all of Blackwell for SM100 here, and overrides what the user asked for.
    The runner behind it uses TensorRT-LLM kernels that exist for SM100 only. Closed, the server chooses the triton
    kernels as on every other GPU. From 0.5.10 upstream keeps SM120 and SM121 out of this branch and gives them one
    of their own: triton kernels, Marlin from 0.5.14, and from 0.5.17 a flashinfer_mxfp4 on CUTLASS kernels.
    """

    id = "mxfp4-gptoss-moe"
    engine = "sglang"
    family = "mxfp4"
    title = "MoE runner chosen for gpt-oss (SM100's flashinfer_mxfp4)"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.10"
    sites = (
        ConditionSite(">=0.5.1,<0.5.3", _ARGS, "ServerArgs.model_specific_adjustments", mentions=_MENTIONS),
        ConditionSite(">=0.5.3,<0.5.15", _ARGS, _ADJUST, mentions=_MENTIONS),
        ConditionSite(">=0.5.15,<0.5.19", "srt/arg_groups/overrides.py", "_gpt_oss_overrides", mentions=_MENTIONS),
        ConditionSite(
            ">=0.5.19", "srt/arg_groups/model_overrides/gpt_oss.py", "_gpt_oss_overrides", mentions=_MENTIONS
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/pull/28231", "Marlin for gpt-oss on SM120, first in 0.5.14"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32668",
            "flashinfer_mxfp4 on CUTLASS kernels for SM120, first in 0.5.17",
            "2.8 to 30.1 % more tokens/s than Marlin, gpt-oss-20b at concurrency 1 to 256",
        ),
    )
    examples = (
        Example("0.5.9", {**mini.UTILS, _IN: _OPEN}, {_IN: _CLOSED}, "kept out", Direction.CLOSE),
        Example("0.5.9", {**mini.UTILS, _IN: _CLOSED}, {}, "closed already", Direction.CLOSE),
        Example("0.5.12", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream keeps it out", Direction.CLOSE),
    )
    usage = "Nothing to set; the server chooses the triton kernels for gpt-oss."
    measure = "Start gpt-oss-20b: with the gate too open it fails while weights are prepared."
