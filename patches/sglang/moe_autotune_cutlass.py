"""FlashInfer's autotuner for the CUTLASS MoE runner."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.literals import LiteralSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_RUNNER = "srt/model_executor/model_runner.py"
_BASE = "srt/model_executor/runner/base_runner.py"
_AUTOTUNE = "srt/model_executor/runner/flashinfer_autotune.py"
_METHOD = "ModelRunner._should_run_flashinfer_autotune"
_LISTED = ("flashinfer_trtllm", "flashinfer_mxfp4")
_ELEMENT = '"flashinfer_cutlass"'

_IN_RUNNER = f"sglang/{_RUNNER}"
_SOURCE = """\
import torch

from sglang.srt.utils import is_cuda, is_flashinfer_available


class ModelRunner:
    def _should_run_flashinfer_autotune(self):
        backend_str = self.server_args.moe_runner_backend
        if backend_str not in [
            "flashinfer_trtllm",
            "flashinfer_mxfp4",
            # "flashinfer_cutlass": not yet
        ]:
            return False
        major, _ = torch.cuda.get_device_capability()
        if major < 9:
            return False
        return True
"""
_OPENED = _SOURCE.replace("is_flashinfer_available\n", "is_flashinfer_available, is_sm120_supported\n").replace(
    "            # ", '            *(["flashinfer_cutlass"] if is_sm120_supported() else []),\n            # '
)
_UPSTREAM = _SOURCE.replace('# "flashinfer_cutlass": not yet', '"flashinfer_cutlass",')


class MoeAutotuneCutlass(Gate):
    """FlashInfer's autotuner, run before serving, for the ``flashinfer_cutlass`` MoE runner.

    It is no test of the SM: a list of runners that are tuned leaves out ``flashinfer_cutlass``, the one runner for
    NVFP4 experts on SM120 and SM121, so these two serve with untuned tactics. Upstream listed it in 0.5.13, with
    FlashInfer 0.6.12; before, a remark beside the list says that tuning it gives compile errors in FlashInfer, so
    that version is required. The element is added for SM120 and SM121 only. The floor of SM90 beside the list lets
    both in, in every release.
    """

    id = "moe-autotune-cutlass"
    engine = "sglang"
    family = "moe"
    title = "autotuning of the FlashInfer CUTLASS MoE runner"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.13"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.12",
            because="upstream lists this runner since it pins 0.6.12, and held it back before for errors in FlashInfer",
            link="https://github.com/flashinfer-ai/flashinfer/issues/2077",
        ),
    )
    sites = (
        LiteralSite(">=0.5.7,<0.5.14", _RUNNER, _METHOD, holds=_LISTED, element=_ELEMENT),
        LiteralSite(
            ">=0.5.14,<0.5.15", _BASE, "BaseRunner._should_run_flashinfer_autotune", holds=_LISTED, element=_ELEMENT
        ),
        LiteralSite(">=0.5.15", _AUTOTUNE, "should_run_flashinfer_autotune", holds=_LISTED, element=_ELEMENT),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/2077",
            "what tuning this runner on SM120 printed with FlashInfer 0.5.2: tactics that fail, one by one; closed",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/4008",
            "such tactics pruned for SM120 and SM121, so that tuning no longer tries them",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3622",
            "a regression of the tuner at high concurrency, open: measure before you keep it",
        ),
    )
    examples = (
        Example("0.5.12", {**mini.UTILS, _IN_RUNNER: _SOURCE}, {_IN_RUNNER: _OPENED}, "added for the targets only"),
        Example("0.5.12", {**mini.UTILS, _IN_RUNNER: _OPENED}, {}, "opened already"),
        Example("0.5.13", {**mini.UTILS, _IN_RUNNER: _UPSTREAM}, {}, "upstream lists it"),
    )
    risk = "With a FlashInfer older than 0.6.12 tuning may fail to compile, and the server does not start."
    usage = "Launch with --moe-runner-backend flashinfer_cutlass; --disable-flashinfer-autotune turns it off again."
    measure = "Compare tokens/s (python -m sglang.bench_serving) with and without --disable-flashinfer-autotune."
