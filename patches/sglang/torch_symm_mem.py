"""torch's symmetric-memory all-reduce, whose table has no row for SM12x."""

from patcher.anchors import ReadsTable
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_FOLDER = "srt/distributed/device_communicators"
_FILE = f"sglang/{_FOLDER}/torch_symm_mem.py"
_TABLE = "TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES"
_LEAVE = """\
logger.warning("torch symmetric memory has no all-reduce for SM12X, communicator is not available.")
return
"""


def _communicator(read: str, guard: str = "", names: str = "is_cuda") -> str:
    return f"""\
import logging

import torch

from sglang.srt.utils import {names}

TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES = {{9: {{2: 64, 4: 64}}, 10: {{2: 64, 4: 64}}}}

logger = logging.getLogger(__name__)


class TorchSymmMemCommunicator:
    def __init__(self, world_size):
        self.disabled = True
        self.device_capability = torch.cuda.get_device_capability()[0]
        if self.device_capability < 9:
            return
{guard}{read}        self.disabled = False
"""


_INDEXED = """\
        if world_size not in TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES[self.device_capability]:
            return
"""
_ASKED = """\
        sizes = TORCH_SYMM_MEM_ALL_REDUCE_MAX_SIZES.get(self.device_capability)
        if sizes is None:
            return
"""
_GUARD = """\
        # sm-patch: torch-symm-mem
        if is_sm120_supported():
            logger.warning("torch symmetric memory has no all-reduce for SM12X, communicator is not available.")
            return
"""


class TorchSymmMem(Gate):
    """``--enable-torch-symm-mem`` (``--enable-symm-mem`` at first): a table of sizes with rows for majors 9 and 10.

    The communicator turns itself off below major 9 and looks every other GPU up in the table, which is a
    KeyError at start-up on SM12x. 0.5.14 asks the table first and turns itself off, and so does the recipe: these GPUs
    have no NVLink multicast, which this all-reduce needs anyway, so a row in the table would help nobody.
    """

    id = "torch-symm-mem"
    engine = "sglang"
    family = "all-reduce"
    title = "torch symmetric-memory all-reduce: off instead of a KeyError"
    action = Action.CLOSE
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.14"
    sites = (
        GuardSite(
            ">=0.5.3,<0.5.4.post3",
            f"{_FOLDER}/symm_mem.py",
            "SymmMemCommunicator.__init__",
            ReadsTable("SYMM_MEM_ALL_REDUCE_MAX_SIZES"),
            _LEAVE,
            True,
        ),
        GuardSite(
            ">=0.5.4.post3",
            f"{_FOLDER}/torch_symm_mem.py",
            "TorchSymmMemCommunicator.__init__",
            ReadsTable(_TABLE),
            _LEAVE,
            True,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/blob/v0.5.14/python/sglang/srt/distributed/"
            "device_communicators/torch_symm_mem.py",
            "the release that asks the table before it reads it, and turns itself off",
        ),
    )
    risk = "Where it is left open, --enable-torch-symm-mem is a KeyError: 12 at start-up."
    usage = "Nothing to set: with the flag on, the server says that the communicator is not available and goes on."
    measure = "Nothing to measure."
    examples = (
        Example(
            "0.5.12",
            {**mini.UTILS, _FILE: _communicator(_INDEXED)},
            {_FILE: _communicator(_INDEXED, _GUARD, "is_cuda, is_sm120_supported")},
            direction=Direction.CLOSE,
        ),
        Example(
            "0.5.12",
            {**mini.UTILS, _FILE: _communicator(_INDEXED, _GUARD, "is_cuda, is_sm120_supported")},
            {},
            "closed already",
            Direction.CLOSE,
        ),
        Example(
            "0.5.23",
            {**mini.UTILS, _FILE: _communicator(_ASKED)},
            {},
            "upstream turns it off by itself",
            Direction.CLOSE,
        ),
    )
