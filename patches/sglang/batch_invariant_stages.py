"""Pipeline stages of the matmuls of deterministic inference in float16, for about 100 KB of shared memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.predicate import World
from patcher.values import Case, Run, Tensor, ValueCheck, ValueSite
from patches.sglang import SHARED_MEMORY, SM12X
from patches.sglang import _miniature as mini
from patches.sglang._shared_memory import of_pipelined_matmul

_OPS = "srt/batch_invariant_ops/batch_invariant_ops.py"
_ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}

_BODY = 'configs = {**configs, torch.float16: {**configs[torch.float16], "num_stages": 2}}\n'


@dataclass(frozen=True)
class _Operand(Tensor):
    """A tensor whose dtype is one of torch's, which have one size and two names."""

    kind: str = "bfloat16"

    @property
    def dtype(self) -> str:
        return self.kind


def _operands(case: Case, *batch: int) -> Mapping[str, Any]:
    rows, inner, columns = case["rows"], 4096, 1024
    size, kind = _ITEMSIZE[case["dtype"]], case["dtype"]
    return {"a": _Operand((*batch, rows, inner), size, kind), "b": _Operand((*batch, inner, columns), size, kind)}


def _bytes(run: Run, case: Case) -> int:
    """The stages, and what the result is brought into order in: 8,192 bytes for 16 bits, twice that for 32.

    This is what the compiler asks for (triton 3.5 and 3.6, built for sm_120, weights as a linear layer has them).
    """
    (launch,) = run.launches
    size = _ITEMSIZE[case["dtype"]]
    return of_pipelined_matmul(launch.kwargs, size) + 4096 * size


def _given(world: World) -> Mapping[str, Any]:
    properties = SimpleNamespace(multi_processor_count=48)
    torch = SimpleNamespace(
        **{name: name for name in _ITEMSIZE},
        empty=lambda shape, device, dtype: _Operand(shape, _ITEMSIZE[dtype], dtype),
        cuda=SimpleNamespace(get_device_properties=lambda device: properties),
    )
    return {"torch": torch, "get_device_core_count": lambda: properties.multi_processor_count}


_CASES = [{"dtype": dtype, "rows": rows} for dtype in _ITEMSIZE for rows in (1, 64, 4096)]
_VARIES = frozenset({"num_stages"})
OLD = ValueCheck(_CASES, lambda case: _operands(case), _bytes, SHARED_MEMORY, _VARIES, _given)
BATCHED = ValueCheck(_CASES, lambda case: _operands(case, 8), _bytes, SHARED_MEMORY, _VARIES, _given)
TYPED = ValueCheck(
    _CASES, lambda case: {**_operands(case), "out_dtype": case["dtype"]}, _bytes, SHARED_MEMORY, _VARIES, _given
)

_FILE = f"sglang/{_OPS}"
_SOURCE = """\
import torch
import triton

{imported}


@triton.jit
def _kernel(a, b, c, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K):
    pass


def _matmul_persistent_triton(a, b, bias=None):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    configs = {
        torch.bfloat16: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "num_stages": 3},
        torch.float16: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "num_stages": {stages}},
        torch.float32: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "num_stages": 3},
    }
{fixed}    _kernel[(1,)](a, b, c, **configs[a.dtype])
    return c


def bmm_batch_invariant(a, b, *, out=None):
    if a.ndim == 3:
        c = torch.empty((a.shape[0], a.shape[1], b.shape[2]), device=a.device, dtype=a.dtype)
        configs = {
            torch.bfloat16: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "num_stages": 3},
            torch.float16: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 64, "num_stages": {stages}},
            torch.float32: {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "num_stages": 3},
        }
{deeper}        _kernel[(1,)](a, b, c, **configs[a.dtype])
        return c
    else:
        raise ValueError("three dimensions")
"""


def _source(stages: int = 3, test: str = "", imported: str = "from sglang.srt.utils import is_cuda") -> str:
    fixed = f"    # sm-patch: batch-invariant-stages\n    if {test}:\n        {_BODY}" if test else ""
    deeper = "".join(f"    {line}\n" for line in fixed.splitlines())
    parts = {"{imported}": imported, "{stages}": str(stages), "{fixed}": fixed, "{deeper}": deeper}
    source = _SOURCE
    for name, text in parts.items():
        source = source.replace(name, text)
    return source


_NAMED = "from sglang.srt.utils import is_cuda, is_sm120_supported"


class BatchInvariantStages(Gate):
    """Stages of the persistent matmuls that --enable-deterministic-inference puts in torch's place, for float16.

    Their tiles of 128 by 256 by 64 take 106,496 bytes of shared memory in three stages where the weights lie as a
    linear layer has them; SM120 and SM121 have 101,376 for one block, and the server dies while it warms up. bfloat16
    and float32 have smaller tiles and fit. The targets get two stages (57,344 bytes), which is what helps on SM89;
    all other GPUs keep what they have. What it takes on SM120 was found with the compiler alone (triton 3.5 and 3.6);
    the public reports are of SM89, which has as little, so the gate is experimental.
    """

    id = "batch-invariant-stages"
    engine = "sglang"
    family = "shared-memory"
    title = "stages of deterministic inference's float16 matmuls"
    action = Action.FIX
    level = Level.EXPERIMENTAL
    targets = SM12X
    sites = (
        ValueSite(">=0.5.3,<0.5.4.post1", _OPS, "matmul_persistent", ("configs",), _BODY, OLD),
        ValueSite(">=0.5.4.post1,<0.5.20", _OPS, "_matmul_persistent_triton", ("configs",), _BODY, OLD),
        ValueSite(">=0.5.20", _OPS, "_matmul_persistent_triton", ("configs",), _BODY, TYPED),
        ValueSite(">=0.5.4.post3", _OPS, "bmm_batch_invariant", ("configs",), _BODY, BATCHED, inside=("ndim",)),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/29149",
            "the failure on SM89; two stages, or tiles half as wide, let the server start",
            "106,496 bytes asked for, 101,376 there (L40S)",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/34486", "sizes by GPU, proposed upstream for SM8x"),
    )
    examples = (
        Example(
            "0.5.18",
            {**mini.UTILS, _FILE: _source()},
            {_FILE: _source(test="is_sm120_supported()", imported=_NAMED)},
            "both matmuls get two stages in float16",
            Direction.FIX,
        ),
        Example("0.5.18", {**mini.UTILS, _FILE: _source(stages=2)}, {}, "right already", Direction.FIX),
    )
    usage = "--enable-deterministic-inference with --dtype float16 (or a float16 checkpoint)."
    measure = "Start such a server: without the fix it dies while it warms up, if your triton asks for as much."
