"""CUTLASS FMHA (prefill for SM10x)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class FmhaCutlassJit(Gate):
    """The majors that the SM100 CUTLASS FMHA is built for. Up to 0.6.6 the list held 12 although the kernel is
    written in tcgen05; 0.6.7 took it out.
    """

    id = "flashinfer.fmha-cutlass-jit"
    engine = "flashinfer"
    family = "attention"
    title = "CUTLASS FMHA (prefill for SM10x)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.3.1,<0.4",
            "jit/attention/pytorch.py",
            "gen_fmha_cutlass_sm100a_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
        KeyedSite(
            ">=0.4",
            "jit/attention/modules.py",
            "gen_fmha_cutlass_sm100a_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.7",
            "the first release whose list leaves 12 out",
        ),
    )
    risk = "the kernel is written for tcgen05, which SM12x lacks; use the fa2 backend"
