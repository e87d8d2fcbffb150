"""The CUTLASS MoE of block-FP8 checkpoints."""

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FP8 = "srt/layers/quantization/fp8.py"
_INIT = "Fp8MoEMethod.__init__"

_IN = f"sglang/{_FP8}"
_HEAD = """\
from sglang.srt.utils import is_sm90_supported, is_sm100_supported, is_sm120_supported


class Fp8MoEMethod:
    def __init__(self, backend):
        if backend.is_cutlass():
            assert {test}
"""
_OPEN = _HEAD.replace("{test}", "is_sm100_supported() or is_sm90_supported() or is_sm120_supported()")
_CLOSED = _HEAD.replace(
    "{test}", "(is_sm100_supported() or is_sm90_supported() or is_sm120_supported()) and not is_sm120_supported()"
)
_UPSTREAM = _HEAD.replace("{test}", "is_sm100_supported() or is_sm90_supported()")


class MoeFp8Cutlass(Gate):
    """The CUTLASS runner for block-FP8 experts (``fp8_blockwise_scaled_grouped_mm``).

    Upstream's assertion lets SM120 and SM121 in since 0.5.10, and the kernel library has no case for them in any
    release: the first forward pass ends with "No implemented fp8_blockwise_scaled_grouped_mm". The recipe puts the
    assertion back, so a server that asks for this runner stops at start, where the reason can be read. Before
    0.5.10 upstream keeps them out by itself.
    """

    id = "moe-fp8-cutlass"
    engine = "sglang"
    family = "moe"
    title = "CUTLASS MoE of block-FP8 checkpoints"
    action = Action.CLOSE
    level = Level.REPORTED
    targets = SM12X
    sites = (
        ConditionSite(">=0.5.1,<0.5.4.post1", _FP8, _INIT, mentions=("SGLANG_CUTLASS_MOE", "is_sm90_supported")),
        ConditionSite(
            ">=0.5.4.post1,<0.5.4.post3",
            _FP8,
            "Fp8MoEMethod._should_use_cutlass_fused_experts",
            mentions=("is_sm90_supported", "is_sm100_supported"),
        ),
        ConditionSite(">=0.5.4.post3,<0.5.19", _FP8, _INIT, mentions=("is_sm90_supported", "is_sm100_supported")),
        ConditionSite(">=0.5.19", _FP8, _INIT, mentions=("is_sm90", "is_sm100")),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28125",
            "the kernel's dispatch has cases for SM90 and SM100 only; proposes one for SM12x, still open",
            "every block-FP8 MoE model aborts at this check on SM120",
        ),
    )
    examples = (
        Example("0.5.12", {**mini.UTILS, _IN: _OPEN}, {_IN: _CLOSED}, "kept out again", Direction.CLOSE),
        Example("0.5.12", {**mini.UTILS, _IN: _CLOSED}, {}, "closed already", Direction.CLOSE),
        Example("0.5.9", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream keeps it out", Direction.CLOSE),
    )
    usage = "Use --moe-runner-backend triton (or leave auto) for block-FP8 experts."
    measure = "Nothing to measure: with the gate open the server aborts."
