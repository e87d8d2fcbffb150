"""vLLM: where its names are, and how it writes "the GPU is an SM12x" from release to release."""

from patcher.arch import SM120, SM121
from patcher.gate import Engine, Spelling

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    package="vllm",
    distributions=("vllm",),
    related=("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "torch"),
    verified=">=0.10.2,<0.33.1",
    newest="0.33.0",
    version_files=("_version.py", "version.py"),
    # vLLM makes the object on first use. On CUDA it is this class or the one that asks NVML: the same capability.
    objects={
        "vllm.platforms.current_platform": {
            "cuda": "vllm.platforms.cuda.NonNvmlCudaPlatform",
            "hip": "vllm.platforms.rocm.RocmPlatform",
            "xpu": "vllm.platforms.xpu.XPUPlatform",
            "cpu": "vllm.platforms.cpu.CpuPlatform",
            "mps": "vllm.platforms.cpu.CpuPlatform",
            "hpu": "vllm.platforms.interface.UnspecifiedPlatform",  # nothing in vLLM itself is for it
        },
    },
    spellings={
        frozenset({SM120, SM121}): (
            Spelling("cls.is_device_capability_family(120)"),
            # A family is any minor version; from 0.13.
            Spelling("current_platform.is_cuda() and current_platform.is_device_capability_family(120)"),
            Spelling(
                "current_platform.is_cuda() and "
                "(current_platform.is_device_capability(120) or current_platform.is_device_capability(121))"
            ),
        ),
        frozenset({SM120}): (
            Spelling("cls.is_device_capability(120)"),
            Spelling("current_platform.is_cuda() and current_platform.is_device_capability(120)"),
        ),
        frozenset({SM121}): (
            Spelling("cls.is_device_capability(121)"),
            Spelling("current_platform.is_cuda() and current_platform.is_device_capability(121)"),
        ),
    },
)
