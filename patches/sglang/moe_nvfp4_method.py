"""The NVFP4 MoE method of ModelOpt checkpoints."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.sites import ConditionSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_MODELOPT = "srt/layers/quantization/modelopt_quant.py"
_INIT = "ModelOptNvFp4FusedMoEMethod.__init__"
_SCHEME = "srt/layers/quantization/compressed_tensors/schemes/compressed_tensors_w4a4_nvfp4_moe.py"

_IN = f"sglang/{_MODELOPT}"
_BEFORE = """\
import torch

from sglang.srt.utils import is_cuda, is_sm100_supported


class ModelOptNvFp4FusedMoEMethod:
    def __init__(self, quant_config):
        self.quant_config = quant_config
        if not is_sm100_supported():
            raise ValueError("NVFP4 needs Blackwell")
"""
_AFTER = _BEFORE.replace(
    "if not is_sm100_supported():",
    "if not is_sm100_supported() and not (is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))):",
)
_AFTER_054 = _BEFORE.replace("is_sm100_supported\n", "is_sm100_supported, is_sm120_supported\n").replace(
    "if not is_sm100_supported():", "if not is_sm100_supported() and not is_sm120_supported():"
)
_UPSTREAM = _BEFORE.replace("is_sm100_supported", "is_blackwell_supported")


class MoeNvfp4Method(Gate):
    """The MoE method of ModelOpt NVFP4 checkpoints, whose constructor raises on anything but SM100.

    Upstream widened the test to all Blackwell GPUs in 0.5.4.post2; the experts then run on FlashInfer's CUTLASS
    fused MoE, which is built for major 12 since FlashInfer 0.4.0. Older FlashInfers have no such kernel, so the
    version that came with upstream's change is required. In 0.4.7 the release has no way to choose that runner,
    so it is asked for from 0.4.8.
    """

    id = "moe-nvfp4-method"
    engine = "sglang"
    family = "moe"
    title = "NVFP4 MoE of ModelOpt checkpoints"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.4.post2"
    needs_release = ">=0.4.8"
    needs_because = "this release cannot run NVFP4 experts on FlashInfer's CUTLASS kernels"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.4.1",
            because="its CUTLASS fused MoE for SM12x is what upstream relied on when it let them in (0.4.1)",
            link="https://github.com/flashinfer-ai/flashinfer/issues/2723",
        ),
    )
    sites = (
        ConditionSite(">=0.4.7,<0.5.4.post2", _MODELOPT, _INIT, mentions=("is_sm100_supported",), refuses=True),
        ConditionSite(">=0.5.4.post2,<0.5.19", _MODELOPT, _INIT, mentions=("is_blackwell_supported",), refuses=True),
        ConditionSite(">=0.5.19", _MODELOPT, _INIT, mentions=("is_blackwell",), refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/2723",
            "NVFP4 experts on SM120: the grouped GEMM needs a build for compute_120f, that is CUDA 13",
        ),
    )
    examples = (
        Example("0.5.2", {**mini.UTILS_BEFORE_054, _IN: _BEFORE}, {_IN: _AFTER}, "the targets are not refused"),
        Example("0.5.4", {**mini.UTILS, _IN: _BEFORE}, {_IN: _AFTER_054}, "with the name that 0.5.4 has"),
        Example("0.5.2", {**mini.UTILS_BEFORE_054, _IN: _AFTER}, {}, "opened already"),
        Example("0.5.9", {**mini.UTILS, _IN: _UPSTREAM}, {}, "upstream lets all of Blackwell in"),
    )
    risk = "Without FlashInfer's SM12x kernel the experts fail at the first forward pass, or give wrong tokens."
    usage = (
        "Launch with --moe-runner-backend flashinfer_cutlass (0.4.8 and 0.4.9: --enable-flashinfer-moe; to 0.5.0: "
        "--enable-flashinfer-cutlass-moe); build with CUDA 13."
    )
    measure = "Check answers first (a GSM8K sample), then tokens/s."
