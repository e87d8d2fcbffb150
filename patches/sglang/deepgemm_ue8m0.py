"""Scales in UE8M0 for DeepGEMM."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_OLD = "srt/layers/quantization/deep_gemm_wrapper/configurer.py"
_NEW = "srt/layers/deep_gemm_wrapper/configurer.py"
_ENABLE = "ENABLE_JIT_DEEPGEMM"

_IN = f"sglang/{_NEW}"
_SOURCE = """\
import os

from sglang.srt.utils import get_device_sm, is_blackwell_supported, is_sm120_supported

ENABLE_JIT_DEEPGEMM = os.environ.get("DEEPGEMM") == "1"
DEEPGEMM_BLACKWELL = {test}
"""
_TOO_OPEN = _SOURCE.replace("{test}", "ENABLE_JIT_DEEPGEMM and is_blackwell_supported()")
_CLOSED = _SOURCE.replace("{test}", "ENABLE_JIT_DEEPGEMM and (is_blackwell_supported() and not is_sm120_supported())")
_UPSTREAM = _SOURCE.replace(
    "DEEPGEMM_BLACKWELL = {test}",
    "DEEPGEMM_SCALE_UE8M0 = ENABLE_JIT_DEEPGEMM and (is_blackwell_supported() or get_device_sm() in (120, 121))",
)


class DeepgemmUe8m0(Gate):
    """``DEEPGEMM_SCALE_UE8M0``: weights requantized to the scale layout of DeepGEMM's Blackwell kernels.

    It follows ``deepgemm-enable``. From 0.5.4.post2 to 0.5.12.post1 upstream sets it on SM120 and SM121 too, where
    no DeepGEMM of the time has kernels, so there it is closed. SM120 uses the layout from 0.5.20, SM121 from
    0.5.21, together with the code that reads it.
    """

    id = "deepgemm-ue8m0"
    engine = "sglang"
    family = "deepgemm"
    title = "UE8M0 scales for DeepGEMM"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    closes_when_unmet = True
    needs_release = {SM120: ">=0.5.20", SM121: ">=0.5.21"}
    needs_because = "its DeepGEMM paths have no code for this SM"
    upstream_since = {SM120: "0.5.20", SM121: "0.5.21"}
    sites = (
        ConditionSite(">=0.5.3,<0.5.4", _OLD, "", mentions=(_ENABLE,), assuming=_ENABLE),
        ConditionSite(">=0.5.4,<0.5.20", _NEW, "", mentions=(_ENABLE,), assuming=_ENABLE),
        ConditionSite(">=0.5.20", _NEW, "", mentions=(_ENABLE, "get_device_sm"), assuming=_ENABLE),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/39482",
            "SM121 without these scales: an assertion in DeepGEMM; merged for 0.5.21",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/34827",
            "SM120 uses the packed UE8M0 layout of SM100 once DeepGEMM has kernels for it",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/25877", "what DeepGEMM does on SM120 without them"),
    )
    examples = (
        Example("0.5.12", {**mini.UTILS, _IN: _TOO_OPEN}, {_IN: _CLOSED}, "too open: closed", Direction.CLOSE),
        Example("0.5.12", {**mini.UTILS, _IN: _CLOSED}, {}, "closed already", Direction.CLOSE),
        Example("0.5.21", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream has it for both"),
    )
    risk = "Weights are requantized for a GEMM that this release cannot run on SM12x: wrong results or a crash."
    usage = "Nothing to set."
    measure = "Nothing to measure by itself; see deepgemm-enable."
