"""Sparse MLA, FLASHMLA_SPARSE backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class MlaFlashmlaSparse(Gate):
    """FlashMLA's sparse attention: majors 9 and 10 in every release. From 0.24 SM12x has a sparse backend of its
    own, FLASHINFER_MLA_SPARSE_SM120.
    """

    id = "vllm.mla-flashmla-sparse"
    engine = "vllm"
    family = "attention"
    title = "sparse MLA, FLASHMLA_SPARSE backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.11.1",
            "v1/attention/backends/mla/flashmla_sparse.py",
            "FlashMLASparseBackend.supports_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.20.2/cmake/external_projects/flashmla.cmake",
            "the architectures that FlashMLA is built for",
        ),
    )
    risk = "_flashmla_C holds code for SM90 and SM100 only; from 0.24 SM12x has FLASHINFER_MLA_SPARSE_SM120"
