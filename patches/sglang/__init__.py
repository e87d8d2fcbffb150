"""SGLang: where its names are, and how it writes "the GPU is an SM12x" from release to release."""

from patcher.arch import SM120, SM121
from patcher.gate import Engine, Spelling

SM12X = frozenset({SM120, SM121})

SHARED_MEMORY = {SM120: 101_376, SM121: 101_376}
"""Bytes of shared memory that one block may have (cudaDevAttrMaxSharedMemoryPerBlockOptin)."""

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    package="sglang",
    distributions=("sglang",),
    related=("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "sgl-kernel", "sglang-kernel", "torch"),
    verified=">=0.4.6,<0.5.24",
    essential=("srt",),
    newest="0.5.23",
    version_files=("version.py", "_version.py"),
    objects={"sglang.srt.environ.envs": {}},
    spellings={
        frozenset({SM120, SM121}): (
            Spelling("get_platform().is_sm120"),  # from 0.5.19; the name says 120, the meaning is major 12
            Spelling("is_sm120_supported()"),  # from 0.5.4; likewise major 12
            Spelling("torch.cuda.get_device_capability() in ((12, 0), (12, 1))"),
            Spelling("is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))"),
            Spelling("is_cuda() and get_device_sm() in (120, 121)"),
            Spelling("_is_cuda and torch.cuda.get_device_capability() in ((12, 0), (12, 1))"),
            Spelling("_is_cuda and get_device_sm() in (120, 121)"),
        ),
        frozenset({SM120}): (
            Spelling("is_sm120()"),  # from 0.5.20: exactly 12.0
            Spelling("torch.cuda.get_device_capability() == (12, 0)"),
            Spelling("is_cuda() and torch.cuda.get_device_capability() == (12, 0)"),
            Spelling("is_cuda() and get_device_sm() == 120"),
            Spelling("_is_cuda and torch.cuda.get_device_capability() == (12, 0)"),
            Spelling("_is_cuda and get_device_sm() == 120"),
        ),
        frozenset({SM121}): (
            Spelling("is_sm121()"),  # from 0.5.18: exactly 12.1
            Spelling("torch.cuda.get_device_capability() == (12, 1)"),
            Spelling("is_cuda() and torch.cuda.get_device_capability() == (12, 1)"),
            Spelling("is_cuda() and get_device_sm() == 121"),
            Spelling("_is_cuda and torch.cuda.get_device_capability() == (12, 1)"),
            Spelling("_is_cuda and get_device_sm() == 121"),
        ),
    },
)
