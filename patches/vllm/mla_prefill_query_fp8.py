"""MLA prefill with an FP8 query."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MlaPrefillQueryFp8(Gate):
    """Whether the query of MLA prefill is quantised to FP8: SM10x only, because only the FLASHINFER and
    TRTLLM_RAGGED prefill backends take it, and both are SM10x.
    """

    id = "vllm.mla-prefill-query-fp8"
    engine = "vllm"
    family = "attention"
    title = "MLA prefill with an FP8 query"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.17",
            "model_executor/layers/attention/mla_attention.py",
            "backend_supports_prefill_query_quantization",
            refuses=True,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/attention/mla_attention.py",
            "the two backends that take it, and why",
        ),
    )
    risk = "the prefill backends that take an FP8 query run on SM10x only"
