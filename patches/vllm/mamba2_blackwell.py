"""Mamba2's launch configuration for Blackwell."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.vllm import _miniature as mini

_FILE = "model_executor/layers/mamba/mamba_mixer2.py"
_MIXER = """\
from vllm.platforms import current_platform


class MambaMixer2:
    def __init__(self):
        self.is_blackwell = current_platform.is_device_capability_family(100)
"""
_MIXER_OPEN = _MIXER.replace(
    "family(100)\n",
    "family(100) or (current_platform.is_cuda() and current_platform.is_device_capability_family(120))\n",
)
_BEFORE = {**mini.PLATFORMS, f"vllm/{_FILE}": _MIXER}


class Mamba2Blackwell(Gate):
    """The flag that picks Mamba2's tile sizes for Blackwell, set for SM10x only.

    It chooses block sizes and warps of a Triton kernel (``selective_state_update``), so it is tuning, not a kernel
    that SM12x lacks. One community image sets it on SM121 and reports that an illegal access went away; upstream
    has not confirmed it, and no measurement is public: an experiment of yours.
    """

    id = "vllm.mamba2-blackwell"
    engine = "vllm"
    family = "mamba"
    title = "Mamba2 launch configuration for Blackwell"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = frozenset({SM120, SM121})
    sites = (ConditionSite(">=0.16", _FILE, "MambaMixer2.__init__"),)
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/mamba/ops/mamba_ssm.py",
            "what the flag chooses: block sizes and warps of a Triton kernel",
        ),
    )
    risk = "Larger tiles may be slower on SM12x, or not fit its shared memory."
    usage = "Nothing to set."
    measure = "vllm bench serve on a Mamba2 hybrid (for instance Nemotron-H) with and without the recipe."
    examples = (
        Example("0.33.0", _BEFORE, {f"vllm/{_FILE}": _MIXER_OPEN}),
        Example("0.33.0", {**_BEFORE, f"vllm/{_FILE}": _MIXER_OPEN}, {}, "open already: nothing to do"),
    )
