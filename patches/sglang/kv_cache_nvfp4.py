"""The NVFP4 KV cache."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_TENSOR = "srt/layers/quantization/kvfp4_tensor.py"
_HOOK = "srt/arg_groups/kv_cache_hook.py"
_FILE, _HOOK_FILE = f"sglang/{_TENSOR}", f"sglang/{_HOOK}"


def _tensor(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


class NVFP4KVQuantizeUtil:
    @staticmethod
    def quantize(tensor, scale):
        if {test}:
            from flashinfer import nvfp4_kv_quantize

            return nvfp4_kv_quantize(tensor, scale)
        return None

    @staticmethod
    def dequantize(tensor, scale):
        if {test}:
            from flashinfer import nvfp4_kv_dequantize

            return nvfp4_kv_dequantize(tensor, scale)
        return None
"""


def _hook(test: str) -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def handle_kv4_compatibility(cfg):
    if cfg.kv_cache_dtype == "nvfp4" and {test}:
        raise RuntimeError("nvfp4 needs SM100 or SM120")
"""


_SHUT = "get_platform().is_sm100"
_OPEN = "get_platform().is_sm100 or get_platform().is_sm120"
_CLOSED = {**mini.PLATFORM, _FILE: _tensor(_SHUT), _HOOK_FILE: _hook(f"not ({_SHUT})")}


class KvCacheNvfp4(Gate):
    """``--kv-cache-dtype nvfp4``: the choice of FlashInfer's NVFP4 kernels for writing and reading the KV cache.

    0.5.16 brings the option, and with it SM12x at all three places. In 0.5.11 to 0.5.15.post1 the same two choices
    exist in code that no option reaches, and the quantiser before them asserts SM90: there is nothing to open.
    Upstream: https://github.com/sgl-project/sglang/pull/21601
    """

    id = "kv-cache-nvfp4"
    engine = "sglang"
    family = "kv-cache"
    title = "NVFP4 KV cache"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    needs_release = ">=0.5.16"
    needs_because = "before it, no option reaches this code and its quantiser asserts SM90"
    upstream_since = "0.5.16"
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.7",
            because="its NVFP4 KV cache kernels admit SM120 and SM121 from that release on",
            link="https://github.com/sgl-project/sglang/pull/21601",
        ),
    )
    sites = (
        LocatedSite(">=0.5.11", _TENSOR, "NVFP4KVQuantizeUtil.quantize", leads_to=("nvfp4_kv_quantize",)),
        LocatedSite(">=0.5.11", _TENSOR, "NVFP4KVQuantizeUtil.dequantize", leads_to=("nvfp4_kv_dequantize",)),
        LocatedSite(
            ">=0.5.16,<0.5.19",
            "srt/server_args.py",
            "ServerArgs._handle_kv4_compatibility",
            mentions=("kv_cache_dtype", "nvfp4"),
            refuses=True,
        ),
        LocatedSite(">=0.5.19", _HOOK, "handle_kv4_compatibility", mentions=("kv_cache_dtype", "nvfp4"), refuses=True),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/21601",
            "the option and its SM120 support, first in 0.5.16",
            "Qwen3.5-35B on SM120: GSM8K 97.2 % with NVFP4, 97.1 % with bf16 KV cache",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/18314", "its predecessor, closed"),
    )
    risk = "The quantiser asserts SM90 in releases that lack the option."
    usage = (
        "--kv-cache-dtype nvfp4 --prefill-attention-backend flashinfer --decode-attention-backend trtllm_mha "
        "--disable-radix-cache"
    )
    measure = "Compare answers on long prompts with a bf16 KV cache, then the number of tokens that fit."
    examples = (
        Example(
            "0.5.23", {**mini.PLATFORM, _FILE: _tensor(_OPEN), _HOOK_FILE: _hook(f"not ({_OPEN})")}, {}, "open upstream"
        ),
        Example(
            "0.5.23",
            _CLOSED,
            {_FILE: _tensor(_OPEN), _HOOK_FILE: _hook(f"(not ({_SHUT}) and not get_platform().is_sm120)")},
            "a build that has the code but not the admission",
        ),
    )
