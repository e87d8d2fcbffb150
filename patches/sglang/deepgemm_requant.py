"""Which weights are requantized for DeepGEMM."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import _miniature as mini

_UTILS = "srt/model_loader/utils.py"
_FUNCTION = "should_deepgemm_weight_requant_ue8m0"

_IN = f"sglang/{_UTILS}"
_SOURCE = """\
from sglang.srt.utils import get_device_sm, is_cuda


def should_deepgemm_weight_requant_ue8m0(weight_block_size, grouped_moe=False):
    if {test} and not grouped_moe:
        return False
    return weight_block_size is not None
"""
_BEFORE = _SOURCE.replace("{test}", "get_device_sm() == 120")
_AFTER = _SOURCE.replace("{test}", "(get_device_sm() == 120 or (is_cuda() and get_device_sm() == 121))")
_BOTH = _SOURCE.replace("{test}", "get_device_sm() in (120, 121)")


class DeepgemmRequant(Gate):
    """Dense block-FP8 weights stay as they are on SM120, whose dense GEMMs do not go through DeepGEMM.

    SM121 is left out: the test is for exactly 120 from 0.5.20 to 0.5.23, while the rest treats both alike from
    0.5.21 on. On SM121 dense weights get UE8M0 scales and are then read by a GEMM that expects 32-bit floats. That
    is read from the source; no public report confirms it, so the gate is experimental. SM120 has it already:
    the recipe is for SM121 alone.
    """

    id = "deepgemm-requant"
    engine = "sglang"
    family = "deepgemm"
    title = "dense FP8 weights spared from requantization (SM121)"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = frozenset({SM121})
    needs_release = ">=0.5.21"
    needs_because = "it has no DeepGEMM for SM121 (see deepgemm-enable)"
    sites = (ConditionSite(">=0.5.20", _UTILS, _FUNCTION, mentions=("get_device_sm",), witness=SM120),)
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/34827",
            "which GEMMs go through DeepGEMM on SM120, and with which scales",
        ),
    )
    examples = (
        Example("0.5.23", {**mini.UTILS, _IN: _BEFORE}, {_IN: _AFTER}, "SM121 beside SM120"),
        Example("0.5.23", {**mini.UTILS, _IN: _BOTH}, {}, "both already"),
    )
    risk = "Inferred from the source, not measured: check answers before and after."
    usage = "Nothing to set; it matters for block-FP8 checkpoints on SM121 with deep_gemm installed."
    measure = "Compare answers (a GSM8K sample) of a block-FP8 model with and without it."
