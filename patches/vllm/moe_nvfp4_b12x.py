"""NVFP4 MoE through FlashInfer's b12x kernels."""

from patcher.arch import SM120
from patcher.gate import Action, Evidence, Gate, Level
from patcher.literals import LiteralSite


class MoeNvfp4B12x(Gate):
    """FlashInfer's b12x NVFP4 MoE, written for SM120: in vLLM from 0.22, and left out of the automatic choice.

    vLLM leaves it out because of SM121 (a guard in CUTLASS refuses the MMA there). On exact SM120 without expert
    parallelism ``--moe-backend flashinfer_b12x`` chooses it, so there is nothing to patch: a flag is better than an
    edit, and says in your configuration what it does.
    """

    id = "vllm.moe-nvfp4-b12x"
    engine = "vllm"
    family = "moe"
    title = "NVFP4 MoE, FlashInfer b12x backend by default"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120})
    sites = (
        LiteralSite(
            ">=0.22",
            "model_executor/layers/fused_moe/oracle/nvfp4.py",
            "select_nvfp4_moe_backend",
            holds=("NvFp4MoeBackend.FLASHINFER_CUTEDSL_BATCHED", "NvFp4MoeBackend.MARLIN"),
            element="NvFp4MoeBackend.FLASHINFER_B12X",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/pull/47577",
            "b12x in the automatic choice, discussed: why it is left out",
        ),
    )
    usage = "vllm serve MODEL --moe-backend flashinfer_b12x (SM120 alone, without --enable-expert-parallel)"
    risk = (
        "no patch is needed, a flag does it: --moe-backend flashinfer_b12x, on SM120 without expert parallelism; "
        "vLLM leaves it out of the automatic choice because of SM121"
    )
