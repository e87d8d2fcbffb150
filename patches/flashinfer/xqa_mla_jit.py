"""XQA decode attention for MLA."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class XqaMlaJit(Gate):
    """The majors that XQA's MLA kernel is built for: 12 alone, in every release that has it."""

    id = "flashinfer.xqa-mla-jit"
    engine = "flashinfer"
    family = "attention"
    title = "XQA decode attention for MLA"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (KeyedSite(">=0.5", "jit/xqa.py", "gen_xqa_module_mla", Unit.MAJOR, keyword="supported_major_versions"),)
    upstream_since = "0.5.0"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.5.0",
            "the first release with it, 12 listed",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.5.0"
