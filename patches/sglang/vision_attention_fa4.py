"""The default attention backend of vision towers."""

from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_VISION = "srt/layers/attention/vision.py"
_FILE = f"sglang/{_VISION}"


def _vision(test: str) -> str:
    return f"""\
import torch

from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import is_cuda


class VisionAttention:
    def _determine_attention_backend(self, passed_backend):
        if passed_backend is not None:
            backend = passed_backend
        elif is_cuda():
            major, minor = torch.cuda.get_device_capability()
            if major == 9:
                backend = "fa3"
            elif {test}:
                backend = "fa4"
            else:
                backend = "triton_attn"
        else:
            backend = "sdpa"
        return backend
"""


_CLOSED = _vision("major == 10")
_OPENED = _vision("major == 10 or get_platform().is_sm120")


class VisionAttentionFa4(Gate):
    """The default that gives vision towers FA4 on SM100 (from 0.5.21 SM103 as well) and triton elsewhere.

    From 0.5.18 SGLang has FA4 kernels of its own for SM12x, dense and not causal among them, which is what a vision
    tower needs; before, SM12x ran a form made for SM80. Nobody has published a comparison with triton for vision
    towers on SM12x, so this is experimental; --mm-attention-backend fa4 tries the same without it.
    """

    id = "vision-attention-fa4"
    engine = "sglang"
    family = "attention"
    title = "vision towers: FA4 instead of triton as the default"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    needs_release = ">=0.5.18"
    needs_because = "before it, SGLang has no FA4 kernels of its own for SM12x"
    sites = (
        LocatedSite(
            ">=0.5.10",
            _VISION,
            "VisionAttention._determine_attention_backend",
            decides=("backend",),
            leads_to=("fa4",),
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32991",
            "FA4 kernels for SM12x, non-causal attention among what is tested",
        ),
    )
    risk = "A head size or mask that the SM12x kernels do not take fails at the first image."
    usage = "Nothing to set; --mm-attention-backend triton_attn goes back."
    measure = "Compare time to first token on requests with large images, with --mm-attention-backend triton_attn."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.23", {**mini.PLATFORM, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
