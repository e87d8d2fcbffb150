"""The trtllm_mha attention backend for prefill."""

from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang._trtllm_gen import NO_CUBINS

_ARGS = "srt/server_args.py"
_COMPATIBILITY = "ServerArgs._handle_attention_backend_compatibility"
_HOOK = "srt/arg_groups/attention_hook.py"
_ASKED = ("trtllm_mha",)
_PREFILL = ("prefill_backend", "trtllm_mha")


def _hook(prefill: str, decode: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def handle_attention_backend_compatibility(cfg):
    prefill_backend = cfg.prefill
    decode_backend = cfg.decode
    if "trtllm_mha" in (prefill_backend, decode_backend):
        if prefill_backend == "trtllm_mha" and {prefill}:
            raise ValueError("trtllm_mha prefill")
        if decode_backend == "trtllm_mha" and {decode}:
            raise ValueError("trtllm_mha decode")
        if prefill_backend == "trtllm_mha" and not get_platform().is_sm100 and cfg.attn_cp_size > 1:
            raise ValueError("trtllm_mha prefill with context parallelism")
"""


_UPSTREAM = "not (get_platform().is_sm90 or get_platform().is_sm100 or get_platform().is_sm120)"
_SHUT = "not (get_platform().is_sm90 or get_platform().is_sm100)"
_OPENED = f"({_SHUT} and not get_platform().is_sm120)"


class AttentionTrtllmMhaPrefill(Gate):
    """The check that keeps ``trtllm_mha`` prefill to SM100.

    Until 0.5.18 prefill on this backend means FlashInfer's trtllm-gen context kernel, whose machine code exists
    for SM10x only: letting SM12x through ends in ``TllmGenFmhaRunner: Unsupported architecture``. From 0.5.19
    SGLang sends SM90 and SM12x to FlashInfer's fmha_v2 kernel instead and admits both, in code that earlier
    releases do not have, so there the gate is refused.
    """

    id = "attention-trtllm-mha-prefill"
    engine = "sglang"
    family = "attention"
    title = "trtllm_mha attention backend, prefill"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.19"
    needs_because = "before it, prefill calls the trtllm-gen kernel, which SM12x has no machine code for"
    upstream_since = "0.5.19"
    sites = (
        LocatedSite(">=0.5.1,<0.5.3", _ARGS, "ServerArgs.__post_init__", under=_ASKED, refuses=True),
        LocatedSite(">=0.5.3,<0.5.10", _ARGS, _COMPATIBILITY, under=_ASKED, refuses=True),
        LocatedSite(">=0.5.10,<0.5.19", _ARGS, _COMPATIBILITY, mentions=_PREFILL, refuses=True),
        LocatedSite(
            ">=0.5.19",
            _HOOK,
            "handle_attention_backend_compatibility",
            mentions=(*_PREFILL, "is_sm90"),
            refuses=True,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/31959",
            "why the old prefill path fails on SM120, and that fmha_v2 works there",
            "Qwen3.5-27B on an RTX PRO 6000, FlashInfer 0.6.14, bf16 KV cache",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/9140", "SM120 owners ask for a way past the check"),
        Evidence(
            "https://github.com/sgl-project/sglang/blob/v0.5.19/python/sglang/srt/layers/attention/"
            "trtllm_mha_backend.py",
            "the release that sends SM90 and SM12x to fmha_v2 (use_fmha_v2)",
        ),
        NO_CUBINS,
    )
    risk = "Prefill dies in FlashInfer with 'TllmGenFmhaRunner: Unsupported architecture'."
    usage = (
        "From 0.5.19: --prefill-attention-backend trtllm_mha with a bf16 KV cache "
        "(prefill with fp8_e4m3 is rejected on SM12x)."
    )
    measure = "Compare time to first token against --prefill-attention-backend flashinfer."
    examples = (
        Example(
            "0.5.23",
            {**mini.PLATFORM, f"sglang/{_HOOK}": _hook(_UPSTREAM, _UPSTREAM)},
            {},
            "open upstream: nothing to do",
        ),
        Example(
            "0.5.23",
            {**mini.PLATFORM, f"sglang/{_HOOK}": _hook(_SHUT, _SHUT)},
            {
                f"sglang/{_HOOK}": _hook(_OPENED, _SHUT),
            },
            "a build that has the kernel but not the admission",
        ),
    )
