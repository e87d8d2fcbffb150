"""The server's own decision to turn the all-reduce fusion on for listed models."""

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import _miniature as mini
from patches.sglang.allreduce_fusion import FLASHINFER, TARGETS

_SERVER_ARGS = "srt/server_args.py"
_ENABLE = ("enable_flashinfer_allreduce_fusion",)


def _gpt_oss(test: str, names: str) -> str:
    return f"""\
from sglang.srt.utils import {names}


class ServerArgs:
    def _handle_model_specific_adjustments(self):
        if self.arch == "DeepSeek" and is_sm100_supported():
            self.attention_backend = "trtllm_mla"
            self.enable_flashinfer_allreduce_fusion = True
        elif self.arch == "gpt-oss":
            if {test}:
                if not self.enable_dp_attention:
                    self.enable_flashinfer_allreduce_fusion = True
"""


def _overrides(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform

_FLASHINFER_ALLREDUCE_FUSION_ARCHS = ("gpt-oss",)


def _flashinfer_allreduce_fusion_auto_enable(view):
    if (
        view.backend is None
        and view.arch in _FLASHINFER_ALLREDUCE_FUSION_ARCHS
        and ({test})
        and (view.nnodes == 1 or get_platform().is_sm100)
    ):
        return {{"backend": "auto"}}
    return {{}}
"""


_ARGS = f"sglang/{_SERVER_ARGS}"
_OVERRIDES = "sglang/srt/arg_groups/overrides.py"
_BLACKWELL = _gpt_oss("is_blackwell_supported()", "is_blackwell_supported, is_sm100_supported, is_sm120_supported")
_CLOSED = _gpt_oss(
    "is_blackwell_supported() and not is_sm120_supported()",
    "is_blackwell_supported, is_sm100_supported, is_sm120_supported",
)
_UPSTREAM = _overrides("get_platform().is_sm90 or get_platform().is_sm100")
_WIDENED = _overrides("get_platform().is_sm90 or get_platform().is_sm100 or get_platform().is_sm120")


class AllreduceFusionAuto(Gate):
    """The auto-enable of the FlashInfer all-reduce fusion for listed models.

    Opening it is a choice, never a default: the fusion measured faster at TP2 and slower at TP4 over PCIe. In
    0.5.4.post2 to 0.5.7 upstream admits SM12x here while no FlashInfer of that time has the kernel; the server
    then crashes at CUDA-graph capture, so there the recipe closes it unless the requirement holds.

    Up to 0.5.6.post2 the DeepSeek branch sets the fusion together with an attention backend that SM12x must not
    get, so only the branch that decides the fusion alone (gpt-oss) is a site.
    """

    id = "allreduce-fusion-auto"
    engine = "sglang"
    family = "allreduce-fusion"
    title = "auto-enable of the all-reduce fusion for listed models"
    action = Action.OPEN
    level = Level.REPORTED
    targets = TARGETS
    opt_in = "TP4 over PCIe regressed in public measurements; measure before you let the server decide"
    closes_when_unmet = True
    requires = FLASHINFER
    sites = (
        ConditionSite(">=0.5.1,<0.5.3", _SERVER_ARGS, "ServerArgs.model_specific_adjustments", decides=_ENABLE),
        ConditionSite(">=0.5.3,<0.5.7", _SERVER_ARGS, "ServerArgs._handle_model_specific_adjustments", decides=_ENABLE),
        ConditionSite(
            ">=0.5.7,<0.5.15",
            _SERVER_ARGS,
            "ServerArgs._handle_model_specific_adjustments",
            mentions=("Qwen3MoeForCausalLM", "nnodes", "moe_a2a_backend"),
        ),
        ConditionSite(
            ">=0.5.15",
            "srt/arg_groups/overrides.py",
            "_flashinfer_allreduce_fusion_auto_enable",
            mentions=("_FLASHINFER_ALLREDUCE_FUSION_ARCHS", "nnodes"),
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/15650",
            "auto-enabled on SM120 with FlashInfer 0.5.3: a crash at CUDA-graph capture",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/16283", "closed to SM90 and SM100 again, first in 0.5.8"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32330",
            "why it should stay a choice",
            "TP2: +5.2 % median decode; TP4 over PCIe: a substantial regression",
        ),
    )
    risk = "The server turns the fusion on by itself, and crashes or answers garbage where FlashInfer lacks the kernel."
    usage = "Nothing to set; --flashinfer-allreduce-fusion-backend or its predecessor still overrides the decision."
    measure = "Compare against a launch with the fusion disabled, at your own tensor parallelism."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _OVERRIDES: _UPSTREAM}, {_OVERRIDES: _WIDENED}),
        Example("0.5.23", {**mini.PLATFORM, _OVERRIDES: _WIDENED}, {}, "open already: nothing to do"),
        Example(
            "0.5.5",
            {**mini.UTILS, _ARGS: _BLACKWELL},
            {_ARGS: _CLOSED},
            "too open upstream: closed",
            Direction.CLOSE,
        ),
        Example("0.5.5", {**mini.UTILS, _ARGS: _CLOSED}, {}, "closed already: nothing to do", Direction.CLOSE),
    )
