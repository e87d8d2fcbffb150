"""Router GEMM for DeepSeek-V3 (1 to 16 tokens)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class RouterGemm(Gate):
    """The capabilities that the small router GEMM is taken for: SM100, from 0.6.8 SM103, from 0.7.0 SM90. Nobody has
    measured it on SM12x, and no later release lists it.
    """

    id = "flashinfer.router-gemm"
    engine = "flashinfer"
    family = "gemm"
    title = "router GEMM for DeepSeek-V3 (1 to 16 tokens)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.5.3,<0.6.5",
            "gemm/routergemm_dsv3.py",
            "_mm_M1_16_K7168_N256_shape_checks",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
        KeyedSite(
            ">=0.6.5",
            "gemm/routergemm.py",
            "_mm_M1_16_K7168_N256_shape_checks",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.7.0",
            "the last release that changed the list: SM90 was added, SM12x was not",
        ),
    )
    risk = "no release lists SM12x for it, and no measurement on SM12x is public"
