"""The default attention backend of gpt-oss."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ARGS = "srt/server_args.py"
_GPT_OSS = ("GptOssForCausalLM",)
_LEADS = ("attention_backend", "trtllm_mha")
_FILE = "sglang/srt/arg_groups/model_overrides/gpt_oss.py"


def _overrides(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def _gpt_oss_overrides(cfg, overrides):
    if {test}:
        overrides["attention_backend"] = "trtllm_mha"
    elif get_platform().is_sm90:
        overrides["attention_backend"] = "fa3"
    else:
        overrides["attention_backend"] = "triton"
    if get_platform().is_sm100 and cfg.mxfp4:
        overrides["moe_runner_backend"] = "flashinfer_mxfp4"
    return overrides
"""


_CLOSED = _overrides("get_platform().is_sm100")
_OPENED = _overrides("get_platform().is_sm100 or get_platform().is_sm120")


class AttentionGptOssDefault(Gate):
    """The default attention backend of gpt-oss: trtllm_mha on SM100, fa3 on SM90, triton elsewhere.

    On SM12x trtllm_mha has both of its halves from 0.5.19 (fmha_v2 prefill, XQA decode), and XQA knows attention
    sinks from flashinfer 0.6.16.post1. Upstream leaves SM12x on triton, which works; nobody has published a
    comparison, so this is experimental and never done by itself.
    """

    id = "attention-gpt-oss-default"
    engine = "sglang"
    family = "attention"
    title = "gpt-oss: trtllm_mha instead of triton as the default attention backend"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    needs_release = ">=0.5.19"
    needs_because = "before it, trtllm_mha prefill has no kernel for SM12x"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.16.post1",
            because="its XQA kernel takes attention sinks, which gpt-oss has, from that release on",
            link="https://github.com/flashinfer-ai/flashinfer/pull/4137",
        ),
    )
    sites = (
        LocatedSite(">=0.5.1,<0.5.3", _ARGS, "ServerArgs.model_specific_adjustments", under=_GPT_OSS, leads_to=_LEADS),
        LocatedSite(
            ">=0.5.3,<0.5.15", _ARGS, "ServerArgs._handle_model_specific_adjustments", under=_GPT_OSS, leads_to=_LEADS
        ),
        LocatedSite(">=0.5.15,<0.5.19", "srt/arg_groups/overrides.py", "_gpt_oss_overrides", leads_to=("trtllm_mha",)),
        LocatedSite(
            ">=0.5.19",
            "srt/arg_groups/model_overrides/gpt_oss.py",
            "_gpt_oss_overrides",
            leads_to=("trtllm_mha",),
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/issues/9140", "asked for on an RTX 5090"),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3170",
            "the maintainers on XQA for SM12x: sinks and speculative decoding since flashinfer #4137",
        ),
    )
    risk = "Attention with sinks through XQA and fmha_v2 on SM12x is not reported for gpt-oss by anyone: check answers."
    usage = "Nothing to set; --attention-backend triton goes back."
    measure = "Compare answers first (temperature 0), then time to first token and decode tokens/s, with triton."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.23", {**mini.PLATFORM, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
