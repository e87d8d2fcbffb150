"""FlashInfer's FP8 GEMM for ModelOpt checkpoints with one scale for a tensor."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_MODELOPT = "srt/layers/quantization/modelopt_quant.py"
_FILE = f"sglang/{_MODELOPT}"


def _method(test: str, imported: str = "is_sm100_supported") -> str:
    return f"""\
from sglang.srt.utils import is_flashinfer_available, {imported}


class ModelOptFp8LinearMethod:
    def __init__(self, quant_config):
        self.quant_config = quant_config
        self.enable_flashinfer_bmm = {test}
"""


_CLOSED = _method("is_sm100_supported() and is_flashinfer_available()")
_OPENED = _method(
    "(is_sm100_supported() or is_sm120_supported()) and is_flashinfer_available()",
    "is_sm100_supported, is_sm120_supported",
)


class GemmFp8PerTensor(Gate):
    """The FP8 GEMM of dense ModelOpt layers whose weights and activations have one static scale each.

    From 0.5.14 SM100 sends them to FlashInfer's ``bmm_fp8`` (cuBLAS), which FlashInfer lists for SM120 and SM121 as
    well; everybody else keeps a row-wise CUTLASS kernel, for which both scales are spread out on every call. From
    0.5.17 upstream admits SM12x. The operator itself is there for SM12x from the start: it is defined for every
    Blackwell.
    """

    id = "gemm-fp8-per-tensor"
    engine = "sglang"
    family = "gemm"
    title = "FlashInfer FP8 GEMM for ModelOpt layers with one scale"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.17"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.1",
            because="its bmm_fp8 lists SM120 and SM121 (supported_compute_capability in gemm/gemm_base.py)",
            link="https://github.com/flashinfer-ai/flashinfer/blob/v0.6.1/flashinfer/gemm/gemm_base.py",
        ),
    )
    sites = (
        LocatedSite(
            ">=0.5.14",
            _MODELOPT,
            "ModelOptFp8LinearMethod.__init__",
            leads_to=("enable_flashinfer_bmm",),
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/pull/28333", "the path, for SM100 alone, first in 0.5.14"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/33148",
            "SM90 added; cuBLAS behind it covers SM89 to SM121, and SM120 has the path by then",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/33632", "shapes of it measured on SM120"),
    )
    risk = "The GEMM is another one: compare answers."
    usage = "Nothing to set; dense FP8 layers of ModelOpt checkpoints (also mixed ones) use it."
    measure = "Compare decode and prefill tokens/s of a ModelOpt FP8 checkpoint with and without it."
    examples = (
        Example("0.5.14", {**mini.UTILS, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.14", {**mini.UTILS, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
