"""The cutlass_mla attention backend, which has no kernel for SM12x and no check either."""

from patcher.anchors import Mentions
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ARGS = "srt/server_args.py"
_OVERRIDES = "srt/arg_groups/overrides.py"
_ANCHOR = Mentions(("logger", "warning"), inside=("cutlass_mla",))
_REFUSE = """\
raise ValueError("The cutlass_mla backend has no kernel for SM12X; use --attention-backend triton.")
"""


def _overrides(guard: str = "") -> str:
    return f"""\
import logging

from sglang.srt.utils import is_sm100_supported, is_sm120_supported

logger = logging.getLogger(__name__)


def _mla_backend_page_constraints(view):
    page_size = view.page_size
    if (
        view.attention_backend == "cutlass_mla"
        or view.decode_attention_backend == "cutlass_mla"
    ):
{guard}        logger.warning("Cutlass MLA only supports a page_size of 128")
        page_size = 128
    return {{"page_size": page_size}}
"""


_GUARD = f"""\
        # sm-patch: attention-cutlass-mla
        if is_sm120_supported():
            {_REFUSE}"""
_FILE = f"sglang/{_OVERRIDES}"


class AttentionCutlassMla(Gate):
    """``--attention-backend cutlass_mla``: SGLang asks for no SM at all, and there is no kernel for SM12x.

    The backend is an operator of the kernel library built for SM100's tcgen05; FlashInfer's relative of it is
    built for majors 10 and 11. So there is no gate to open. On SM12x the server starts and dies in the operator;
    the recipe makes it refuse at start-up. Nobody is reported to have met it, hence experimental. The backend is
    gone in 0.5.20.
    """

    id = "attention-cutlass-mla"
    engine = "sglang"
    family = "attention"
    title = "cutlass_mla attention backend: no SM12x kernel, no check"
    action = Action.CLOSE
    level = Level.EXPERIMENTAL
    targets = SM12X
    sites = (
        GuardSite(">=0.4.6.post1,<0.5.3", _ARGS, "ServerArgs.__post_init__", _ANCHOR, _REFUSE, True),
        GuardSite(
            ">=0.5.3,<0.5.15",
            _ARGS,
            "ServerArgs._handle_attention_backend_compatibility",
            _ANCHOR,
            _REFUSE,
            True,
        ),
        GuardSite(">=0.5.15,<0.5.20", _OVERRIDES, "_mla_backend_page_constraints", _ANCHOR, _REFUSE, True),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28837",
            "what SM12x can use for MLA instead: triton, or trtllm_mla for decode alone",
        ),
    )
    risk = "Where it is left open, the server starts and dies in an operator that has no code for SM12x."
    usage = "Use --attention-backend triton for MLA models."
    measure = "Nothing to measure."
    examples = (
        Example(
            "0.5.18",
            {**mini.UTILS, _FILE: _overrides()},
            {_FILE: _overrides(_GUARD)},
            direction=Direction.CLOSE,
        ),
        Example("0.5.18", {**mini.UTILS, _FILE: _overrides(_GUARD)}, {}, "closed already", Direction.CLOSE),
    )
