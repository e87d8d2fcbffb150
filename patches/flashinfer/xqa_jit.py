"""XQA decode attention."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class XqaJit(Gate):
    """The majors that XQA is built for. 12 is among them in every release that has it: this is the decode attention
    that SM12x gets where SM10x gets trtllm-gen.
    """

    id = "flashinfer.xqa-jit"
    engine = "flashinfer"
    family = "attention"
    title = "XQA decode attention"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (KeyedSite(">=0.5", "jit/xqa.py", "gen_xqa_module", Unit.MAJOR, keyword="supported_major_versions"),)
    upstream_since = "0.5.0"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.5.0",
            "the first release with it, 12 listed",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.5.0"
