"""Bmm_mxfp8, cuDNN backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class BmmMxfp8Cudnn(Gate):
    """The capabilities that bmm_mxfp8 takes its cuDNN backend for. 0.6.12 listed 120 and 121 and rewrote the graphs
    and their workspace sizes in the same release.
    """

    id = "flashinfer.bmm-mxfp8-cudnn"
    engine = "flashinfer"
    family = "gemm"
    title = "bmm_mxfp8, cuDNN backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6",
            "gemm/gemm_base.py",
            "_cudnn_bmm_mxfp8_requirement",
            Unit.CAPABILITY,
            decorator="supported_compute_capability",
        ),
    )
    upstream_since = "0.6.12"
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.12",
            "the first release that lists 120 and 121",
        ),
    )
    risk = "upgrade to flashinfer-python>=0.6.12: the runner behind the list changed with it"
