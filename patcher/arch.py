"""The SMs: compute capabilities of NVIDIA GPUs, and how people write them."""

from __future__ import annotations

import re
from typing import NamedTuple

from patcher.errors import UnknownSM


class SM(NamedTuple):
    """A compute capability. ``SM(12, 0)`` prints as ``120``."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}{self.minor}"

    @property
    def products(self) -> str:
        """The best-known products with this SM, or an empty string."""
        return PRODUCTS.get(self, "")


SM120 = SM(12, 0)
SM121 = SM(12, 1)

PRODUCTS: dict[SM, str] = {
    SM(7, 0): "V100",
    SM(7, 5): "T4, RTX 20xx",
    SM(8, 0): "A100",
    SM(8, 6): "RTX A6000, RTX 30xx",
    SM(8, 7): "Jetson Orin",
    SM(8, 9): "L40S, RTX 40xx",
    SM(9, 0): "H100, H200",
    SM(10, 0): "B200, GB200",
    SM(10, 1): "Thor under CUDA 12",
    SM(10, 3): "B300, GB300",
    SM(11, 0): "Thor",
    SM(12, 0): "RTX PRO 6000 Blackwell, RTX 50xx",
    SM(12, 1): "DGX Spark (GB10)",
}

ALL_SMS: tuple[SM, ...] = tuple(sorted(PRODUCTS))

_WRITTEN = re.compile(r"(?:sm|compute)?_?(\d{1,2})\.(\d)|(?:sm|compute)?_?(\d{1,2})(\d)[af]?", re.IGNORECASE)


def parse_sm(text: str) -> SM:
    """Read an SM written as ``120``, ``12.0``, ``sm_120``, ``sm_120a`` or ``compute_121``.

    Raises UnknownSM when it is not written like one or no GPU with that capability is known.
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match:
        major, minor = (match[1], match[2]) if match[1] else (match[3], match[4])
        sm = SM(int(major), int(minor))
        if sm in PRODUCTS:
            return sm
    known = ", ".join(str(sm) for sm in ALL_SMS)
    raise UnknownSM(f"'{text}' is not an SM that sm-patch knows", hint=f"one of {known} (also 12.0, sm_120, sm_120a)")
