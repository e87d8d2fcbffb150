"""FP4 cache of the sparse attention indexer."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite


class IndexerFp4(Gate):
    """The MXFP4 indexer cache: SM10x only; vLLM's own message names sm_120 as not supported. The logits kernel behind
    it (DeepGEMM) has no SM12x version for FP4.
    """

    id = "vllm.indexer-fp4"
    engine = "vllm"
    family = "attention"
    title = "FP4 cache of the sparse attention indexer"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.20,<0.28",
            "v1/attention/backends/mla/indexer.py",
            "DeepseekV32IndexerMetadataBuilder.__init__",
            mentions=("use_fp4_indexer_cache",),
            given=(("self.use_fp4_indexer_cache", "True"),),
        ),
        LocatedSite(
            ">=0.28",
            "v1/attention/backends/mla/indexer.py",
            "dsa_indexer_uses_fp4",
            mentions=("use_fp4",),
            refuses=True,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/v1/attention/backends/mla/indexer.py",
            "the refusal names sm_120",
        ),
    )
    risk = "the paged logits kernel for FP4 exists for SM10x only; the default (FP8) works"
