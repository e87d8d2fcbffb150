"""The default tiles of the triton fused MoE for FP8 weights, for about 100 KB of shared memory."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.predicate import World
from patcher.values import Case, Run, ValueCheck, ValueSite
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini
from patches.sglang._shared_memory import of_pipelined_matmul

_FIRST = "srt/layers/moe/fused_moe_triton/fused_moe.py"
_SECOND = "srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py"
_THIRD = "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"
_FUNCTION = "get_default_config"

# Upstream's own tiles for GPUs with little shared memory since 0.5.14.
_BODY = """\
if dtype == "fp8_w8a8" and block_shape is None:
    config = {
        "BLOCK_SIZE_M": 64 if M > E else 32,
        "BLOCK_SIZE_N": 128 if M > E else 64,
        "BLOCK_SIZE_K": 256,
        "GROUP_SIZE_M": 64 if M > E else 1,
        "num_warps": 4,
        "num_stages": 2 if M > E else 4,
    }
"""

_ITEMSIZE = {"fp8_w8a8": 1, "int8_w8a8": 1, "int8_w8a16": 2, "float32": 4, None: 2}


def _bytes(run: Run, case: Case) -> int:
    return of_pipelined_matmul(run.result, _ITEMSIZE[case["dtype"]])


def _given(world: World) -> Mapping[str, Any]:
    """Settings as they are by default, and what the driver says of the shared memory of this world's GPU."""
    off = SimpleNamespace(enable_deterministic_inference=False)
    optin = SHARED_MEMORY.get(world.sm, 232_448) if world.sm is not None else None
    return {
        "get_global_server_args": lambda: off,
        "get_server_args": lambda: off,
        "get_exec": lambda: SimpleNamespace(deterministic=off),
        "_get_cuda_shared_memory_per_block_optin": lambda: optin,
    }


VALUES = ValueCheck(
    cases=[
        {"dtype": dtype, "M": tokens, "E": experts, "block_shape": blocks, "is_marlin": marlin}
        for dtype in _ITEMSIZE
        for tokens in (1, 32, 128, 4096)
        for experts in (8, 128)
        for blocks in (None, [128, 128])
        for marlin in (False, True)
    ],
    arguments=lambda case: {**case, "N": 768, "K": 2048, "topk": 8},
    needed=_bytes,
    limits=SHARED_MEMORY,
    varies=frozenset({"return"}),
    given=_given,
)

_IN_FIRST, _IN_SECOND, _IN_THIRD = (f"sglang/{path}" for path in (_FIRST, _SECOND, _THIRD))
_HEAD = """\
import torch

from sglang.srt.server_args import get_global_server_args
from sglang.srt.utils import is_cuda

"""
_LOW = """\
_CUTOFF = 128 * 1024


def _get_cuda_shared_memory_per_block_optin():
    return torch.cuda.get_device_properties(0).shared_memory_per_block_optin

"""


def _default(small: str = "False", fixed: str = "") -> str:
    return f"""\

def get_default_config(M, E, N, K, topk, dtype, is_marlin, block_shape=None):
    if get_global_server_args().enable_deterministic_inference:
        config = {{"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}}
        return config
    if dtype == "fp8_w8a8" and block_shape is None and {small}:
        config = {{"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "num_stages": 4}}
    elif dtype == "fp8_w8a8" and block_shape is None:
        config = {{"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "num_stages": 4}}
    else:
        config = {{"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32}}
{fixed}    return config
"""


def _fixed(test: str) -> str:
    body = "".join(f"        {line}\n" for line in _BODY.splitlines())
    return f"    # sm-patch: moe-triton-fp8-config\n    if {test}:\n{body}"


_EXACT = _fixed("is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))")
_NAMED = _HEAD.replace("import is_cuda", "import is_cuda, is_sm120_supported")


class MoeTritonFp8Config(Gate):
    """Default tiles of the triton fused MoE for FP8 weights with one scale for a tensor or a channel.

    Where no tuned file fits the GPU and the model, more tokens than experts get tiles of 128 by 256 by 128 in four
    stages, which take 147,456 bytes of shared memory. SM120 and SM121 have 101,376 for one block, and the first
    long prefill fails with OutOfResources (Gemma 4 on a DGX Spark). From 0.5.14 upstream asks the driver how much
    there is, and has tiles of its own for little; the targets get the same ones before that. Weights with block
    scales (128 by 128) and all other types fit as they are, and so do all other GPUs: they keep what they have.
    """

    id = "moe-triton-fp8-config"
    engine = "sglang"
    family = "shared-memory"
    title = "default tiles of the triton MoE for FP8 weights"
    action = Action.FIX
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.14"
    sites = tuple(
        ValueSite(versions, path, _FUNCTION, names=("config",), body=_BODY, check=VALUES)
        for versions, path in (("<0.5.2", _FIRST), (">=0.5.2,<0.5.11", _SECOND), (">=0.5.11", _THIRD))
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/28019",
            "the failure on a DGX Spark with 0.5.12, and where the number comes from",
            "147,456 bytes asked for, 101,376 there",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28038",
            "the same for SM120 and SM121; a clamp was proposed",
            "147,456 bytes computed and reported alike",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/5995", "the same kind of failure as early as 0.4.6"),
    )
    examples = (
        Example(
            "0.5.8.post1",
            {**mini.UTILS, _IN_SECOND: _HEAD + _default()},
            {_IN_SECOND: _NAMED + _default(fixed=_fixed("is_sm120_supported()"))},
            "the targets get tiles of their own behind upstream's choice",
            Direction.FIX,
        ),
        Example(
            "0.4.9",
            {**mini.UTILS_BEFORE_054, _IN_FIRST: _HEAD + _default()},
            {_IN_FIRST: _HEAD + _default(fixed=_EXACT)},
            "likewise where nothing says SM12x yet",
            Direction.FIX,
        ),
        Example(
            "0.5.23",
            {
                **mini.PLATFORM,
                _IN_THIRD: _HEAD + _LOW + _default("(_get_cuda_shared_memory_per_block_optin() or _CUTOFF) < _CUTOFF"),
            },
            {},
            "right upstream",
            Direction.FIX,
        ),
    )
    usage = "Nothing to set; --moe-runner-backend triton uses it where no tuned file fits."
    measure = "Start an FP8 MoE model with scales for channels and send a long prompt: without the fix it fails."
