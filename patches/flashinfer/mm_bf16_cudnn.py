"""Mm_bf16, cuDNN backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MmBf16Cudnn(Gate):
    """The capabilities that mm_bf16 takes its cuDNN backend for. The requirement's body is the same in 0.6.10.post1
    and 0.6.11, but the runner behind it (graph building, plan policy, shape buckets) was rewritten in the same
    release, so it cannot be said that only the list changed.
    """

    id = "flashinfer.mm-bf16-cudnn"
    engine = "flashinfer"
    family = "gemm"
    title = "mm_bf16, cuDNN backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.3",
            "gemm/gemm_base.py",
            "_cudnn_mm_bf16_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    upstream_since = "0.6.11"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.11",
            "the first release that lists 120 and 121",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.6.11: the runner behind the list changed with it"
