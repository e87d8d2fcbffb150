"""Pipeline stages of Inkling's grouped GEMM, for about 100 KB of shared memory."""

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from patcher.arch import SM121
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.predicate import World
from patcher.values import Case, Run, Tensor, ValueCheck, ValueSite, dtype_of
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini
from patches.sglang._shared_memory import of_pipelined_matmul

_OLD = "srt/layers/moe/moe_runner/triton_utils/inkling_moe.py"
_NEW = "kernels/ops/moe/inkling_moe.py"
_FUNCTION = "grouped_gemm_triton"

# Upstream's own number for SM121 since 0.5.18.
_BODY = 'config = {**config, "num_stages": min(config["num_stages"], 3)}\n'


def _arguments(case: Case) -> Mapping[str, Any]:
    tokens, inner, outer, experts = case["tokens"], case["inner"], 4096, 256
    index = Tensor((experts + 1,), 4)
    return {
        "a": Tensor((tokens, inner)),
        "b": Tensor((experts, outer, inner)),
        "num_experts": experts,
        "num_tokens_per_expert": index,
        "expert_token_offs": index,
        "expert_block_offs": index,
        "expert_block_schedule": index,
        "block_size_m": case["block_size_m"],
    }


def _bytes(run: Run, case: Case) -> int:
    (launch,) = run.launches
    return of_pipelined_matmul(launch.kwargs, case["itemsize"])


def _given(world: World) -> Mapping[str, Any]:
    torch = SimpleNamespace(
        float32=dtype_of(4),
        empty=lambda shape, device, dtype: Tensor(shape),
        profiler=SimpleNamespace(record_function=lambda name: nullcontext()),
    )
    return {"torch": torch}


VALUES = ValueCheck(
    cases=[
        {"block_size_m": rows, "tokens": tokens, "inner": inner, "itemsize": 2}
        for rows in (16, 128)
        for tokens in (16, 8192)
        for inner in (2048, 4096, 4000)
    ],
    arguments=_arguments,
    needed=_bytes,
    limits=SHARED_MEMORY,
    varies=frozenset({"num_stages"}),
    given=_given,
)

_IN_OLD, _IN_NEW = f"sglang/{_OLD}", f"sglang/{_NEW}"
_SOURCE = """\
import torch
import triton

{imported}

BLOCK_SIZE_M = 128
SMALL_M_BLOCK_SIZE_M = 16


@triton.jit
def _kernel(A, B, C, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K):
    pass


def grouped_gemm_triton(
    a, b, num_experts, num_tokens_per_expert, expert_token_offs, expert_block_offs, expert_block_schedule,
    block_size_m=BLOCK_SIZE_M,
):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    if block_size_m == SMALL_M_BLOCK_SIZE_M:
        config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "num_stages": {stages}}
    else:
        config = {"BLOCK_SIZE_M": BLOCK_SIZE_M, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "num_stages": 3}
{fixed}    with torch.profiler.record_function("grouped"):
        _kernel[(triton.cdiv(b.shape[1], config["BLOCK_SIZE_N"]),)](A=a, B=b, C=c, **config)
    return c
"""


def _source(imported: str, stages: str, test: str = "") -> str:
    fixed = f"    # sm-patch: inkling-grouped-gemm-stages\n    if {test}:\n        {_BODY}" if test else ""
    source = _SOURCE.replace("{imported}", f"from sglang.srt.utils.common import {imported}")
    return source.replace("{stages}", stages).replace("{fixed}", fixed)


class InklingGroupedGemmStages(Gate):
    """Stages of the grouped GEMM that Inkling's MoE uses for few tokens.

    Its tiles of 16 by 128 by 128 take 110,592 bytes of shared memory in four stages, and SM120 and SM121 have 101,376
    for one block: the first decode fails with OutOfResources. From 0.5.18 upstream takes three stages (73,728
    bytes) where the GPU is exactly an SM121, which has no more and no less than SM120; SM120 still gets four, and so
    do both before that. The targets get three; the tiles for many tokens (98,304 bytes) and all other GPUs are left
    alone. Right for 16-bit elements, which is what the models have.
    """

    id = "inkling-grouped-gemm-stages"
    engine = "sglang"
    family = "shared-memory"
    title = "stages of Inkling's grouped GEMM for few tokens"
    action = Action.FIX
    level = Level.REPORTED
    targets = SM12X
    upstream_since = {SM121: "0.5.18"}
    sites = (
        ValueSite(">=0.5.16,<0.5.17", _OLD, _FUNCTION, names=("config",), body=_BODY, check=VALUES),
        ValueSite(">=0.5.17", _NEW, _FUNCTION, names=("config",), body=_BODY, check=VALUES),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/37803",
            "the failure on SM120; the same number of stages for SM120 as for SM121",
            "110,592 bytes asked for, 101,376 there (RTX 5090)",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/33108",
            "three stages for SM121, first in 0.5.18",
            "stages measured on a DGX Spark",
        ),
    )
    examples = (
        Example(
            "0.5.23",
            {**mini.EXACT, _IN_NEW: _source("is_cuda, is_sm121", "3 if is_sm121() else 4")},
            {
                _IN_NEW: _source(
                    "is_cuda, is_sm121",
                    "3 if is_sm121() else 4",
                    "is_cuda() and torch.cuda.get_device_capability() == (12, 0)",
                )
            },
            "SM121 is right upstream; SM120 gets the same",
            Direction.FIX,
        ),
        Example(
            "0.5.23",
            {**mini.PLATFORM, _IN_NEW: _source("is_sm120_supported", "3 if is_sm120_supported() else 4")},
            {},
            "right for both",
            Direction.FIX,
        ),
    )
    usage = "Nothing to set; Inkling models use it."
    measure = "Start an Inkling model: without the fix the first decode fails."
