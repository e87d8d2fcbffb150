"""FlashInfer's KDA prefill kernel for Kimi linear attention."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X


class KdaFlashinferPrefill(Gate):
    """The check that keeps FlashInfer's KDA prefill kernel (Kimi Linear, Kimi K3) to SM100 and SM103 exactly.

    The kernel is written for tcgen05. The triton KDA prefill is the default everywhere else and works on SM12x.
    """

    id = "kda-flashinfer-prefill"
    engine = "sglang"
    family = "linear-attention"
    title = "FlashInfer KDA prefill"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.22",
            "srt/layers/attention/linear/kernels/kda_flashinfer_prefill.py",
            "FlashInferKDAPrefillKernel.__init__",
            refuses=True,
        ),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=(("sglang/srt/layers/attention/linear/kernels/kda_flashinfer_prefill.py", r"KDA prefill requires"),),
            because="upstream names the capabilities that the kernel is built for",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3170",
            "why SM100 kernels do not carry over: other tensor cores, a rewrite for SM12x",
        ),
    )
    risk = "The kernel is written for tcgen05, which SM12x has not; the triton kernel is used instead."
