"""Hand-written miniatures of SGLang's predicate modules, era by era, for the examples inside the recipes."""

_SM12X = """

def is_sm120_supported():
    return _major() == 12
"""

_SM121 = """

def is_sm121():
    return is_cuda() and torch.cuda.get_device_capability() == (12, 1)
"""

_COMMON = """\
from importlib.util import find_spec

import torch


def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None


def is_flashinfer_available():
    return find_spec("flashinfer") is not None


def _major():
    return torch.cuda.get_device_capability()[0] if is_cuda() else 0


def is_sm90_supported():
    return _major() == 9


def is_sm100_supported():
    return _major() == 10


def is_blackwell_supported():
    return _major() in (10, 12)


def get_device_sm():
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor
    return 0
"""

_PLATFORM = """\
_FACTS = {
    "is_cuda": "is_cuda",
    "is_sm90": "is_sm90_supported",
    "is_sm100": "is_sm100_supported",
    "is_sm120": "is_sm120_supported",
}


class Platform:
    def __getattr__(self, name):
        from sglang.srt.utils import common

        return getattr(common, _FACTS[name])()


_platform = Platform()


def get_platform():
    return _platform
"""

# Before 0.5.4: one module, and nothing that says SM12x.
UTILS_BEFORE_054 = {"sglang/srt/utils.py": _COMMON}

# From 0.5.4: a package that re-exports its module, with is_sm120_supported.
UTILS = {
    "sglang/srt/utils/__init__.py": "from sglang.srt.utils.common import *\n",
    "sglang/srt/utils/common.py": _COMMON + _SM12X,
}

# From 0.5.19: get_platform() behind a name map as well.
PLATFORM = {**UTILS, "sglang/srt/runtime_context.py": _PLATFORM}

# From 0.5.18: is_sm121 as well, which means exactly 12.1.
EXACT = {**PLATFORM, "sglang/srt/utils/common.py": _COMMON + _SM12X + _SM121}

# A kernel of extend attention, and what its module asks of the GPU, behind the imports.
EXTEND_KERNEL = """\
_is_cuda = is_cuda()
if _is_cuda:
    CUDA_CAPABILITY = torch.cuda.get_device_capability()


@triton.jit
def _fwd_kernel(Q, BLOCK_DMODEL, BLOCK_DPE, BLOCK_DV, BLOCK_M, BLOCK_N):
    pass


"""
