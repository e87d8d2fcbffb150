"""Attention through TensorRT-LLM kernels."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite


class AttentionTrtllm(Gate):
    """Whether attention may use FlashInfer's TensorRT-LLM kernels. Up to 0.24 for SM10x only (before 0.13 for SM100
    alone). From 0.25 the question is asked per phase: SM12x gets decode (XQA) and no prefill; what is shown here is
    the prefill side.
    """

    id = "vllm.attention-trtllm"
    engine = "vllm"
    family = "attention"
    title = "attention through TensorRT-LLM kernels"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.10.2,<0.11",
            "utils/flashinfer.py",
            "supports_trtllm_attention",
            mentions=("has_nvidia_artifactory",),
            refuses=True,
            given=(("has_nvidia_artifactory()", "True"),),  # whether the cubins can be downloaded
        ),
        ConditionSite(">=0.11", "utils/flashinfer.py", "supports_trtllm_attention"),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/utils/flashinfer.py",
            "says which phase runs where",
        ),
    )
    risk = "prefill has trtllm-gen cubins only, none for SM12x; decode through XQA is on by itself from vllm>=0.25"
