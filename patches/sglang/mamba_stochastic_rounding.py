"""Stochastic rounding of the Mamba state cache with the triton backend."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_ASKED = ("mamba_backend", "triton")


class MambaStochasticRounding(Gate):
    """``--enable-mamba-cache-stochastic-rounding`` with ``--mamba-backend triton``, kept to SM100.

    The triton kernel emits ``cvt.rs.f16x2.f32``, a conversion with stochastic rounding that PTX has for SM100 and
    SM103 only (their "a" targets); for SM12x ptxas refuses it. The flashinfer backend of the same option rounds in
    software and is the way for SM12x, as the check's message says for SM90.
    """

    id = "mamba-stochastic-rounding"
    engine = "sglang"
    family = "mamba"
    title = "stochastic rounding of the Mamba state cache (triton)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.15,<0.5.19", "srt/server_args.py", "ServerArgs._handle_mamba_backend", mentions=_ASKED, refuses=True
        ),
        LocatedSite(">=0.5.19", "srt/arg_groups/mamba_hook.py", "handle_mamba_backend", mentions=_ASKED, refuses=True),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=(("sglang/srt/arg_groups/mamba_hook.py", r"cvt\.rs"),),
            because="upstream names the instruction that the kernel needs",
        ),
    )
    evidence = (
        Evidence(
            "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html",
            "cvt with .rs: supported on the SM100 family's targets, SM12x not among them",
        ),
    )
    risk = "The kernel's cvt.rs instruction does not exist on SM12x: it does not compile."
