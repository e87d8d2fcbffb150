"""A hand-written miniature of vLLM's platforms, for the examples inside the recipes."""

_INIT = """\
from typing import TYPE_CHECKING

from .interface import Platform

if TYPE_CHECKING:
    current_platform: Platform


def __getattr__(name):
    return make(name)
"""

_INTERFACE = """\
import enum
from typing import NamedTuple


class PlatformEnum(enum.Enum):
    CUDA = enum.auto()
    ROCM = enum.auto()
    XPU = enum.auto()
    CPU = enum.auto()
    UNSPECIFIED = enum.auto()


class DeviceCapability(NamedTuple):
    major: int
    minor: int

    def to_int(self) -> int:
        return self.major * 10 + self.minor


class Platform:
    _enum: PlatformEnum

    def is_cuda(self):
        return self._enum == PlatformEnum.CUDA

    @classmethod
    def get_device_capability(cls, device_id=0):
        return None

    @classmethod
    def is_device_capability(cls, capability, device_id=0):
        current = cls.get_device_capability(device_id=device_id)
        if current is None:
            return False
        if isinstance(capability, tuple):
            return current == capability
        return current.to_int() == capability

    @classmethod
    def is_device_capability_family(cls, capability, device_id=0):
        current = cls.get_device_capability(device_id=device_id)
        if current is None:
            return False
        return current.to_int() // 10 == capability // 10


class UnspecifiedPlatform(Platform):
    _enum = PlatformEnum.UNSPECIFIED
"""

_GPU = """\
from functools import cache

import torch

from .interface import DeviceCapability, Platform, PlatformEnum


class {base}(Platform):
    _enum = PlatformEnum.{member}
{more}

class {name}({base}):
    @classmethod
    @cache
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        major, minor = torch.cuda.get_device_capability(device_id)
        return DeviceCapability(major=major, minor=minor)
"""

_WITHOUT = """\
from .interface import Platform, PlatformEnum


class {name}(Platform):
    _enum = PlatformEnum.{member}
"""

CUDA = "vllm/platforms/cuda.py"


def cuda(more: str = "") -> str:
    """The CUDA platform's file, with ``more`` in the body of its base class."""
    return _GPU.format(base="CudaPlatformBase", name="NonNvmlCudaPlatform", member="CUDA", more=more)


PLATFORMS = {
    "vllm/platforms/__init__.py": _INIT,
    "vllm/platforms/interface.py": _INTERFACE,
    CUDA: cuda(),
    "vllm/platforms/rocm.py": _GPU.format(base="RocmBase", name="RocmPlatform", member="ROCM", more=""),
    "vllm/platforms/xpu.py": _WITHOUT.format(name="XPUPlatform", member="XPU"),
    "vllm/platforms/cpu.py": _WITHOUT.format(name="CpuPlatform", member="CPU"),
}
