"""Batched FP8 GEMM of DeepGEMM."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class DeepgemmBatch(Gate):
    """The capabilities that FlashInfer's DeepGEMM batched GEMM is taken for: SM10x in every release; its kernels are
    cubins for sm_100a.
    """

    id = "flashinfer.deepgemm-batch"
    engine = "flashinfer"
    family = "gemm"
    title = "batched FP8 GEMM of DeepGEMM"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6",
            "gemm/gemm_base.py",
            "_check_batch_deepgemm_fp8_nt_groupwise",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/deepseek-ai/DeepGEMM/issues/236",
            "DeepGEMM on SM12x: kernels for major 9 and 10 only",
        ),
    )
    risk = "the kernels are cubins for SM10x only"
