"""SGLang's architecture predicates: in which releases each exists, and in which file. Facts only.

Written by scripts/symbols.py; the eras before 0.4.6 are not looked at, so "0.4.6" means 0.4.6 or earlier.
"""

# What ``probe`` calls.
PREDICATES = (
    "get_device_capability",
    "get_device_sm",
    "is_ampere_with_cuda_12_3",
    "is_arch_support_pdl",
    "is_blackwell",
    "is_blackwell_supported",
    "is_hopper_with_cuda_12_3",
    "is_nvidia_hopper",
    "is_sm100",
    "is_sm100_or_newer",
    "is_sm100_or_sm110",
    "is_sm100_or_sm110_supported",
    "is_sm100_supported",
    "is_sm110",
    "is_sm110_supported",
    "is_sm120",
    "is_sm120_supported",
    "is_sm121",
    "is_sm80_supported",
    "is_sm90",
    "is_sm90_fp8_mega_moe_available",
    "is_sm90_supported",
)

NEWEST = "0.5.23"

# Name → (first release, last release or None for the newest, file below the package).
SYMBOLS: dict[str, tuple[tuple[str, str | None, str], ...]] = {
    "_check_cuda_device_version": (("0.5.7", None, "srt/utils/common.py"),),
    "get_device_capability": (
        ("0.4.6", "0.5.2", "srt/utils.py"),
        ("0.5.3", None, "srt/utils/common.py"),
    ),
    "get_device_sm": (
        ("0.4.6", "0.5.2", "srt/utils.py"),
        ("0.5.3", None, "srt/utils/common.py"),
    ),
    "is_ampere_with_cuda_12_3": (
        ("0.4.6.post2", "0.5.2", "srt/utils.py"),
        ("0.5.3", None, "srt/utils/common.py"),
    ),
    "is_arch_support_pdl": (
        ("0.5.7", "0.5.15.post1", "jit_kernel/utils.py"),
        ("0.5.16", "0.5.16", "jit_kernel/utils/arch.py"),
        ("0.5.17", None, "kernels/jit/utils/arch.py"),
    ),
    "is_blackwell": (
        ("0.4.7", "0.5.2", "srt/utils.py"),
        ("0.5.3", "0.5.18", "srt/utils/common.py"),
        ("0.5.19", None, "srt/runtime_context.py"),
    ),
    "is_blackwell_supported": (("0.5.4.post2", None, "srt/utils/common.py"),),
    "is_hopper_with_cuda_12_3": (
        ("0.4.6", "0.5.2", "srt/utils.py"),
        ("0.5.3", "0.5.18", "srt/utils/common.py"),
        ("0.5.19", None, "srt/runtime_context.py"),
    ),
    "is_nvidia_hopper": (
        ("0.5.2", "0.5.15.post1", "srt/layers/attention/fla/utils.py"),
        ("0.5.16", None, "kernels/ops/attention/fla/utils.py"),
    ),
    "is_sm100": (("0.5.19", None, "srt/runtime_context.py"),),
    "is_sm100_or_newer": (("0.5.21", None, "srt/layers/attention/dsv4/v41_indexer/__init__.py"),),
    "is_sm100_or_sm110": (("0.5.19", None, "srt/runtime_context.py"),),
    "is_sm100_or_sm110_supported": (("0.5.17", None, "srt/utils/common.py"),),
    "is_sm100_supported": (
        ("0.4.6.post5", "0.4.6.post5", "srt/layers/quantization/fp8_utils.py"),
        ("0.4.7", "0.5.1.post2", "srt/layers/utils.py"),
        ("0.5.1.post3", "0.5.2", "srt/utils.py"),
        ("0.5.3", None, "srt/utils/common.py"),
    ),
    "is_sm110": (("0.5.22", None, "srt/runtime_context.py"),),
    "is_sm110_supported": (("0.5.22", None, "srt/utils/common.py"),),
    "is_sm120": (("0.5.19", None, "srt/runtime_context.py"),),
    "is_sm120_supported": (("0.5.4", None, "srt/utils/common.py"),),
    "is_sm121": (("0.5.18", None, "srt/utils/common.py"),),
    "is_sm80_supported": (("0.5.13", None, "srt/utils/common.py"),),
    "is_sm90": (("0.5.19", None, "srt/runtime_context.py"),),
    "is_sm90_fp8_mega_moe_available": (("0.5.17", None, "srt/layers/moe/mega_moe_sm90.py"),),
    "is_sm90_supported": (
        ("0.5.1", "0.5.1.post2", "srt/layers/utils.py"),
        ("0.5.1.post3", "0.5.2", "srt/utils.py"),
        ("0.5.3", None, "srt/utils/common.py"),
    ),
}
