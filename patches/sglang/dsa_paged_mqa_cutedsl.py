"""The CuTe DSL kernel for paged MQA logits of DSA."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_BACKEND = "srt/layers/attention/dsa/paged_mqa_logits_backend.py"
_KERNEL = "dsa/cutedsl_paged_mqa_logits.py"
_CALL = "cute_dsl_fp8_paged_mqa_logits"


class DsaPagedMqaCutedsl(Gate):
    """The two checks that keep the ``cutedsl`` backend for paged MQA logits to SM100.

    The kernel is CuTe DSL code for tcgen05, which SM12x does not have; both the backend's choice and the kernel
    itself raise. SM12x has DeepGEMM's kernel for the same logits from 0.5.17. Nothing to open.
    """

    id = "dsa-paged-mqa-cutedsl"
    engine = "sglang"
    family = "dsa"
    title = "CuTe DSL paged MQA logits"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(">=0.5.15", _BACKEND, "DSAPagedMQALogitsBackend.resolve", refuses=True),
        LocatedSite(">=0.5.15,<0.5.17", f"jit_kernel/{_KERNEL}", _CALL, refuses=True),
        LocatedSite(">=0.5.17", f"kernels/ops/attention/{_KERNEL}", _CALL, refuses=True),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=(
                (f"sglang/kernels/ops/attention/{_KERNEL}", r"only supports SM 100"),
                (f"sglang/jit_kernel/{_KERNEL}", r"only supports SM 100"),
            ),
            because="the kernel itself names the family that it is for",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3170",
            "why SM100 kernels do not carry over: other tensor cores, a rewrite for SM12x",
        ),
    )
    risk = "The kernel needs tcgen05, which SM12x has not, and raises by itself as well."
