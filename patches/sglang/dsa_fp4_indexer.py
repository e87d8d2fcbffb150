"""The fp4 indexer of DeepSeek-V4."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_ASKED = ("enable_deepseek_v4_fp4_indexer",)
_HOOK = "srt/arg_groups/serving_hook.py"
_FILE = f"sglang/{_HOOK}"


def _hook(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def handle_environment_variables(cfg):
    if cfg.enable_deepseek_v4_fp4_indexer and {test}:
        raise ValueError("the fp4 indexer needs SM100 or SM120")
"""


_SHUT = "not (get_platform().is_sm100)"
_OPEN = "not (get_platform().is_sm100 or get_platform().is_sm120)"
_OPENED = f"({_SHUT} and not get_platform().is_sm120)"


class DsaFp4Indexer(Gate):
    """``--enable-deepseek-v4-fp4-indexer``, kept to SM100 until 0.5.16.

    It is no pure gate. The SM12x kernel (sm120_fp4_paged_mqa_logits) is in sgl-deep-gemm from 0.1.5.post1, and its
    schedule splits the KV cache by 128 where SGLang's own planner writes one for 256: 0.5.17 opens the gate
    together with the code that takes DeepGEMM's schedule on SM12x (``force_deep_gemm_metadata`` in
    dsv4/metadata.py). Before that release, opening it gives a missing kernel, or with a newer sgl-deep-gemm a wrong
    schedule without an error.
    """

    id = "dsa-fp4-indexer"
    engine = "sglang"
    family = "dsa"
    title = "fp4 indexer of DeepSeek-V4"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.17"
    needs_because = (
        "before it, SGLang plans the SM12x kernel's schedule wrongly, and its sgl-deep-gemm lacks the kernel"
    )
    upstream_since = "0.5.17"
    requires = (
        Package(
            "sgl-deep-gemm",
            ">=0.1.5.post1",
            because="earlier ones have no SM12x kernel for the fp4 indexer (impls/sm120_fp4_paged_mqa_logits.cuh)",
            link="https://github.com/sgl-project/sglang/issues/23657",
        ),
    )
    sites = (
        LocatedSite(
            ">=0.5.13,<0.5.19",
            "srt/server_args.py",
            "ServerArgs._handle_environment_variables",
            mentions=_ASKED,
            refuses=True,
        ),
        LocatedSite(">=0.5.19", _HOOK, "handle_environment_variables", mentions=_ASKED, refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/23657",
            "DeepSeek-V4 on SM120 before there was a kernel: DeepGEMM's indexer refuses the architecture",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/26087",
            "the same for GLM-5: paged MQA logits for majors 9 and 10 only",
        ),
    )
    risk = "A wrong schedule for the indexer, and with it wrong attention, without an error."
    usage = "--enable-deepseek-v4-fp4-indexer"
    measure = "Compare answers on long prompts, then decode tokens/s, with and without the flag."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _hook(_OPEN)}, {}, "open upstream: nothing to do"),
        Example(
            "0.5.23",
            {**mini.PLATFORM, _FILE: _hook(_SHUT)},
            {_FILE: _hook(_OPENED)},
            "a build that has the code but not the admission",
        ),
    )
