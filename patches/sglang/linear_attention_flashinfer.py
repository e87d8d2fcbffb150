"""FlashInfer's GDN decode kernel as the default of linear attention."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_HOOK = "srt/arg_groups/attention_hook.py"
_FILE = f"sglang/{_HOOK}"
_ASKED = ("linear_attn_decode_backend", "mamba_ssm_dtype", "bfloat16")


def _hook(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def handle_linear_attn_backend(cfg):
    if (
        cfg.linear_attn_decode_backend is None
        and {test}
        and cfg.mamba_ssm_dtype == "bfloat16"
    ):
        cfg.linear_attn_decode_backend = "flashinfer"
"""


_CLOSED = _hook("get_platform().is_sm100")
_OPENED = _hook("(get_platform().is_sm100 or get_platform().is_sm120)")


class LinearAttentionFlashinfer(Gate):
    """The default that takes FlashInfer's GDN decode kernel where the state is bf16, for SM100 only.

    FlashInfer documents its bf16-state decode for SM90, SM100 and SM103, and compiles it at run time for any GPU
    from SM90; nobody has published that it is right on SM12x. The default there is triton, which works. So this is
    experimental: it changes a default only, and --linear-attn-decode-backend flashinfer tries the same without it.
    """

    id = "linear-attention-flashinfer"
    engine = "sglang"
    family = "linear-attention"
    title = "FlashInfer GDN decode as the default where the state is bf16"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.7",
            because="SGLang needs the fix of its GDN decode on SM100 and above (flashinfer #2810)",
            link="https://github.com/flashinfer-ai/flashinfer/pull/2810",
        ),
    )
    sites = (
        LocatedSite(
            ">=0.5.11,<0.5.19", "srt/server_args.py", "ServerArgs._handle_linear_attn_backend", mentions=_ASKED
        ),
        LocatedSite(">=0.5.19", _HOOK, "handle_linear_attn_backend", mentions=_ASKED),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/35080",
            "FlashInfer GDN tried on another Blackwell GPU; it is documented for SM90, SM100 and SM103",
        ),
    )
    risk = "The kernel is not documented for SM12x: it may fail to compile, or answer wrongly."
    usage = "--mamba-ssm-dtype bfloat16; --linear-attn-decode-backend triton goes back."
    measure = "Compare answers first (temperature 0), then decode tokens/s, with --linear-attn-decode-backend triton."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.23", {**mini.PLATFORM, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
