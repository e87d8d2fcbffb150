"""The default attention backend of OLMo 2 and 3, and of EXAONE 4."""

from patcher.arch import SM
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ARGS = "srt/server_args.py"
_OVERRIDES = "srt/arg_groups/overrides.py"
_OLMO = "srt/arg_groups/model_overrides/olmo2.py"
_EXAONE = "srt/arg_groups/model_overrides/exaone.py"
_AMPERE, _TURING = SM(8, 0), SM(7, 5)
_FILE = f"sglang/{_OLMO}"


def _site(versions: str, path: str, within: str) -> LocatedSite:
    return LocatedSite(versions, path, within, leads_to=("fa3",), witness=_AMPERE, outsider=_TURING)


def _olmo(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import get_device_sm


def _olmo2_overrides(cfg):
    overrides = {{}}
    if cfg.attention_backend is None:
        if get_platform().is_cuda and get_platform().is_sm100:
            overrides["attention_backend"] = "trtllm_mha"
        elif get_platform().is_cuda and {test}:
            overrides["attention_backend"] = "fa3"
        else:
            overrides["attention_backend"] = "triton"
    return overrides
"""


_OPEN = _olmo("get_device_sm() >= 80")
_SHUT = _olmo("(get_device_sm() >= 80 and not get_platform().is_sm120)")


class AttentionFa3Default(Gate):
    """The default that gives these models FlashAttention 3 on every GPU from SM80 on that is no SM100.

    SM12x is among them, and the backend itself admits SM8x and SM90 alone (see attention-fa3): the server stops with
    "requires SM>=80 and SM<=90" unless a backend is named. With the recipe SM12x gets triton, as GPUs do that are
    too old. It follows from the two conditions; nobody is reported to have met it, hence experimental.
    """

    id = "attention-fa3-default"
    engine = "sglang"
    family = "attention"
    title = "FlashAttention 3 as the default of OLMo 2, OLMo 3 and EXAONE 4"
    action = Action.CLOSE
    level = Level.EXPERIMENTAL
    targets = SM12X
    sites = (
        _site(">=0.5.4,<0.5.15", _ARGS, "ServerArgs._handle_model_specific_adjustments"),
        _site(">=0.5.15,<0.5.19", _OVERRIDES, "_olmo2_overrides"),
        _site(">=0.5.19", _OLMO, "_olmo2_overrides"),
        _site(">=0.5.22", _EXAONE, "_exaone_overrides"),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang-omni/issues/160",
            "FlashAttention 3 on an RTX 5090: there is no machine code for it",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/arg_groups/model_overrides/olmo2.py",
            "the default, for SM80 and everything above it",
        ),
    )
    risk = "Where it is left open, the server stops at start-up unless --attention-backend is given."
    usage = "Nothing to set; --attention-backend flashinfer is another one that works."
    measure = "Start an OLMo 3 model without --attention-backend: without the recipe it stops."
    examples = (
        Example("0.5.21", {**mini.PLATFORM, _FILE: _OPEN}, {_FILE: _SHUT}, direction=Direction.CLOSE),
        Example("0.5.21", {**mini.PLATFORM, _FILE: _SHUT}, {}, "closed already", Direction.CLOSE),
    )
