"""CUTLASS fused MoE, the SM100 build."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MoeCutlassSm100Jit(Gate):
    """The majors of the SM100 build of the CUTLASS fused MoE. On SM12x FlashInfer takes a build of its own,
    gen_cutlass_fused_moe_sm120_module. Releases 0.6.7 to 0.6.15.post1 list 12 here as well; nothing on SM12x uses
    that code, and 0.6.16 took it out again.
    """

    id = "flashinfer.moe-cutlass-sm100-jit"
    engine = "flashinfer"
    family = "moe"
    title = "CUTLASS fused MoE, the SM100 build"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.3.1,<0.4",
            "fused_moe/core.py",
            "gen_cutlass_fused_moe_sm100_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
        KeyedSite(
            ">=0.4",
            "jit/fused_moe.py",
            "gen_cutlass_fused_moe_sm100_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/2725",
            "listed 12 in 0.6.7",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/3947",
            "took the dead SM12x code generation out in 0.6.16",
        ),
    )
    risk = (
        "there is nothing to gain: SM12x has a build of its own (gen_cutlass_fused_moe_sm120_module), and this one "
        "holds SM100 kernels"
    )
