"""The automatic choice of a block-FP8 GEMM."""

from patcher.arch import SM120
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FP8 = "srt/layers/quantization/fp8_utils.py"

_IN = f"sglang/{_FP8}"
_SOURCE = """\
from sglang.srt.utils import is_blackwell_supported, is_flashinfer_available, is_sm120_supported


def _dispatch_auto_backend():
    if {test} and is_flashinfer_available():
        return "flashinfer"
    return "cutlass"
"""
_OPEN = _SOURCE.replace("{test}", "is_blackwell_supported()")
_CLOSED = _SOURCE.replace("{test}", "(is_blackwell_supported() and not is_sm120_supported())")
_UPSTREAM = """\
from sglang.srt.utils import is_sm120_supported


def initialize_fp8_gemm_config(backend):
    if backend == "auto" and is_sm120_supported():
        backend = "triton"
    return backend
"""


class GemmFp8BlockAuto(Gate):
    """``auto`` for block-FP8 linear layers: FlashInfer's TensorRT-LLM GEMM on all of Blackwell.

    From 0.5.4.post2 to 0.5.9 upstream takes SM120 and SM121 for SM100 here, and the GEMM behind it has kernels for
    SM100 only. Closed, the next choice is CUTLASS, which has an SM120 kernel since sgl-kernel 0.3.9. Upstream
    leaves these two out from 0.5.10 (triton, then CUTLASS from 0.5.16). DeepGEMM, which comes before in the order,
    is ``deepgemm-enable``. Up to 0.5.6.post1 the branch also needs an environment variable.
    """

    id = "gemm-fp8-block-auto"
    engine = "sglang"
    family = "gemm"
    title = "automatic block-FP8 GEMM"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.10"
    sites = (
        ConditionSite(
            ">=0.5.4.post2,<0.5.6.post2", _FP8, "", mentions=("is_blackwell_supported", "is_flashinfer_available")
        ),
        ConditionSite(">=0.5.6.post2,<0.5.10", _FP8, "_dispatch_auto_backend", mentions=("is_flashinfer_available",)),
        ConditionSite(
            ">=0.5.10",
            _FP8,
            "initialize_fp8_gemm_config",
            mentions=("auto",),
            refuses=True,
            outsider=SM120,
            assuming="backend == 'auto'",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/kvcache-ai/ktransformers/issues/1889",
            "FlashInfer on SM120: gemm_fp8_nt_groupwise does not support backend 'trtllm' with capability 120",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/19721",
            "auto becomes triton on SM120, first in 0.5.10; CUTLASS named as the alternative",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/18872",
            "asks for CUTLASS as the default on SM120, with its kernel (PR #9969)",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/18870",
            "a report against CUTLASS: on 0.5.8.post1 it failed there too, and triton worked",
        ),
    )
    examples = (
        Example("0.5.9", {**mini.UTILS, _IN: _OPEN}, {_IN: _CLOSED}, "kept out", Direction.CLOSE),
        Example("0.5.9", {**mini.UTILS, _IN: _CLOSED}, {}, "closed already", Direction.CLOSE),
        Example("0.5.10", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream keeps it out", Direction.CLOSE),
    )
    usage = "Nothing to set; if CUTLASS fails on your card, pass --fp8-gemm-backend triton (0.5.6.post2 and later)."
    measure = "Start a block-FP8 model: with the gate too open the first forward pass fails."
