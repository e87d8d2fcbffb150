"""The attention backend of diffusion models, in the first releases that have them."""

from patcher.anchors import Mentions, Unless
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_PLATFORM = "multimodal_gen/runtime/platforms/cuda.py"
_WITHIN = "CudaPlatformBase.get_attn_backend_cls_str"
_BODY = """\
logger.info("FlashAttention has no kernel for SM12x here: using Torch SDPA")
return "sglang.multimodal_gen.runtime.layers.attention.backends.sdpa.SDPABackend"
"""


def _site(versions: str, says: str) -> GuardSite:
    """Before the message of who takes FlashAttention, in releases that do not ask for SM120 yet."""
    return GuardSite(versions, _PLATFORM, _WITHIN, Unless(("is_sm120",), Mentions((says,))), _BODY, True)


_FILE = f"sglang/{_PLATFORM}"
_TEST = (
    "torch.version.cuda is not None and torch.cuda.is_available()"
    " and torch.cuda.get_device_capability() in ((12, 0), (12, 1))"
)


def _platform(guard: str = "") -> str:
    return f"""\
import logging

import torch

logger = logging.getLogger(__name__)


class CudaPlatformBase:
    @classmethod
    def get_attn_backend_cls_str(cls, selected_backend, head_size):
        if selected_backend == "torch_sdpa" or head_size > 256:
            return "backends.sdpa.SDPABackend"

{guard}        logger.info("Using FlashAttention (FA3 for hopper, FA4 for blackwell) backend")
        return "backends.flash_attn.FlashAttentionBackend"
"""


_LINES = "".join(f"            {line}\n" for line in _BODY.splitlines())
_GUARD = f"        # sm-patch: diffusion-attention-default\n        if {_TEST}:\n{_LINES}"


class DiffusionAttentionDefault(Gate):
    """FlashAttention as the attention of diffusion models, for every GPU from SM80 on.

    The default (and ``--attention-backend fa``) is the FlashAttention of the kernel library: FA3, which has machine
    code for SM80 to SM90, or FA4 for SM100. On SM12x the first picture ends in an error that the operator needs SM90
    and above. From 0.5.7 upstream takes other backends there; the recipe makes it Torch's own attention where
    FlashAttention would be taken, as 0.5.8 does. Other backends that are asked for by name stay as they are.
    """

    id = "diffusion-attention-default"
    engine = "sglang"
    family = "attention"
    title = "FlashAttention as the default of diffusion models"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.7"
    sites = (
        _site(">=0.5.5,<0.5.5.post3", "Using fa3 backend."),
        _site(">=0.5.5.post3,<0.5.6", "Using FlashAttention (FA3 for hopper, FA4 for blackwell) backend."),
        _site(">=0.5.6,<0.5.7", "Using FlashAttention (FA3 for hopper, FA4 for blackwell) backend"),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/15342",
            "what happens on an RTX PRO 6000: FlashAttention of the kernel library is only for SM90 and above",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/15382",
            "another default for SM120, first in 0.5.7, with Torch SDPA to fall back to",
            "1.86 s a step with SageAttention 3, 3.22 s with Torch SDPA (Wan2.1 1.3B, RTX 5090)",
        ),
    )
    risk = "Where it is left open, diffusion models load and fail at the first picture."
    usage = "Nothing to set; --attention-backend names another one (sage_attn, where it is installed)."
    measure = "Make one picture (sglang generate): without the recipe it fails."
    examples = (
        Example("0.5.6", {**mini.UTILS, _FILE: _platform()}, {_FILE: _platform(_GUARD)}, direction=Direction.CLOSE),
        Example("0.5.6", {**mini.UTILS, _FILE: _platform(_GUARD)}, {}, "closed already", Direction.CLOSE),
    )
