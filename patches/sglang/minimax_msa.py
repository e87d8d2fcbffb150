"""MiniMax-M3's sparse attention kernels."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X


class MinimaxMsa(Gate):
    """``msa_available``: the MSA kernels of MiniMax-M3 for SM100 and SM103 exactly.

    They are tcgen05 kernels from a package of their own. Elsewhere SGLang falls back to its triton implementation of
    the same sparse attention, which is right on SM12x. Nothing to open.
    """

    id = "minimax-msa"
    engine = "sglang"
    family = "attention"
    title = "MSA kernels of MiniMax-M3"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (LocatedSite(">=0.5.14", "srt/layers/attention/minimax_sparse_ops/msa.py", "msa_available", refuses=True),)
    requires = (
        ShutOutBy(
            "sglang",
            lines=(("sglang/srt/layers/attention/minimax_sparse_ops/msa.py", r"cap\[0\] != 10"),),
            because="upstream names the capabilities that its kernels are built for",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3170",
            "why SM100 kernels do not carry over: other tensor cores, a rewrite for SM12x",
        ),
    )
    risk = "The kernels are built for SM100 and SM103 only; SGLang's triton fallback is used instead."
