"""trtllm_mha prefill on SM12x with an fp8 KV cache or skip-softmax."""

from patcher.arch import SM, SM120
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X


class AttentionTrtllmMhaFp8Prefill(Gate):
    """A check against SM12x alone: no trtllm_mha prefill with an fp8_e4m3 KV cache or skip-softmax there.

    On SM12x this prefill is FlashInfer's fmha_v2, which takes a 16-bit KV cache and knows no skip-softmax; SM100 has
    trtllm-gen, which does both. The check is right. With an fp8 KV cache, use the flashinfer backend for prefill.
    """

    id = "attention-trtllm-mha-fp8-prefill"
    engine = "sglang"
    family = "attention"
    title = "trtllm_mha prefill with an fp8 KV cache"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.19",
            "srt/arg_groups/attention_hook.py",
            "handle_attention_backend_compatibility",
            mentions=("prefill_backend", "kv_cache_dtype"),
            refuses=True,
            witness=SM(10, 0),
            outsider=SM120,
            shown_only="upstream checks what its SM12x kernel cannot do: behind the check there is no other kernel",
        ),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=(("sglang/srt/arg_groups/attention_hook.py", r"FMHAv2 prefill on SM120 does not support"),),
            because="upstream says what its SM12x kernel cannot do",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/31959",
            "trtllm_mha prefill through fmha_v2 on SM120, validated with a bf16 KV cache",
        ),
    )
    risk = "The kernel behind it on SM12x (fmha_v2) takes no fp8_e4m3 KV cache and no skip-softmax."
