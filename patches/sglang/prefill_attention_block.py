"""Block size of the triton prefill (vision and encoder) attention kernel, for about 100 KB of shared memory."""

from collections.abc import Mapping
from typing import Any

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.values import Case, Run, Tensor, ValueCheck, ValueSite
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini

_OLD = "srt/layers/attention/triton_ops/prefill_attention.py"
_NEW = "kernels/ops/attention/prefill_attention.py"

# 64 is what was measured to work; wide heads in 32 bits need less still.
_BODY = """\
BLOCK = 64
while BLOCK > 16 and (2 * triton.next_power_of_2(k.shape[-1]) + BLOCK) * BLOCK * q.element_size() > 101376:
    BLOCK //= 2
"""


def _arguments(case: Case) -> Mapping[str, Any]:
    q = Tensor((256, 8, case["head_dim"]), case["itemsize"])
    k = Tensor((256, case["kv_heads"], case["head_dim"]), case["itemsize"])
    lengths = Tensor((2,), 4)
    return {"q": q, "k": k, "v": k, "o": q, "b_start_loc": lengths, "b_seq_len": lengths, "max_input_len": 128}


def _bytes(run: Run, case: Case) -> int:
    """Shared memory of the launch in bytes: the tiles of the query, of key or value, and of the scores.

    The sum is what the compiler asks for (triton 3.5, built for sm_120), or a little more than that.
    """
    (launch,) = run.launches
    m, n, d = (launch.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_DMODEL"))
    return int(case["itemsize"] * (m * d + n * d + m * n))


VALUES = ValueCheck(
    cases=[
        {"head_dim": head_dim, "itemsize": itemsize, "kv_heads": kv_heads}
        for head_dim in (13, 16, 32, 64, 72, 80, 88, 96, 112, 128, 160, 192, 256, 512)
        for itemsize in (2, 4)
        for kv_heads in (8, 2)
    ],
    arguments=_arguments,
    needed=_bytes,
    limits=SHARED_MEMORY,
    varies=frozenset({"BLOCK_M", "BLOCK_N"}),
)

_HEAD = """\
import torch
import triton

from sglang.srt.utils import is_cuda

_is_cuda = is_cuda()

if _is_cuda:
    CUDA_CAPABILITY = torch.cuda.get_device_capability()


@triton.jit
def _fwd_kernel(Q, K, BLOCK_M, BLOCK_DMODEL, BLOCK_N):
    pass


def context_attention_fwd(q, k, v, o, b_start_loc, b_seq_len, max_input_len):
    if _is_cuda and CUDA_CAPABILITY[0] > 8:
        BLOCK = 128
    else:
        BLOCK = 64
"""
_GUARD = """\
    # sm-patch: prefill-attention-block
    if {}:
        BLOCK = 64
        while BLOCK > 16 and (2 * triton.next_power_of_2(k.shape[-1]) + BLOCK) * BLOCK * q.element_size() > 101376:
            BLOCK //= 2
"""
_TAIL = """\

    grid = (b_seq_len.shape[0], triton.cdiv(max_input_len, BLOCK))
    _fwd_kernel[grid](q, k, BLOCK_M=BLOCK, BLOCK_DMODEL=triton.next_power_of_2(k.shape[-1]), BLOCK_N=BLOCK)
"""
_IN_OLD, _IN_NEW = f"sglang/{_OLD}", f"sglang/{_NEW}"
_EXACT = _GUARD.format("is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))")
_NAMED = _HEAD.replace("import is_cuda", "import is_cuda, is_sm120_supported")
_SMALL = _HEAD.replace("BLOCK = 128", "BLOCK = 16")


class PrefillAttentionBlock(Gate):
    """Block size of ``context_attention_fwd``, the triton attention of vision towers and encoders.

    Every GPU above SM80 gets blocks of 128 by 128. SM120 and SM121 have 101,376 bytes of shared memory for one
    block; 128 needs 131,072 for 32-bit elements and more for heads wider than 128, and the launch fails with
    OutOfResources. The targets get 64, and less where the element size and head width ask for it; all other GPUs
    keep what they have. Upstream has the same carve-out for its extend kernel since 0.5.9 (PR #14311); for this
    one PR #27962 proposes it.
    """

    id = "prefill-attention-block"
    engine = "sglang"
    family = "shared-memory"
    title = "block size of the triton prefill attention (vision, encoders)"
    action = Action.FIX
    level = Level.REPORTED
    targets = SM12X
    sites = (
        ValueSite("<0.5.16", _OLD, "context_attention_fwd", names=("BLOCK",), body=_BODY, check=VALUES),
        ValueSite(">=0.5.16", _NEW, "context_attention_fwd", names=("BLOCK",), body=_BODY, check=VALUES),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/27962",
            "the launch fails on RTX PRO 6000 with blocks of 128 and passes the kernel's test with 64; still open",
            "131,072 bytes asked for, 101,376 there",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/14311", "the same for the extend kernel, merged"),
    )
    examples = (
        Example(
            "0.5.23",
            {**mini.UTILS, _IN_NEW: _HEAD + _TAIL},
            {_IN_NEW: _NAMED + _GUARD.format("is_sm120_supported()") + _TAIL},
            "the targets get their own block size behind upstream's choice",
            Direction.FIX,
        ),
        Example(
            "0.4.6",
            {**mini.UTILS_BEFORE_054, _IN_OLD: _HEAD + _TAIL},
            {_IN_OLD: _HEAD + _EXACT + _TAIL},
            "likewise where nothing says SM12x yet",
            Direction.FIX,
        ),
        Example("0.5.23", {**mini.UTILS, _IN_NEW: _HEAD + _EXACT + _TAIL}, {}, "fixed already", Direction.FIX),
        Example("0.5.23", {**mini.UTILS, _IN_NEW: _SMALL + _TAIL}, {}, "small enough already", Direction.FIX),
    )
    usage = "Nothing to set; vision towers and encoders with the triton attention use it."
    measure = "Start a vision model in float32, or one with heads wider than 128: without the fix the launch fails."
