"""DeepGEMM, the just-in-time FP8 GEMMs."""

from patcher.arch import SM, SM120, SM121
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import Exports
from patcher.sites import GuardSite, ReturnsFalse
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FIRST = "srt/layers/quantization/deep_gemm.py"
_OLD = "srt/layers/quantization/deep_gemm_wrapper/configurer.py"
_NEW = "srt/layers/deep_gemm_wrapper/configurer.py"
_FUNCTION = "_compute_enable_deep_gemm"

APIS = Exports(
    "sgl-deep-gemm",
    path="deep_gemm/__init__.py",
    names=("fp8_einsum", "m_grouped_fp8_fp4_gemm_nt_contiguous", "transform_sf_into_required_layout"),
    since=">=0.1.5",
    because="builds without these functions predate the SM120 kernels",
    link="https://github.com/sgl-project/sglang/pull/34827",
)

_IN_OLD, _IN_NEW = f"sglang/{_OLD}", f"sglang/{_NEW}"
_SOURCE = """\
import os

from sglang.srt.utils import get_device_sm, is_cuda


def _compute_enable_deep_gemm():
    sm_version = get_device_sm()
{guard}    if sm_version < 90:
        return False
{exact}    try:
        import deep_gemm
    except ImportError:
        return False
    return os.environ.get("ENABLE_JIT_DEEPGEMM") == "1"


ENABLE_JIT_DEEPGEMM = _compute_enable_deep_gemm()
"""
_GUARD = "    # sm-patch: deepgemm-enable\n    if {}:\n        return False\n"
_EXACT = "    if sm_version == 120:\n        return False\n"
_PROBE = (
    "    if sm_version in (120, 121):\n        try:\n            from deep_gemm import fp8_einsum\n"
    "        except ImportError:\n            return False\n"
)


def _source(guard: str = "", exact: str = "") -> str:
    return _SOURCE.replace("{guard}", _GUARD.format(guard) if guard else "").replace("{exact}", exact)


_BOTH_OLD = "is_cuda() and get_device_sm() in (120, 121)"
_ONLY_121 = "is_cuda() and get_device_sm() == 121"


class DeepgemmEnable(Gate):
    """Whether DeepGEMM is used at all: ``ENABLE_JIT_DEEPGEMM``.

    From 0.4.7.post1 the only test is a floor of SM90, which SM120 and SM121 pass, and the DeepGEMM of that time
    has no code for them: "Unsupported architecture". 0.5.13 leaves out SM120 by ``== 120``; SM121 slips through
    until 0.5.20. SM120 is supported from 0.5.20 and SM121 from 0.5.21: both are then let in only if the installed
    deep_gemm has the functions that came with their kernels, which upstream looks for itself. The recipe closes
    DeepGEMM to each of the two in the releases that have no code for it, and leaves it alone in the others.
    """

    id = "deepgemm-enable"
    engine = "sglang"
    family = "deepgemm"
    title = "DeepGEMM (just-in-time FP8 GEMMs)"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    closes_when_unmet = True
    needs_release = {SM120: ">=0.5.20", SM121: ">=0.5.21"}
    needs_because = "its DeepGEMM paths have no code for this SM, and DeepGEMM answers 'Unsupported architecture'"
    upstream_checks = (APIS,)
    upstream_since = {SM120: "0.5.13"}
    sites = (
        # Bound in the try that this condition stands in, so that elsewhere the name may as well be unbound.
        LocatedSite(
            "<0.4.7.post1",
            _FIRST,
            "",
            mentions=("sm_version",),
            witness=SM(9, 0),
            given=(("sm_version", "get_device_sm()"),),
        ),
        GuardSite(">=0.4.7.post1,<0.5.4", _OLD, _FUNCTION, ReturnsFalse(), "return False\n", closes=True),
        GuardSite(">=0.5.4", _NEW, _FUNCTION, ReturnsFalse(), "return False\n", closes=True),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/25877",
            "SM120 let through: 'Unsupported architecture' from DeepGEMM",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/18870",
            "0.5.8.post1 on 8x RTX PRO 6000: the default DeepGEMM fails, triton works",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/36551", "SM121 slips through the test for exactly 120"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/39482",
            "in 0.5.20 SM121 gets DeepGEMM with the wrong scales, which DeepGEMM asserts on; merged for 0.5.21",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/30059",
            "GB10 (SM121) reaches DeepGEMM and fails while kernels compile",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/34827",
            "sgl-deep-gemm 0.1.5 is the first with kernels for major 12",
        ),
    )
    examples = (
        Example(
            "0.5.3", {**mini.UTILS_BEFORE_054, _IN_OLD: _source()}, {_IN_OLD: _source(_BOTH_OLD)}, "", Direction.CLOSE
        ),
        Example(
            "0.5.18",
            {**mini.UTILS, _IN_NEW: _source(exact=_EXACT)},
            {_IN_NEW: _source(_ONLY_121, _EXACT)},
            "upstream keeps SM120 out; SM121 is kept out as well",
            Direction.CLOSE,
        ),
        Example("0.5.18", {**mini.UTILS, _IN_NEW: _source(_ONLY_121, _EXACT)}, {}, "closed already", Direction.CLOSE),
        Example("0.5.21", {**mini.UTILS, _IN_NEW: _source(exact=_PROBE)}, {}, "upstream probes both", Direction.CLOSE),
    )
    usage = "Nothing to set; block-FP8 GEMMs then use CUTLASS or triton."
    measure = "Start a block-FP8 model with deep_gemm installed: with the gate too open it stops in DeepGEMM."
