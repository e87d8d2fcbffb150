"""The server's default attention backend for MHA models, which must not be trtllm_mha on SM12x."""

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang._trtllm_gen import NO_CUBINS

_ARGS = "srt/server_args.py"
_DEFAULT = ("trtllm_mha",)


def _args(test: str) -> str:
    return f"""\
from sglang.srt.utils import is_blackwell_supported, is_flashinfer_available, is_sm100_supported, is_sm120_supported


class ServerArgs:
    def _handle_attention_backend_compatibility(self):
        if self.attention_backend is None:
            if {test} and self.topk_one():
                self.attention_backend = "trtllm_mha"
            elif is_sm100_supported():
                self.attention_backend = "flashinfer"
"""


_OPEN = _args("is_blackwell_supported()")
_SHUT = _args("(is_blackwell_supported() and not is_sm120_supported())")
_FILE = f"sglang/{_ARGS}"


class AttentionTrtllmMhaDefault(Gate):
    """The default that picks ``trtllm_mha`` for models with plain (multi-head) attention.

    0.5.6.post1 and 0.5.6.post2 ask for any Blackwell GPU here, so a server on SM12x that names no attention backend
    gets one that its own check, lines below, refuses: it does not start. 0.5.7 asks for SM100 again and SM12x falls
    through to flashinfer; that is what the recipe does. Later releases keep it so even where the backend works
    on SM12x (0.5.19), because its decode kernel measured slower there than flashinfer's.

    Upstream: https://github.com/sgl-project/sglang/pull/14842
    """

    id = "attention-trtllm-mha-default"
    engine = "sglang"
    family = "attention"
    title = "default attention backend of MHA models: not trtllm_mha"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.7"
    sites = (
        LocatedSite(
            ">=0.5.6.post1,<0.5.10",
            _ARGS,
            "ServerArgs._handle_attention_backend_compatibility",
            decides=("attention_backend",),
            leads_to=_DEFAULT,
        ),
        LocatedSite(
            ">=0.5.10,<0.5.19",
            _ARGS,
            "ServerArgs._get_default_attn_backend",
            leads_to=_DEFAULT,
        ),
        LocatedSite(
            ">=0.5.19",
            "srt/arg_groups/model_override_base.py",
            "get_default_attn_backend",
            leads_to=_DEFAULT,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/14814",
            "a default start on SM120 fails in 0.5.6.post1: the server picks a backend that it then refuses",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/14842", "asks for SM100 again, first in 0.5.7"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/17115",
            "why flashinfer stays the default on SM12x",
            "SM120: 1315.7 tok/s with XQA decode, 1369.4 with the flashinfer backend",
        ),
        NO_CUBINS,
    )
    risk = "Where it is left open, a server on SM12x that names no attention backend does not start."
    usage = "Nothing to set; --attention-backend still overrides the default."
    measure = "Nothing to measure: the server starts, or it does not."
    examples = (
        Example("0.5.6.post2", {**mini.UTILS, _FILE: _OPEN}, {_FILE: _SHUT}, direction=Direction.CLOSE),
        Example("0.5.6.post2", {**mini.UTILS, _FILE: _SHUT}, {}, "closed already: nothing to do", Direction.CLOSE),
        Example(
            "0.5.8",
            {**mini.UTILS, _FILE: _args("is_sm100_supported()")},
            {},
            "upstream keeps it out: nothing to do",
            Direction.CLOSE,
        ),
    )
