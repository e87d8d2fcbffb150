"""The MoE runner that the server chooses for mixed ModelOpt checkpoints."""

from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.sites import EqualsSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang.moe_runner_modelopt_fp4 import ARGS, HANDLER, OVERRIDES, RESOLVER

_IN = f"sglang/{OVERRIDES}"
_BEFORE = """\
from sglang.srt.runtime_context import get_platform


def _moe_runner_backend_quant_constraints(view, moe_runner_backend):
    if moe_runner_backend == "auto" and view.quantization == "modelopt_fp4" and get_platform().is_sm120:
        return "flashinfer_cutlass"
    return moe_runner_backend
"""
_AFTER = _BEFORE.replace(
    'view.quantization == "modelopt_fp4"',
    '(view.quantization == "modelopt_fp4" or (view.quantization == "modelopt_mixed" and get_platform().is_sm120))',
)


def _site(versions: str, path: str, within: str, predicate: str) -> EqualsSite:
    mentions = ("modelopt_fp4", "auto", predicate)
    return EqualsSite(versions, path, within, mentions=mentions, equals="modelopt_fp4", also="modelopt_mixed")


class MoeRunnerModeloptMixed(Gate):
    """``--moe-runner-backend auto`` for mixed-precision ModelOpt checkpoints with NVFP4 experts.

    The resolver of ``moe-runner-modelopt-fp4`` asks for ``modelopt_fp4`` alone. A mixed checkpoint leaves ``auto``
    standing, its NVFP4 layers fall through to the TensorRT-LLM runner, and that has kernels for SM100 only. The
    recipe lets ``modelopt_mixed`` do as well, on SM120 and SM121 only: where upstream's condition names another SM
    beside them (SM110 from 0.5.22), that one keeps what it has.
    """

    id = "moe-runner-modelopt-mixed"
    engine = "sglang"
    family = "moe"
    title = "MoE runner chosen for mixed ModelOpt checkpoints"
    action = Action.OPEN
    level = Level.REPORTED
    targets = SM12X
    sites = (
        _site(">=0.5.13,<0.5.15", ARGS, HANDLER, "is_sm120_supported"),
        _site(">=0.5.15,<0.5.19", OVERRIDES, RESOLVER, "is_sm120_supported"),
        _site(">=0.5.19", OVERRIDES, RESOLVER, "is_sm120"),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/35617",
            "the same change proposed upstream, open; says what auto falls through to",
            "its unit tests cover both checkpoints on SM120 and the fallback elsewhere",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/30443",
            "mixed checkpoints use the same NVFP4 MoE method as modelopt_fp4, and the CUTLASS runner accepts both",
        ),
    )
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _IN: _BEFORE}, {_IN: _AFTER}, "mixed checkpoints as well"),
        Example("0.5.23", {**mini.PLATFORM, _IN: _AFTER}, {}, "opened already"),
    )
    risk = "None known beyond the runner itself, which modelopt_fp4 uses already."
    usage = "Nothing to set: --moe-runner-backend auto resolves to flashinfer_cutlass."
    measure = "Start a mixed NVFP4 checkpoint; compare with an explicit --moe-runner-backend flashinfer_cutlass."
