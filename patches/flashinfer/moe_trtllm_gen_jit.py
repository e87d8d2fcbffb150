"""Fused MoE of TensorRT-LLM (trtllm-gen)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MoeTrtllmGenJit(Gate):
    """The majors that the host side of the trtllm-gen MoE is built for. Its kernels come as ready cubins for sm_100a,
    sm_100f and sm_103a; flashinfer-cubin holds none for SM12x. Releases from 0.6.7 on list 12 all the same: being
    listed there does not mean that the MoE runs.
    """

    id = "flashinfer.moe-trtllm-gen-jit"
    engine = "flashinfer"
    family = "moe"
    title = "fused MoE of TensorRT-LLM (trtllm-gen)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.3.1,<0.4",
            "fused_moe/core.py",
            "gen_trtllm_gen_fused_moe_sm100_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
        KeyedSite(
            ">=0.4,<0.7.4",
            "jit/fused_moe.py",
            "gen_trtllm_gen_fused_moe_sm100_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
        KeyedSite(
            ">=0.7.4",
            "jit/fused_moe.py",
            "trtllm_gen_fused_moe_build_inputs",
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
            "https://github.com/flashinfer-ai/flashinfer/issues/3294",
            "the trtllm-gen MoE on SM12x: no cubin",
        ),
    )
    risk = "the kernels are cubins for SM10x only; there is none for SM12x to load"
