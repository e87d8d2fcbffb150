"""Block sizes of the triton extend attention kernels, for about 100 KB of shared memory."""

from collections.abc import Mapping
from typing import Any

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.values import Case, Run, Tensor, ValueCheck, ValueSite
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini
from patches.sglang._shared_memory import HALVED_UNTIL_IT_FITS, of_attention

_OLD = "srt/layers/attention/triton_ops/extend_attention.py"
_NEW = "kernels/ops/attention/extend_attention.py"
_HELPER = "_get_block_sizes_for_extend_attention"
_NAMES = ("BLOCK_M", "BLOCK_N")

# Upstream's own sizes for these GPUs since 0.5.9; 32-bit elements need less still.
_SIZES = "BLOCK_M, BLOCK_N = (64, 128) if Lq <= 128 else (64, 64) if Lq <= 256 else (32, 32)\n"
_EXTEND, _UNIFIED = (_SIZES + HALVED_UNTIL_IT_FITS.replace("{query}", query) for query in ("q_extend", "q"))

_SHAPES = [(13, 13), (64, 64), (72, 72), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192)]
_SHAPES += [(256, 256), (288, 256), (512, 512), (576, 512)]
_CASES = [{"Lq": q, "Lv": v, "itemsize": size} for q, v in _SHAPES for size in (2, 4)]


def _of_launch(run: Run, case: Case) -> int:
    (launch,) = run.launches
    return of_attention(launch.kwargs, case["itemsize"])


def _of_helper(run: Run, case: Case) -> int:
    names = ("BLOCK_DMODEL", "BLOCK_DPE", "BLOCK_DV", "BLOCK_M", "BLOCK_N")
    return of_attention(dict(zip(names, run.result, strict=False)), case["itemsize"])


def _extend_arguments(case: Case) -> Mapping[str, Any]:
    q, v = Tensor((64, 8, case["Lq"]), case["itemsize"]), Tensor((64, 8, case["Lv"]), case["itemsize"])
    index = Tensor((3,), 4)
    return {
        "q_extend": q,
        "k_extend": q,
        "v_extend": v,
        "o_extend": v,
        "k_buffer": q,
        "v_buffer": v,
        "qo_indptr": index,
        "kv_indptr": index,
        "kv_indices": index,
        "custom_mask": None,
        "is_causal": True,
        "mask_indptr": None,
        "max_len_extend": 40,
    }


def _unified_arguments(case: Case) -> Mapping[str, Any]:
    q, v = Tensor((64, 8, case["Lq"]), case["itemsize"]), Tensor((64, 8, case["Lv"]), case["itemsize"])
    index = Tensor((3,), 4)
    return {
        "q": q,
        "o": v,
        "k_buffer": q,
        "v_buffer": v,
        "qo_indptr": index,
        "kv_indptr": index,
        "kv_indices": index,
        "prefix_lens": index,
        "max_len_extend": 40,
    }


_VARIES = frozenset(_NAMES)
EXTEND = ValueCheck(_CASES, _extend_arguments, _of_launch, SHARED_MEMORY, _VARIES)
UNIFIED = ValueCheck(_CASES, _unified_arguments, _of_launch, SHARED_MEMORY, _VARIES)
# The helper does not know the element size: its sizes are for 16 bits.
HELPER = ValueCheck(
    cases=[case for case in _CASES if case["itemsize"] == 2],
    arguments=lambda case: {"Lq": case["Lq"], "Lv": case["Lv"]},
    needed=_of_helper,
    limits=SHARED_MEMORY,
    varies=frozenset({"return"}),
)

_IN_OLD, _IN_NEW = f"sglang/{_OLD}", f"sglang/{_NEW}"
_HEAD = f"""\
import torch
import triton

from sglang.srt.utils import is_cuda, is_hip

{mini.EXTEND_KERNEL}"""
_SMALL = """\
def extend_attention_fwd(
    q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, qo_indptr, kv_indptr, kv_indices,
    custom_mask, is_causal, mask_indptr, max_len_extend,
):
    Lq, Lv = q_extend.shape[-1], v_extend.shape[-1]
    BLOCK_DPE = {576: 64, 288: 32, 192: 64}.get(Lq, 0)
    BLOCK_DMODEL = triton.next_power_of_2(Lq - BLOCK_DPE)
    BLOCK_DV = triton.next_power_of_2(Lv)
    if _is_cuda and CUDA_CAPABILITY[0] >= 9:
        BLOCK_M, BLOCK_N = (128, 64) if Lq <= 256 else (32, 64)
    else:
        BLOCK_M, BLOCK_N = (64, 64) if Lq <= 128 else (32, 32)
"""
_LAUNCH = """\

    _fwd_kernel[(triton.cdiv(max_len_extend, BLOCK_M),)](
        q_extend, BLOCK_DMODEL=BLOCK_DMODEL, BLOCK_DPE=BLOCK_DPE, BLOCK_DV=BLOCK_DV, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
    )
"""
_FIXED = """\
    # sm-patch: extend-attention-block
    if is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1)):
""" + "".join(f"        {line}\n" for line in _EXTEND.splitlines())
_UPSTREAM = """\
def _get_block_sizes_for_extend_attention(Lq, Lv):
    if _is_cuda and CUDA_CAPABILITY[0] == 12:
        BLOCK_M, BLOCK_N = (64, 64) if Lq <= 256 else (32, 32)
    else:
        BLOCK_M, BLOCK_N = (128, 64) if Lq <= 256 else (32, 64)
    BLOCK_DPE = {576: 64, 288: 32, 192: 64}.get(Lq, 0)
    BLOCK_DMODEL = triton.next_power_of_2(Lq - BLOCK_DPE)
    return BLOCK_DMODEL, BLOCK_DPE, triton.next_power_of_2(Lv), BLOCK_M, BLOCK_N, 4
"""


class ExtendAttentionBlock(Gate):
    """Block sizes of the triton extend attention (prefill over a KV cache).

    Before 0.5.9 SM120 and SM121 fall into the Hopper branch, whose tiles need up to 114,688 bytes for heads of
    256 and 106,496 for the 576-wide heads of MLA models; the two have 101,376 for one block, and the launch fails
    with OutOfResources (Kimi K2 on RTX PRO 6000). The targets get the sizes that upstream gives them since 0.5.9,
    halved where 32-bit elements ask for it. The recipe stands behind the choice of sizes, so all other GPUs keep
    theirs. From 0.5.9 the sizes are right for 16-bit elements; for 32-bit ones upstream's are still too large.
    """

    id = "extend-attention-block"
    engine = "sglang"
    family = "shared-memory"
    title = "block sizes of the triton extend attention"
    action = Action.FIX
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.9"
    sites = (
        ValueSite("<0.5.9", _OLD, "extend_attention_fwd", names=_NAMES, body=_EXTEND, check=EXTEND),
        ValueSite(">=0.5.4,<0.5.9", _OLD, "extend_attention_fwd_unified", names=_NAMES, body=_UNIFIED, check=UNIFIED),
        ValueSite(">=0.5.9,<0.5.16", _OLD, _HELPER, names=_NAMES, body=_SIZES, check=HELPER),
        ValueSite(">=0.5.16", _NEW, _HELPER, names=_NAMES, body=_SIZES, check=HELPER),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/14311",
            "the sizes for SM120, first in 0.5.9",
            "106,496 bytes asked for, 101,376 there: Kimi K2 fails to start without it",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/17908", "the same found independently, on 8x RTX PRO 6000"
        ),
        Evidence("https://github.com/kvcache-ai/ktransformers/issues/1570", "the failure as a user met it"),
        Evidence("https://github.com/sgl-project/sglang/pull/4797", "the same for SM86 and SM89 in an earlier release"),
    )
    examples = (
        Example(
            "0.5.2",
            {**mini.UTILS_BEFORE_054, _IN_OLD: _HEAD + _SMALL + _LAUNCH},
            {_IN_OLD: _HEAD + _SMALL + _FIXED + _LAUNCH},
            "the targets get their own sizes behind upstream's choice",
            Direction.FIX,
        ),
        Example(
            "0.5.2",
            {**mini.UTILS_BEFORE_054, _IN_OLD: _HEAD + _SMALL + _FIXED + _LAUNCH},
            {},
            "fixed already",
            Direction.FIX,
        ),
        Example("0.5.23", {**mini.UTILS, _IN_NEW: _HEAD + _UPSTREAM}, {}, "right upstream", Direction.FIX),
    )
    usage = "Nothing to set; --attention-backend triton uses it."
    measure = "Start a model with MLA (or heads of 256) and --attention-backend triton: without the fix it fails."
