"""Attention through TensorRT-LLM kernels."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class AttentionTrtllm(Gate):
    """Whether attention may use FlashInfer's TensorRT-LLM kernels. 0.10.2 asks in another way, which is not looked
    at. Up to 0.24 for SM10x only. From 0.25 the question is asked per phase: SM12x gets decode (XQA) and no
    prefill; what is shown here is the prefill side.
    """

    id = "vllm.attention-trtllm"
    engine = "vllm"
    family = "attention"
    title = "attention through TensorRT-LLM kernels"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (ConditionSite(">=0.11", "utils/flashinfer.py", "supports_trtllm_attention"),)
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/utils/flashinfer.py",
            "says which phase runs where",
        ),
    )
    risk = "prefill has trtllm-gen cubins only, none for SM12x; decode through XQA is on by itself from vllm>=0.25"
