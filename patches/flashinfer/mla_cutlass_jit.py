"""CUTLASS MLA."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MlaCutlassJit(Gate):
    """The majors that the CUTLASS MLA kernel is built for: 10 and 11 in every release. It is written in tcgen05
    instructions and tensor memory, which SM12x does not have.
    """

    id = "flashinfer.mla-cutlass-jit"
    engine = "flashinfer"
    family = "attention"
    title = "CUTLASS MLA"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(">=0.3.1,<0.4", "mla.py", "gen_mla_module", Unit.MAJOR, keyword="supported_major_versions"),
        KeyedSite(">=0.4", "jit/mla.py", "gen_mla_module", Unit.MAJOR, keyword="supported_major_versions"),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3263",
            "MLA on SM12x: what FlashInfer has and what it has not",
        ),
    )
    risk = "the kernel is written for tcgen05 and tensor memory, which SM12x lacks; no release has another one"
