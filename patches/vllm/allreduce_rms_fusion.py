"""The default of the fused all-reduce + RMSNorm, and the sizes that it is used for."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.keyed import KeyedSite, Unit
from patcher.sites import ConditionSite
from patches.flashinfer._needed import ALL_REDUCE
from patches.vllm import _miniature as mini

_BEFORE_016 = "compilation/collective_fusion.py"
_FUSION = "compilation/passes/fusion/allreduce_rms_fusion.py"
_MAX = "FI_ALLREDUCE_FUSION_MAX_SIZE_MB"
_ONE_SHOT = "_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB"
_TWO_GPUS = "cfg.parallel_config.tensor_parallel_size == 2"
_SIZES = "{2: 2}"  # world size → MiB


def _table(versions: str, path: str, name: str) -> KeyedSite:
    return KeyedSite(versions, path, "", Unit.CAPABILITY, name=name, value=_SIZES)


_DEFAULT = """\
def enable_allreduce_rms_fusion(cfg):
    from vllm.platforms import current_platform
    from vllm.utils.flashinfer import has_flashinfer

    return (
        cfg.parallel_config.tensor_parallel_size > 1
        and current_platform.is_cuda()
        and has_flashinfer()
        and (
            current_platform.is_device_capability_family(100)
            or current_platform.is_device_capability(90)
        )
    )
"""
_DEFAULT_OPEN = _DEFAULT.replace(
    "is_device_capability(90)\n",
    "is_device_capability(90)"
    " or (current_platform.is_cuda() and current_platform.is_device_capability_family(120) "
    "and cfg.parallel_config.tensor_parallel_size == 2)\n",
)
_TABLES = """\
FI_ALLREDUCE_FUSION_MAX_SIZE_MB: dict[int, dict[int, float]] = {
    90: {2: 64},
    100: {
        2: 64,  # 64MB
        4: 32,
    },
}
_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB: dict[int, dict[int, float]] = {
    90: {2: 32},
    100: {2: 32},
}
"""
_TABLES_OPEN = """\
FI_ALLREDUCE_FUSION_MAX_SIZE_MB: dict[int, dict[int, float]] = {
    90: {2: 64},
    100: {
        2: 64,  # 64MB
        4: 32,
    },
    120: {2: 2},
    121: {2: 2},
}
_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB: dict[int, dict[int, float]] = {
    90: {2: 32},
    100: {2: 32},
    120: {2: 2},
    121: {2: 2},
}
"""
_NEW = {**mini.PLATFORMS, "vllm/config/vllm.py": _DEFAULT, f"vllm/{_FUSION}": _TABLES}
_NEW_OPEN = {"vllm/config/vllm.py": _DEFAULT_OPEN, f"vllm/{_FUSION}": _TABLES_OPEN}


class AllreduceRmsFusion(Gate):
    """FlashInfer's fused all-reduce + RMSNorm in vLLM: on by default for SM90 and SM10x (0.17), sized by tables.

    Two things keep SM12x out. The default leaves it off, and the two tables of sizes, keyed by capability, have no
    entry for it: then the pass turns itself off even when the user asks for it. Both are opened for two GPUs
    (``tensor_parallel_size == 2``) and messages of up to 2 MiB, the range in which it was measured to help;
    TP4 over PCIe regressed in public measurements (of SGLang), so no other world size gets an entry. From 0.11.1
    to 0.16 there is no default to change: the tables make ``fuse_allreduce_rms`` work where the user sets it.

    With backend ``auto`` vLLM tries mnnvl first and falls back to trtllm where the board has no multicast
    (0.20 and later); ``VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm`` says it outright.
    """

    id = "vllm.allreduce-rms-fusion"
    engine = "vllm"
    family = "allreduce-fusion"
    title = "fused all-reduce + RMSNorm by default (two GPUs, up to 2 MiB)"
    action = Action.OPEN
    level = Level.REPORTED
    targets = frozenset({SM120, SM121})
    requires = ALL_REDUCE
    sites = (
        ConditionSite(
            ">=0.17",
            "config/vllm.py",
            "enable_allreduce_rms_fusion",
            mentions=("tensor_parallel_size", "has_flashinfer"),
            provided=_TWO_GPUS,
        ),
        _table(">=0.11.1,<0.16", _BEFORE_016, _MAX),
        _table(">=0.11.1,<0.16", _BEFORE_016, _ONE_SHOT),
        _table(">=0.16", _FUSION, _MAX),
        _table(">=0.16", _FUSION, _ONE_SHOT),
    )
    evidence = (
        Evidence(
            "https://github.com/ormandj/vllm-deepseek-v4-flash-sm120",
            "the selector and the table extended for SM120 with two GPUs, in use",
            "+2 to +5 % decode at TP2 on RTX PRO 6000; 2 MiB is the measured crossover",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/3903",
            "the kernels for SM12x, first in flashinfer-python 0.6.17",
        ),
    )
    risk = (
        "With a FlashInfer older than 0.6.17 the all-reduce returns garbage without an error, or the server crashes "
        "at CUDA-graph capture."
    )
    usage = (
        "Nothing to set from vLLM 0.17 on (check the log for the fusion pass). Before: "
        '--compilation-config \'{"pass_config": {"fuse_allreduce_rms": true}}\'. To say the backend outright: '
        "VLLM_FLASHINFER_ALLREDUCE_BACKEND=trtllm."
    )
    measure = (
        "vllm bench serve with and without "
        '--compilation-config \'{"pass_config": {"fuse_allreduce_rms": false}}\' at the same load, several runs: the '
        "drift between runs reaches the size of the gain."
    )
    examples = (
        Example("0.33.0", _NEW, _NEW_OPEN, "the default and both tables"),
        Example(
            "0.12.0",
            {**mini.PLATFORMS, f"vllm/{_BEFORE_016}": _TABLES},
            {f"vllm/{_BEFORE_016}": _TABLES_OPEN},
            "before 0.17 there is no default: the tables alone",
        ),
        Example("0.33.0", {**_NEW, **_NEW_OPEN}, {}, "open already: nothing to do"),
    )
