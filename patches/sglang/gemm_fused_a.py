"""DeepSeek's small-batch fused qkv_a projection."""

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_MODEL = "srt/models/deepseek_v2.py"
_INIT = "DeepseekV2AttentionMLA.__init__"
_MENTIONS = ("fused_qkv_a_proj_with_mqa", "_device_sm")
_ELIGIBLE = "fused_a_gemm_weight_eligible"

_IN = f"sglang/{_MODEL}"
_SOURCE = """\
import torch

from sglang.srt.utils import get_device_sm, is_cuda

_is_cuda = is_cuda()
_device_sm = get_device_sm()


class DeepseekV2AttentionMLA:
    def __init__(self, has_fused_proj):
        self.fused_qkv_a_proj_with_mqa = object()
        self.use_min_latency_fused_a_gemm = (
            has_fused_proj
            and self.fused_qkv_a_proj_with_mqa.weight.dtype == torch.bfloat16
            and _is_cuda
            and {test}
        )
"""
_OPEN = _SOURCE.replace("{test}", "_device_sm >= 90")
_CLOSED = _SOURCE.replace(
    "{test}", "(_device_sm >= 90 and not (is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))))"
)
_UPSTREAM = _SOURCE.replace("{test}", "90 <= _device_sm < 120")


class GemmFusedA(Gate):
    """The fused qkv_a projection for at most 16 tokens (DeepSeek V3 and its kin).

    The kernel of the kernel library asks for 197,632 bytes of shared memory without a check; SM120 and SM121 have
    101,376. 0.4.9 to 0.5.4.post1 let them in all the same, so there the recipe closes it; 0.5.4.post2 to 0.5.14
    keep them out. 0.5.15 brings another kernel, compiled at run time, and lets them in: opening the gate alone in
    an older release gives them the old kernel, and a crash.
    """

    id = "gemm-fused-a"
    engine = "sglang"
    family = "gemm"
    title = "fused qkv_a GEMM for small batches (DeepSeek)"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    closes_when_unmet = True
    needs_release = ">=0.5.15"
    needs_because = "only that release has the kernel that fits in the shared memory of SM12x"
    upstream_since = "0.5.15"
    sites = (
        ConditionSite(">=0.4.9,<0.5.16", _MODEL, _INIT, mentions=_MENTIONS),
        ConditionSite(">=0.5.16,<0.5.17", "jit_kernel/fused_a_gemm.py", _ELIGIBLE, mentions=("_DEVICE_SM",)),
        ConditionSite(">=0.5.17", "kernels/ops/gemm/fused_a_gemm.py", _ELIGIBLE, mentions=("_DEVICE_SM",)),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/29897",
            "the old kernel sized for 192 KB, its request unchecked: invalid argument on SM120",
            "197,632 bytes asked for, 101,376 there",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/27397",
            "the new kernel, with fewer stages on SM120; first in 0.5.15",
            "29.5 us against 34.5 us of torch at one token (K=6,144, N=2,112)",
        ),
    )
    examples = (
        Example("0.5.3", {**mini.UTILS_BEFORE_054, _IN: _OPEN}, {_IN: _CLOSED}, "too open: closed", Direction.CLOSE),
        Example("0.5.3", {**mini.UTILS_BEFORE_054, _IN: _CLOSED}, {}, "closed already", Direction.CLOSE),
        Example("0.5.9", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream keeps it out", Direction.CLOSE),
    )
    risk = "The old kernel asks for more shared memory than an SM12x has: the server crashes at the first small batch."
    usage = "Nothing to set."
    measure = "Compare decode latency at batch 1 of a DeepSeek-V3-shaped model."
