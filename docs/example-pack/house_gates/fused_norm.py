"""A kernel that a house added to its own build of SGLang."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite

_PATH = "srt/layers/house_norm.py"

# Miniatures: hand-written files in the shape of the engine's, before and after.
_PREDICATES = {
    "sglang/srt/utils.py": """\
import torch


def is_sm100_supported():
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 10


def is_sm120_supported():
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 12
""",
}
_BEFORE = """\
from sglang.srt.utils import is_sm100_supported


def house_norm(x, fused):
    if fused and is_sm100_supported():
        return "fused"
    return "plain"
"""
_AFTER = """\
from sglang.srt.utils import is_sm100_supported, is_sm120_supported


def house_norm(x, fused):
    if fused and (is_sm100_supported() or is_sm120_supported()):
        return "fused"
    return "plain"
"""


class HouseFusedNorm(Gate):
    """The house's fused RMSNorm, built for SM100 and SM12x, behind a condition that names SM100 only."""

    id = "house-fused-norm"
    engine = "sglang"
    family = "house"
    title = "fused RMSNorm of the house's own build"
    action = Action.OPEN
    level = Level.REPORTED
    targets = frozenset({SM120, SM121})
    sites = (ConditionSite(">=0.5.4", _PATH, "house_norm", mentions=("fused",)),)
    evidence = (Evidence("https://example.org/house/kernels/7", "built and measured on SM120", "1.1x on RMSNorm"),)
    risk = "A build without the SM12x kernel ends in 'no kernel image is available'."
    examples = (
        Example("0.5.4", {**_PREDICATES, f"sglang/{_PATH}": _BEFORE}, {f"sglang/{_PATH}": _AFTER}),
        Example("0.5.4", {**_PREDICATES, f"sglang/{_PATH}": _AFTER}, {}, note="open already: nothing to do"),
    )
