"""Miniature engines for tests: predicates in the shapes of several eras, behind stars, maps and aliases."""

from __future__ import annotations

COMMON = """
import torch
from functools import lru_cache, partial


def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None


def _check(device_capability_majors, cuda_version):
    if not is_cuda():
        return False
    version = tuple(map(int, torch.version.cuda.split(".")[:2]))
    return torch.cuda.get_device_capability()[0] in device_capability_majors and version >= cuda_version


is_sm100_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[10], cuda_version=(12, 8)))
is_sm120_supported = lru_cache(maxsize=1)(partial(_check, device_capability_majors=[12], cuda_version=(12, 8)))


@lru_cache(maxsize=1)
def is_sm121() -> bool:
    return is_cuda() and torch.cuda.get_device_capability() == (12, 1)


def get_device_sm():
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor
    return 0
"""

CONTEXT = """
_PROBES = {
    "is_sm100": "is_sm100_supported",
    "is_sm120": "is_sm120_supported",
}


class Platform:
    def __init__(self):
        object.__setattr__(self, "_overrides", {})

    def __getattr__(self, name):
        probe = _PROBES.get(name)
        if probe is None:
            raise AttributeError(name)
        from sglang.srt.utils import common as _common

        return getattr(_common, probe)()


_PLATFORM = Platform()


def get_platform():
    return _PLATFORM
"""

USER = """
from sglang.srt.runtime_context import get_platform
from sglang.srt.utils import is_sm120_supported

_is_sm120 = is_sm120_supported()


class Layer:
    def forward(self, x):
        if _is_sm120 and x:
            return 1
        return 2 if get_platform().is_sm100 else 3


def apply_fusion(x):
    if is_sm120_supported():
        return x
"""

FILES = {
    "sglang/__init__.py": "",
    "sglang/version.py": '__version__ = "0.5.23"\n',
    "sglang/srt/__init__.py": "",
    "sglang/srt/utils/__init__.py": "from sglang.srt.utils.common import *\n",
    "sglang/srt/utils/common.py": COMMON,
    "sglang/srt/runtime_context.py": CONTEXT,
    "sglang/srt/layers/__init__.py": "",
    "sglang/srt/layers/user.py": USER,
}

# A torch that reports one GPU, and what else it is asked for.
TORCH = """
class cuda:
    @staticmethod
    def is_available(): return {available}
    @staticmethod
    def device_count(): return 1 if {available} else 0
    @staticmethod
    def get_device_capability(device=None): return {capability}
    @staticmethod
    def can_device_access_peer(a, b): return False
    @staticmethod
    def get_device_properties(device=None):
        class Properties:
            name = "Imaginary"
            total_memory = 8 * 2**30
            shared_memory_per_block_optin = 101376
            multi_processor_count = 10
        return Properties


class xpu:
    @staticmethod
    def is_available(): return False


class mps(xpu):
    pass


class version:
    cuda = {cuda!r}
    hip = None


__version__ = "2.9.0"
"""


def torch(capability: tuple[int, int] = (12, 0), cuda: str | None = "12.9", available: bool = True) -> dict[str, str]:
    return {"torch/__init__.py": TORCH.format(capability=capability, cuda=cuda, available=available)}
