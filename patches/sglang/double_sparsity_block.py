"""Block sizes of double sparsity's own extend attention, for about 100 KB of shared memory."""

from collections.abc import Mapping
from typing import Any

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.values import Case, Run, Tensor, ValueCheck, ValueSite
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini
from patches.sglang._shared_memory import HALVED_UNTIL_IT_FITS, of_attention

_FILE = "srt/layers/attention/triton_ops/double_sparsity_attention.py"
_NAMES = ("BLOCK_M", "BLOCK_N")

_BODY = "BLOCK_M, BLOCK_N = (64, 64) if Lq <= 256 else (32, 32)\n"
_BODY += HALVED_UNTIL_IT_FITS.replace("{query}", "q_extend")


def _bytes(run: Run, case: Case) -> int:
    (launch,) = run.launches
    return of_attention(launch.kwargs, case["itemsize"])


def _arguments(case: Case) -> Mapping[str, Any]:
    q, v = Tensor((64, 8, case["Lq"]), case["itemsize"]), Tensor((64, 8, case["Lv"]), case["itemsize"])
    index = Tensor((3,), 4)
    return {
        "q_extend": q,
        "k_extend": q,
        "v_extend": v,
        "o_extend": v,
        "k_buffer": q,
        "v_buffer": v,
        "req_to_tokens": Tensor((3, 64), 4),
        "b_req_idx": index,
        "b_seq_len": index,
        "b_seq_len_extend": index,
        "b_start_loc_extend": index,
        "max_len_extend": 40,
    }


_SHAPES = [(13, 13), (64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256), (576, 512)]
VALUES = ValueCheck(
    cases=[{"Lq": q, "Lv": v, "itemsize": size} for q, v in _SHAPES for size in (2, 4)],
    arguments=_arguments,
    needed=_bytes,
    limits=SHARED_MEMORY,
    varies=frozenset(_NAMES),
)

_IN = f"sglang/{_FILE}"
_HEAD = f"""\
import torch
import triton

from sglang.srt.utils import is_cuda

{mini.EXTEND_KERNEL}\
def extend_attention_fwd(
    q_extend, k_extend, v_extend, o_extend, k_buffer, v_buffer, req_to_tokens, b_req_idx, b_seq_len,
    b_seq_len_extend, b_start_loc_extend, max_len_extend,
):
    Lq, Lv = q_extend.shape[-1], v_extend.shape[-1]
    BLOCK_DPE = {{576: 64, 192: 64}}.get(Lq, 0)
    BLOCK_DMODEL = triton.next_power_of_2(Lq - BLOCK_DPE)
    BLOCK_DV = triton.next_power_of_2(Lv)
    if _is_cuda and CUDA_CAPABILITY[0] >= 9:
        BLOCK_M, BLOCK_N = (128, 64) if Lq <= 256 else (32, 64)
    else:
        BLOCK_M, BLOCK_N = (64, 64) if Lq <= 128 else (32, 32)
"""
_TAIL = """\

    _fwd_kernel[(triton.cdiv(max_len_extend, BLOCK_M),)](
        q_extend, BLOCK_DMODEL=BLOCK_DMODEL, BLOCK_DPE=BLOCK_DPE, BLOCK_DV=BLOCK_DV, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N
    )
"""


def _fixed(test: str) -> str:
    body = "".join(f"        {line}\n" for line in _BODY.splitlines())
    return f"    # sm-patch: double-sparsity-block\n    if {test}:\n{body}"


_EXACT = _fixed("is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))")
_IMPORTED = _HEAD.replace("import is_cuda", "import is_cuda, is_sm120_supported")


class DoubleSparsityBlock(Gate):
    """Block sizes of the extend attention that --enable-double-sparsity brings, a kernel of its own.

    It chooses as the common extend attention did before 0.5.9: SM120 and SM121 fall into the Hopper branch, whose
    tiles need 114,688 bytes of shared memory for heads of 256 (and more for 32-bit elements of any width from 128
    on); the two have 101,376 for one block. Upstream corrected the common kernel and not this one, and took double
    sparsity out in 0.5.11. Nobody has reported it for these GPUs: the need is computed, and was confirmed with the
    compiler alone, so the gate is experimental.
    """

    id = "double-sparsity-block"
    engine = "sglang"
    family = "shared-memory"
    title = "block sizes of double sparsity's extend attention"
    action = Action.FIX
    level = Level.EXPERIMENTAL
    targets = SM12X
    sites = (ValueSite("<0.5.11", _FILE, "extend_attention_fwd", names=_NAMES, body=_BODY, check=VALUES),)
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/14311",
            "the common extend attention, with the same branch for Hopper, corrected for SM120",
            "106,496 bytes asked for, 101,376 there, in the common kernel",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/1459", "double sparsity as it was added"),
    )
    examples = (
        Example(
            "0.5.8.post1",
            {**mini.UTILS, _IN: _HEAD + _TAIL},
            {_IN: _IMPORTED + _fixed("is_sm120_supported()") + _TAIL},
            "the targets get their own sizes behind upstream's choice",
            Direction.FIX,
        ),
        Example("0.5.2", {**mini.UTILS_BEFORE_054, _IN: _HEAD + _EXACT + _TAIL}, {}, "fixed already", Direction.FIX),
    )
    usage = "Nothing to set; --enable-double-sparsity uses it for prefill."
    measure = "Start a model with heads of 256 and --enable-double-sparsity: without the fix the prefill fails."
