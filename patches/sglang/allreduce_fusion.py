"""FlashInfer's fused all-reduce + RMSNorm for tensor parallelism on one node."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import Assigns, ConditionSite, GuardSite, RefusesBySM
from patches.flashinfer._needed import ALL_REDUCE
from patches.sglang import _miniature as mini

TARGETS = frozenset({SM120, SM121})

FLASHINFER = ALL_REDUCE

_COMMUNICATOR = "srt/layers/communicator.py"
_ADD_NORM = "srt/layers/layer_boundary/residual/add_norm.py"
_FUSION = "srt/layers/flashinfer_comm_fusion.py"
_ALIAS = "_is_sm120_supported"

_RESOLVE = """\
if backend in ("auto", "trtllm") and not is_multi_node:
    return "trtllm"
raise ValueError(
    "FlashInfer allreduce fusion on SM12X has the trtllm backend on a single node only "
    f"(requested: {backend}, multi-node: {is_multi_node})."
)
"""

# The trtllm workspace is allocated without multicast; a GPU without it is no reason to skip the fusion.
_PREFLIGHT = """\
allocation_sizes.append(allocation_size)
continue
"""

_RAW = "torch.cuda.get_device_capability() in ((12, 0), (12, 1))"
_OLD_GATE = """\
import torch.distributed
from sglang.srt.utils import is_cuda, is_flashinfer_available, is_sm100_supported

_is_flashinfer_available = is_flashinfer_available()
_is_sm100_supported = is_cuda() and is_sm100_supported()


class CommunicateWithAllReduceAndLayerNormFn:
    @staticmethod
    def _gather_hidden_states_and_residual(x, norm, args):
        if (
            _is_sm100_supported
            and _is_flashinfer_available
            and hasattr(norm, "forward_with_allreduce_fusion")
            and args["fusion"]
        ):
            return norm.forward_with_allreduce_fusion(x)
        return norm(x)
"""
_OLD_GATE_OPEN = f"""\
import torch.distributed
from sglang.srt.utils import is_cuda, is_flashinfer_available, is_sm100_supported

_is_flashinfer_available = is_flashinfer_available()
_is_sm100_supported = is_cuda() and is_sm100_supported()
_is_sm120_supported = is_cuda() and {_RAW}  # sm-patch: allreduce-fusion


class CommunicateWithAllReduceAndLayerNormFn:
    @staticmethod
    def _gather_hidden_states_and_residual(x, norm, args):
        if (
            (_is_sm100_supported or _is_sm120_supported)
            and _is_flashinfer_available
            and hasattr(norm, "forward_with_allreduce_fusion")
            and args["fusion"]
        ):
            return norm.forward_with_allreduce_fusion(x)
        return norm(x)
"""
_GATE = """\
from sglang.srt.utils import (
    is_cuda,
    is_flashinfer_available,
    is_sm90_supported,
    is_sm100_supported,
)

_is_cuda = is_cuda()
_is_flashinfer_available = is_flashinfer_available()
_is_sm90_supported = _is_cuda and is_sm90_supported()
_is_sm100_supported = _is_cuda and is_sm100_supported()


def apply_flashinfer_allreduce_fusion(size):
    # who may
    return (_is_sm90_supported or _is_sm100_supported) and _is_flashinfer_available and size > 0
"""
_GATE_OPEN = """\
from sglang.srt.utils import (
    is_cuda,
    is_flashinfer_available,
    is_sm90_supported,
    is_sm100_supported,
    is_sm120_supported,
)

_is_cuda = is_cuda()
_is_flashinfer_available = is_flashinfer_available()
_is_sm90_supported = _is_cuda and is_sm90_supported()
_is_sm100_supported = _is_cuda and is_sm100_supported()
_is_sm120_supported = _is_cuda and is_sm120_supported()  # sm-patch: allreduce-fusion


def apply_flashinfer_allreduce_fusion(size):
    # who may
    return (_is_sm90_supported or _is_sm100_supported or _is_sm120_supported) and _is_flashinfer_available and size > 0
"""
_SERIAL_GATE = """\
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import is_cuda, is_flashinfer_available

_is_flashinfer_available = is_flashinfer_available()
_is_sm100_supported = is_cuda() and get_platform().is_sm100


def flashinfer_ar_fusion_applies(size):
    return _is_sm100_supported and _is_flashinfer_available and size > 0
"""
_SERIAL_GATE_OPEN = """\
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import is_cuda, is_flashinfer_available

_is_flashinfer_available = is_flashinfer_available()
_is_sm100_supported = is_cuda() and get_platform().is_sm100
_is_sm120_supported = is_cuda() and get_platform().is_sm120  # sm-patch: allreduce-fusion


def flashinfer_ar_fusion_applies(size):
    return (_is_sm100_supported or _is_sm120_supported) and _is_flashinfer_available and size > 0
"""
_SERIAL_FUSION = """\
from sglang.srt.runtime_context import get_platform


def _resolve_backend(backend, is_multi_node=False):
    if not (get_platform().is_sm90 or get_platform().is_sm100):
        raise ValueError("not here")
    return backend


def _flashinfer_trtllm_workspace_allocation_sizes(driver, sizes):
    allocation_sizes = []
    for size in sizes:
        allocation_size = size + 1
        # the multicast object of all ranks
        mc_prop = driver.Prop()
        allocation_sizes.append(driver.round(mc_prop, allocation_size))
    return allocation_sizes
"""
_SERIAL_FUSION_OPEN = """\
from sglang.srt.runtime_context import get_platform


def _resolve_backend(backend, is_multi_node=False):
    # sm-patch: allreduce-fusion
    if get_platform().is_sm120:
        if backend in ("auto", "trtllm") and not is_multi_node:
            return "trtllm"
        raise ValueError(
            "FlashInfer allreduce fusion on SM12X has the trtllm backend on a single node only "
            f"(requested: {backend}, multi-node: {is_multi_node})."
        )
    if not (get_platform().is_sm90 or get_platform().is_sm100):
        raise ValueError("not here")
    return backend


def _flashinfer_trtllm_workspace_allocation_sizes(driver, sizes):
    allocation_sizes = []
    for size in sizes:
        allocation_size = size + 1
        # sm-patch: allreduce-fusion
        if get_platform().is_sm120:
            allocation_sizes.append(allocation_size)
            continue
        # the multicast object of all ranks
        mc_prop = driver.Prop()
        allocation_sizes.append(driver.round(mc_prop, allocation_size))
    return allocation_sizes
"""
_COMMUNICATOR_FILE = f"sglang/{_COMMUNICATOR}"
_SERIAL_OPEN = {f"sglang/{_ADD_NORM}": _SERIAL_GATE_OPEN, f"sglang/{_FUSION}": _SERIAL_FUSION_OPEN}


class AllreduceFusion(Gate):
    """FlashInfer's fused all-reduce + RMSNorm (``trtllm_allreduce_fusion``), behind up to three gates in series.

    The run-time gate lets a batch use the fusion on SM90 and SM100 only. From 0.5.14 a backend resolver raises
    on every other GPU, and from 0.5.11 the workspace preflight asks for the multicast granularity, which a GPU
    without NVLink multicast answers with an error, although the trtllm workspace uses no multicast. Opening one
    of them alone gives nothing, so they are opened together. On SM12x the backend is always ``trtllm``: mnnvl,
    cutedsl and several nodes stay rejected. The auto-enable is a decision of its own: ``allreduce-fusion-auto``.

    SM120 and SM121 are both admitted: FlashInfer's kernel is built for major 12, and the change that enabled it
    names both. Upstream proposal: https://github.com/sgl-project/sglang/pull/32330
    """

    id = "allreduce-fusion"
    engine = "sglang"
    family = "allreduce-fusion"
    title = "fused all-reduce + RMSNorm (FlashInfer trtllm), single node"
    action = Action.OPEN
    level = Level.REPORTED
    targets = TARGETS
    requires = FLASHINFER
    sites = (
        ConditionSite(
            ">=0.4.9,<0.5.8",
            _COMMUNICATOR,
            "CommunicateWithAllReduceAndLayerNormFn._gather_hidden_states_and_residual",
            mentions=("_is_flashinfer_available", "forward_with_allreduce_fusion"),
            alias=_ALIAS,
        ),
        ConditionSite(
            ">=0.5.8,<0.5.21",
            _COMMUNICATOR,
            "apply_flashinfer_allreduce_fusion",
            mentions=("_is_flashinfer_available",),
            alias=_ALIAS,
        ),
        ConditionSite(
            ">=0.5.21,<0.5.22",
            _ADD_NORM,
            "apply_flashinfer_allreduce_fusion",
            mentions=("_is_flashinfer_available",),
            alias=_ALIAS,
        ),
        ConditionSite(
            ">=0.5.22",
            _ADD_NORM,
            "flashinfer_ar_fusion_applies",
            mentions=("_is_flashinfer_available",),
            alias=_ALIAS,
        ),
        GuardSite(">=0.5.14", _FUSION, "_resolve_backend", anchor=RefusesBySM(), body=_RESOLVE),
        GuardSite(
            ">=0.5.11",
            _FUSION,
            "_flashinfer_trtllm_workspace_allocation_sizes",
            anchor=Assigns("mc_prop", fails_on=TARGETS),
            body=_PREFLIGHT,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32330",
            "the same three gates opened for SM12x; closed by its author",
            "TP2 on 2x RTX PRO 6000: +5.2 % median decode; TP4 over PCIe: a substantial regression",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/30700",
            "the resolver and the preflight's multicast query named as the gates in series",
            "TP2: 126.25 -> 132.85 tok/s median",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/3903",
            "trtllm_allreduce extended to SM12x: architecture list, lamport packing, cluster clamp; first in 0.6.17",
            "single runs of a whole stack at TP2: +2 to +5 % decode, with up to 6.9 % drift between runs",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/15650",
            "what an open gate without the kernel does: a crash at CUDA-graph capture on SM120",
        ),
    )
    risk = (
        "With a FlashInfer that has no SM12x kernel the server crashes at CUDA-graph capture (sglang #15650) or "
        "returns garbage without an error."
    )
    usage = (
        "Launch with --flashinfer-allreduce-fusion-backend trtllm (0.5.14 and later) or "
        "--enable-flashinfer-allreduce-fusion (before), tensor parallelism on one node, no DP attention."
    )
    measure = (
        "Compare decode tokens/s with and without the flag on your own model and tensor parallelism "
        "(python -m sglang.bench_serving, several runs each): it measured faster at TP2 and slower at TP4 over PCIe."
    )
    examples = (
        Example(
            "0.4.9",
            {**mini.UTILS_BEFORE_054, _COMMUNICATOR_FILE: _OLD_GATE},
            {_COMMUNICATOR_FILE: _OLD_GATE_OPEN},
            "no predicate says SM12x yet: the capability is compared",
        ),
        Example("0.5.8", {**mini.UTILS, _COMMUNICATOR_FILE: _GATE}, {_COMMUNICATOR_FILE: _GATE_OPEN}),
        Example(
            "0.5.23",
            {**mini.PLATFORM, f"sglang/{_ADD_NORM}": _SERIAL_GATE, f"sglang/{_FUSION}": _SERIAL_FUSION},
            _SERIAL_OPEN,
            "three gates in series",
        ),
        Example("0.5.8", {**mini.UTILS, _COMMUNICATOR_FILE: _GATE_OPEN}, {}, "open already: nothing to do"),
        Example("0.5.23", {**mini.PLATFORM, **_SERIAL_OPEN}, {}, "all three open already: nothing to do"),
        Example(
            "0.5.23",
            {**mini.PLATFORM, **_SERIAL_OPEN, f"sglang/{_ADD_NORM}": _SERIAL_GATE},
            {f"sglang/{_ADD_NORM}": _SERIAL_GATE_OPEN},
            "two of three open by hand: the third is opened",
        ),
    )
