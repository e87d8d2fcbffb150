"""All-reduce kernels of TensorRT-LLM (one-shot, two-shot, fused with RMSNorm)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class CommJit(Gate):
    """The majors that FlashInfer builds trtllm_allreduce and trtllm_allreduce_fusion for. Before 0.6.17 the list
    leaves out 12, and so it should: trtllm_allreduce.cuh guards the Lamport kernels with __CUDA_ARCH__ < 1200, so
    they compile to empty bodies and return garbage without an error. 0.6.17 changed the list, the packing, the
    kernels and the cluster size together. Other engines' recipes ask this gate.
    """

    id = "flashinfer.comm-jit"
    engine = "flashinfer"
    family = "comm"
    title = "all-reduce kernels of TensorRT-LLM (one-shot, two-shot, fused with RMSNorm)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.3.1,<0.4",
            "comm/trtllm_ar.py",
            "gen_trtllm_comm_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
        KeyedSite(">=0.4", "jit/comm.py", "gen_trtllm_comm_module", Unit.MAJOR, keyword="supported_major_versions"),
    )
    upstream_since = "0.6.17"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/3903",
            "the list extended together with the kernels; says what widening it alone would do",
        ),
    )
    risk = (
        "upgrade to flashinfer-python>=0.6.17: with the list alone widened the SM12x kernels are compiled empty and "
        "return garbage without an error"
    )
