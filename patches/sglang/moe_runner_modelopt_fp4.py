"""The MoE runner that the server chooses for NVFP4 checkpoints."""

from patcher.arch import SM120
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

ARGS, OVERRIDES = "srt/server_args.py", "srt/arg_groups/overrides.py"
HANDLER, RESOLVER = "ServerArgs._handle_moe_kernel_config", "_moe_runner_backend_quant_constraints"

_IN = f"sglang/{OVERRIDES}"
_SOURCE = """\
from sglang.srt.runtime_context import get_platform


def _moe_runner_backend_quant_constraints(view, moe_runner_backend):
    if moe_runner_backend == "auto" and view.quantization == "modelopt_fp4" and {test}:
        return "flashinfer_cutlass"
    return moe_runner_backend
"""
_UPSTREAM = _SOURCE.replace("{test}", "get_platform().is_sm120")
_EXACT = _SOURCE.replace("{test}", "get_device_sm() == 120").replace(
    "from sglang.srt.runtime_context import get_platform", "from sglang.srt.utils import get_device_sm, is_cuda"
)
_WIDENED = _EXACT.replace(
    "get_device_sm() == 120", "(get_device_sm() == 120 or (is_cuda() and get_device_sm() == 121))"
)


class MoeRunnerModeloptFp4(Gate):
    """``--moe-runner-backend auto`` resolved for ModelOpt NVFP4 checkpoints: FlashInfer's CUTLASS runner on SM12x.

    Upstream has it since 0.5.13 for both SM120 and SM121; the releases before have no resolver that goes by the
    quantization, so there is nothing to open in them: pass --moe-runner-backend flashinfer_cutlass. The variant
    for mixed checkpoints is a gate of its own: ``moe-runner-modelopt-mixed``.
    """

    id = "moe-runner-modelopt-fp4"
    engine = "sglang"
    family = "moe"
    title = "MoE runner chosen for NVFP4 checkpoints"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.13"
    needs_release = ">=0.5.13"
    needs_because = "no resolver by quantization in it"
    sites = (
        ConditionSite(
            ">=0.5.13,<0.5.15", ARGS, HANDLER, mentions=("modelopt_fp4", "is_sm120_supported"), witness=SM120
        ),
        ConditionSite(
            ">=0.5.15,<0.5.19", OVERRIDES, RESOLVER, mentions=("modelopt_fp4", "is_sm120_supported"), witness=SM120
        ),
        ConditionSite(">=0.5.19", OVERRIDES, RESOLVER, mentions=("modelopt_fp4",), witness=SM120),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/35617",
            "describes the resolver as it is for modelopt_fp4, and what goes wrong where it does not decide",
        ),
    )
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _IN: _UPSTREAM}, {}, "upstream has it"),
        Example("0.5.23", {**mini.PLATFORM, _IN: _EXACT}, {_IN: _WIDENED}, "were it for SM120 only, SM121 is added"),
    )
    usage = "Nothing to set: --moe-runner-backend auto resolves to flashinfer_cutlass."
    measure = "Compare with --moe-runner-backend triton on your own model."
