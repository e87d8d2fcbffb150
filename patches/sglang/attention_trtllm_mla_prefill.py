"""The trtllm_mla attention backend for prefill, which SM12x must not get."""

from patcher.anchors import Branch
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang._trtllm_gen import NO_CUBINS

_ARGS = "srt/server_args.py"
_OVERRIDES = "srt/arg_groups/overrides.py"
_ANCHOR = Branch(tests=("trtllm_mla",))

_REFUSE = """\
raise ValueError(
    "TRTLLM MLA prefill has no kernel for SM12X (decode has: XQA). Keep it for decode alone: "
    "--decode-attention-backend trtllm_mla --prefill-attention-backend triton, or choose another backend."
)
"""


def _asked(of: str) -> str:
    """The prefill backend in force is trtllm_mla, in the names of a release."""
    return f'({of}.prefill_attention_backend or {of}.attention_backend) == "trtllm_mla"'


def _overrides(guard: str = "") -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def _mla_kv_cache_dtype_checks(view):
{guard}    if (
        view.attention_backend == "trtllm_mla"
        or view.decode_attention_backend == "trtllm_mla"
    ):
        if not get_platform().is_blackwell:
            raise ValueError("TRTLLM MLA needs Blackwell")
    return {{}}
"""


def _args(guard: str = "", test: str = "is_blackwell_supported()") -> str:
    return f"""\
from sglang.srt.utils import is_blackwell_supported, is_sm100_supported, is_sm120_supported


class ServerArgs:
    def _handle_attention_backend_compatibility(self):
{guard}        if (
            self.attention_backend == "trtllm_mla"
            or self.decode_attention_backend == "trtllm_mla"
        ):
            if not {test}:
                raise ValueError("TRTLLM MLA needs Blackwell")
            self.page_size = 64
"""


def _guard(target: str, of: str, indent: str) -> str:
    lines = [
        "# sm-patch: attention-trtllm-mla-prefill",
        f"if {target} and {_asked(of)}:",
        *(f"    {line}" for line in _REFUSE.splitlines()),
    ]
    return "".join(f"{indent}{line}\n" for line in lines)


_OPEN = {**mini.PLATFORM, f"sglang/{_OVERRIDES}": _overrides()}
_SHUT = {**mini.PLATFORM, f"sglang/{_OVERRIDES}": _overrides(_guard("get_platform().is_sm120", "view", "    "))}
_OPEN_ARGS = {**mini.UTILS, f"sglang/{_ARGS}": _args()}
_SHUT_ARGS = {**mini.UTILS, f"sglang/{_ARGS}": _args(_guard("is_sm120_supported()", "self", "        "))}


class AttentionTrtllmMlaPrefill(Gate):
    """``trtllm_mla`` prefill on SM12x: upstream lets it in, and it crashes; decode works and stays open.

    From 0.5.4.post2 the backend is checked for "any Blackwell". Its decode call finds the XQA kernel on SM12x, but
    prefill calls ``trtllm_ragged_attention_deepseek``, whose machine code exists for SM10x only, so the first
    request dies with ``TllmGenFmhaRunner: Unsupported architecture``. The recipe raises at start-up instead, in
    words that say what to use, where the prefill backend in force is ``trtllm_mla`` (set by either flag), and
    leaves ``--decode-attention-backend trtllm_mla`` with another prefill backend alone.

    SM120 and SM121 are both shut out: neither has trtllm-gen machine code. Upstream proposal:
    https://github.com/sgl-project/sglang/pull/28837
    """

    id = "attention-trtllm-mla-prefill"
    engine = "sglang"
    family = "attention"
    title = "trtllm_mla attention backend, prefill (decode stays)"
    action = Action.CLOSE
    level = Level.REPORTED
    targets = SM12X
    sites = (
        GuardSite(">=0.4.10.post1,<0.5.1", _ARGS, "ServerArgs.__post_init__", _ANCHOR, _REFUSE, True, _asked("self")),
        GuardSite(">=0.5.1,<0.5.3", _ARGS, "ServerArgs.__post_init__", _ANCHOR, _REFUSE, True, _asked("self")),
        GuardSite(
            ">=0.5.3,<0.5.15",
            _ARGS,
            "ServerArgs._handle_attention_backend_compatibility",
            _ANCHOR,
            _REFUSE,
            True,
            _asked("self"),
        ),
        GuardSite(">=0.5.15", _OVERRIDES, "_mla_kv_cache_dtype_checks", _ANCHOR, _REFUSE, True, _asked("view")),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/24633",
            "0.5.10 on an RTX PRO 6000: MLA prefill is routed to TllmGenFmhaRunner and fails at once",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28837",
            "the same split, prefill closed and decode kept, proposed upstream",
        ),
        NO_CUBINS,
    )
    risk = "Where it is left open, the server starts and dies at the first request."
    usage = "--decode-attention-backend trtllm_mla --prefill-attention-backend triton (decode through XQA)."
    measure = "Compare decode tokens/s with --attention-backend triton."
    examples = (
        Example("0.5.23", _OPEN, {f"sglang/{_OVERRIDES}": _SHUT[f"sglang/{_OVERRIDES}"]}, direction=Direction.CLOSE),
        Example("0.5.23", _SHUT, {}, "closed already: nothing to do", Direction.CLOSE),
        Example(
            "0.5.8.post1",
            _OPEN_ARGS,
            {f"sglang/{_ARGS}": _SHUT_ARGS[f"sglang/{_ARGS}"]},
            direction=Direction.CLOSE,
        ),
        Example(
            "0.5.3",
            {**mini.UTILS, f"sglang/{_ARGS}": _args(test="is_sm100_supported()")},
            {},
            "upstream admits SM100 only: nothing to do",
            Direction.CLOSE,
        ),
    )
