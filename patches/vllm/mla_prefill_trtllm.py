"""MLA prefill, TRTLLM_RAGGED backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MlaPrefillTrtllm(Gate):
    """The ragged prefill of trtllm-gen: major 10 in every release that has the prefill registry. Its kernels are
    cubins for SM10x.
    """

    id = "vllm.mla-prefill-trtllm"
    engine = "vllm"
    family = "attention"
    title = "MLA prefill, TRTLLM_RAGGED backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.22",
            "v1/attention/backends/mla/prefill/trtllm_ragged.py",
            "TrtllmRaggedPrefillBackend.supports_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/24633",
            "trtllm MLA on SM120: prefill does not work",
        ),
    )
    risk = "the kernels are cubins for SM10x only"
