"""The decode backend that HiCache falls back to for MLA models."""

from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ARGS = "srt/server_args.py"
_FILE = f"sglang/{_ARGS}"
_DECODE = ("flashinfer", "triton")


def _args(test: str) -> str:
    return f"""\
from sglang.srt.utils import is_sm100_supported, is_sm120_supported


class ServerArgs:
    def _resolve_io_decode_attention_compatibility(self):
        if not self.use_mla_backend():
            self.decode_attention_backend = "triton"
        else:
            self.decode_attention_backend = "flashinfer" if {test} else "triton"
        return False
"""


_CLOSED = _args("is_sm100_supported()")
_OPENED = _args("is_sm100_supported() or is_sm120_supported()")


class AttentionHicacheDecode(Gate):
    """The fallback from fa3 decode to flashinfer (SM100) or triton (all others) for MLA models under HiCache.

    It is reached where the decode backend in force is fa3 and HiCache uses its kernel I/O. SM12x cannot run fa3 at all,
    so a server on SM12x gets here only when fa3 was asked for by hand. With triton it works; with flashinfer it
    may be faster, but garbage was reported from flashinfer MLA on SM120. Hence experimental. The fallback is
    gone in 0.5.14. Proposed, not merged: https://github.com/sgl-project/sglang/pull/18758
    """

    id = "attention-hicache-decode"
    engine = "sglang"
    family = "attention"
    title = "HiCache: flashinfer instead of triton as the decode fallback of MLA models"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    sites = (
        LocatedSite(">=0.5.4.post1,<0.5.10", _ARGS, "ServerArgs._handle_hicache", leads_to=_DECODE),
        LocatedSite(
            ">=0.5.10,<0.5.14", _ARGS, "ServerArgs._resolve_io_decode_attention_compatibility", leads_to=_DECODE
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/pull/18758", "proposes flashinfer here for SM12x; closed"),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/18874",
            "garbage from GLM-4.7-Flash (MLA) with the flashinfer backend on SM120",
        ),
    )
    risk = "MLA models may answer garbage with flashinfer decode on SM12x (sglang #18874)."
    usage = "--enable-hierarchical-cache with an MLA model; --decode-attention-backend triton overrides it."
    measure = "Compare answers first (a fixed prompt at temperature 0), then decode tokens/s, with triton decode."
    examples = (
        Example("0.5.12", {**mini.UTILS, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.12", {**mini.UTILS, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
