"""MLA, TOKENSPEED_MLA backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MlaTokenspeed(Gate):
    """The TokenSpeed MLA decode kernels: major 10 in every release that has them. No report on SM12x is public."""

    id = "vllm.mla-tokenspeed"
    engine = "vllm"
    family = "attention"
    title = "MLA, TOKENSPEED_MLA backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.21", "v1/attention/backends/mla/tokenspeed_mla.py", "TokenspeedMLABackend.supports_compute_capability"
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/attention/backends/mla/tokenspeed_mla.py",
            "the backend names SM100 alone",
        ),
    )
    risk = "the kernels are written for SM100, and no report on SM12x is public"
