"""Permute, sort and finalize kernels for the CuTe-DSL MoE."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MoeUtilsJit(Gate):
    """The majors that the helper kernels of the CuTe-DSL MoE are built for: 12 was listed up to 0.6.6, not from 0.6.7
    to 0.7.2.post1, and again from 0.7.4, where the kernels themselves changed (moeUtils.cu, routing paths for GPUs
    without clusters).
    """

    id = "flashinfer.moe-utils-jit"
    engine = "flashinfer"
    family = "moe"
    title = "permute, sort and finalize kernels for the CuTe-DSL MoE"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.4", "jit/moe_utils.py", "gen_moe_utils_module", Unit.MAJOR, keyword="supported_major_versions"
        ),
    )
    upstream_since = "0.7.4"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.7.4",
            "the first release since 0.6.6 whose list holds 12; moeUtils.cu and its binding changed with it",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.7.4: the kernels changed together with the list"
