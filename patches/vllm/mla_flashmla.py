"""MLA, FLASHMLA backend."""

from patcher.arch import SM, SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite


class MlaFlashmla(Gate):
    """FlashMLA: majors 9 and 10 (before 0.11.1 major 9 alone). The library that vLLM ships (_flashmla_C) holds machine
    code for SM90 and SM100 only, and no PTX.
    """

    id = "vllm.mla-flashmla"
    engine = "vllm"
    family = "attention"
    title = "MLA, FLASHMLA backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.10.2,<0.11.1",
            "attention/ops/flashmla.py",
            "is_flashmla_supported",
            mentions=("get_device_capability",),
            refuses=True,
            witness=SM(9, 0),
        ),
        ConditionSite(
            ">=0.11.1", "v1/attention/backends/mla/flashmla.py", "FlashMLABackend.supports_compute_capability"
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.20.2/cmake/external_projects/flashmla.cmake",
            "the architectures that FlashMLA is built for",
        ),
    )
    risk = "_flashmla_C holds code for SM90 and SM100 only: no kernel image for SM12x"
