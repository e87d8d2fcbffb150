"""The trtllm_mha attention backend for decode."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang.attention_trtllm_mha_prefill import (
    _ARGS,
    _ASKED,
    _COMPATIBILITY,
    _HOOK,
    _OPENED,
    _SHUT,
    _UPSTREAM,
    _hook,
)

_DECODE = ("decode_backend", "trtllm_mha")


class AttentionTrtllmMhaDecode(Gate):
    """The check that keeps ``trtllm_mha`` decode to SM100, later to SM90, SM100 and SM12x.

    On SM12x FlashInfer answers this decode call with its XQA kernel. XQA wants its query in 16 bits even where the
    KV cache is fp8, which SGLang knows from 0.5.10 on (``is_xqa_impl``) and where upstream opened the gate.
    Before, one check guards prefill and decode together: opening it would let prefill in as well, which has no
    kernel, and fp8 KV caches would get a wrong query type. Upstream: https://github.com/sgl-project/sglang/pull/17115
    """

    id = "attention-trtllm-mha-decode"
    engine = "sglang"
    family = "attention"
    title = "trtllm_mha attention backend, decode (XQA)"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.10"
    needs_because = "before it, the same check guards prefill, and the decode code does not know XQA's query type"
    upstream_since = "0.5.10"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.5.2",
            because="its trtllm decode call reaches the XQA kernel on SM12x from 0.5.2 on",
            link="https://github.com/sgl-project/sglang/pull/17115",
        ),
    )
    sites = (
        LocatedSite(">=0.5.1,<0.5.3", _ARGS, "ServerArgs.__post_init__", under=_ASKED, refuses=True),
        LocatedSite(">=0.5.3,<0.5.10", _ARGS, _COMPATIBILITY, under=_ASKED, refuses=True),
        LocatedSite(">=0.5.10,<0.5.19", _ARGS, _COMPATIBILITY, mentions=_DECODE, refuses=True),
        LocatedSite(">=0.5.19", _HOOK, "handle_attention_backend_compatibility", mentions=_DECODE, refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/17115",
            "XQA enabled for SM90 and SM120, first in 0.5.10",
            "SM120, Qwen3.5-35B-A3B-FP8, 64 streams: 1315.7 tok/s with XQA, 1369.4 with the flashinfer backend",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/9140", "SM120 owners ask for a way past the check"),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/32269",
            "speculative decoding on this path needs a mask that SGLang does not pass yet",
        ),
    )
    risk = "Prefill on the same backend dies with 'Unsupported architecture'; an fp8 KV cache gets a wrong query type."
    usage = "--decode-attention-backend trtllm_mha with another --prefill-attention-backend; no speculative decoding."
    measure = "Compare decode tokens/s with --attention-backend flashinfer: upstream measured XQA 4 % slower on SM120."
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
                f"sglang/{_HOOK}": _hook(_SHUT, _OPENED),
            },
            "a build that has the kernel but not the admission",
        ),
    )
