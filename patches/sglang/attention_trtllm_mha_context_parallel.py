"""trtllm_mha prefill under context parallelism."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang._trtllm_gen import NO_CUBINS, RUNNER


class AttentionTrtllmMhaContextParallel(Gate):
    """The check that keeps prefill context parallelism with trtllm_mha to SM100.

    The masks of a context-parallel shard are in the trtllm-gen context kernel; the fmha_v2 kernel that SM90 and
    SM12x get from 0.5.19 does not know them, and would attend to the wrong tokens. The check is right.
    """

    id = "attention-trtllm-mha-context-parallel"
    engine = "sglang"
    family = "attention"
    title = "trtllm_mha prefill with context parallelism"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.19",
            "srt/arg_groups/attention_hook.py",
            "handle_attention_backend_compatibility",
            mentions=("prefill_backend", "attn_cp_size"),
            refuses=True,
        ),
    )
    requires = (RUNNER,)
    evidence = (
        NO_CUBINS,
        Evidence(
            "https://github.com/sgl-project/sglang/pull/31959",
            "what SM12x gets for this prefill instead: fmha_v2",
        ),
    )
    risk = "The kernel behind it on SM12x (fmha_v2) has no masks for context-parallel shards: wrong answers."
