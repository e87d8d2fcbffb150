"""Native NVFP4 prefill, which reads the packed cache without dequantising it."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang._trtllm_gen import NO_CUBINS, RUNNER


class KvCacheNvfp4Prefill(Gate):
    """``--prefill-kv-cache-dequant-dtype nvfp4``: prefill straight from the packed NVFP4 cache, for SM100 only.

    It is trtllm-gen's GenMHA, machine code for SM10x. SM12x uses the NVFP4 cache with an fp8 workspace for
    prefill (the ``auto`` of the same option), which is what the check's own message advises.
    """

    id = "kv-cache-nvfp4-prefill"
    engine = "sglang"
    family = "kv-cache"
    title = "native NVFP4 prefill"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.21",
            "srt/arg_groups/kv_cache_hook.py",
            "handle_nvfp4_prefill_kv_dequant_dtype",
            mentions=("requested_dtype", "nvfp4"),
            refuses=True,
        ),
    )
    requires = (RUNNER,)
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/36340",
            "the option: native on SM100 through GenMHA, an fp8 workspace on SM120",
        ),
        NO_CUBINS,
    )
    risk = "The kernel is trtllm-gen, which has no machine code for SM12x."
