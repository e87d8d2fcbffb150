"""Which identifiers of a source file speak of the GPU's SM, told from the name alone.

Used to find gates nobody has catalogued: the meaning of what is found is then worked out by ``predicate``.
"""

from __future__ import annotations

import re
from functools import cache

# Every identifier that speaks of an SM holds one of these; a file without any is not read further.
LITERALS: tuple[bytes, ...] = (
    b"sm_",
    b"sm1",
    b"sm8",
    b"sm9",
    b"SM_",
    b"SM1",
    b"SM8",
    b"SM9",
    b"lackwell",
    b"opper",
    b"apability",
    b"device_sm",
    b"cuda_arch",
    b"CUDA_ARCH",
    b"major_versions",
    b"device_properties",
)

_FAMILY = r"(?:sm_?(?:[89]\d|1[012]\d)[af]?|sm1[012]x|blackwell|hopper)"
_SPEAKS = re.compile(
    rf"""
      _*(?:not_)?(?:is|on|use|using|can|has|have|allow|enable|enabled|needs?|supports?|prefers?|requires?|only)_
        (?:\w*_)?{_FAMILY}(?:_\w*)?                     # is_sm100_supported, _use_sm90_humming, can_use_x_sm121
    | _*{_FAMILY}(?:_(?:supported|only|plus|device|or_\w+))?   # sm_90, _SM120, hopper
    | _*(?:\w+_)?capability(?:_(?:majors?|minor|tuple|int))?   # get_device_capability, compute_capability
    | _*devicecapability
    | _*(?:get_)?device_sm(?:_major)?(?:_nvidia_smi|_via_nvml)?
    | _*(?:get_jit_|get_|jit_|min_|max_)?cuda_arch(?:_major|_minor)?
    | \w*supported_major_versions | device_capability_majors
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Capabilities of other things than a GPU.
_ELSEWHERE = re.compile(r"(?i).*(?:conf_?compute|layerwise|disagg|dsa_impl|gluon|qmul4|dit)\w*capability.*|nvml\w+")

_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_QUOTE = re.compile(rb"['\"]")
PROPERTIES = "get_device_properties"


@cache
def speaks(name: str) -> bool:
    """Whether an identifier speaks of the GPU's SM by itself."""
    return _SPEAKS.fullmatch(name) is not None and _ELSEWHERE.fullmatch(name) is None


@cache
def _counts(token: bytes) -> bool:
    name = token.decode("ascii", "replace")
    return name == PROPERTIES or speaks(name)


# The literals in small letters, few of them; of a device's properties only ``.major`` and ``.minor`` speak of the SM.
_HINTS = tuple(dict.fromkeys(literal.lower() for literal in LITERALS if literal not in PROPERTIES.encode()))
_OF_PROPERTIES = (b"major", b"minor")


def might_speak(data: bytes) -> bool:
    """Whether a file can hold such an identifier at all (a few searches in its bytes)."""
    data = data.lower()
    if any(hint in data for hint in _HINTS):
        return True
    return PROPERTIES.encode() in data and any(part in data for part in _OF_PROPERTIES)


# Keys of a table by SM, which may stand on lines that speak of nothing.
_KEYS = (b"90:", b"100:", b"120:", b"(9, 0)", b"(10, 0)", b"(12, 0)")


def lines(data: bytes) -> list[tuple[int, int]]:
    """The byte spans of the lines (without what follows a ``#``) that hold such an identifier, in order.

    In a file that has any, lines with what may be a key of a table by SM are among them.
    """
    found: dict[int, int] = {}
    for literal in LITERALS:
        at = data.find(literal)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            if start not in found:
                comment = data.find(b"#", start, end)
                in_code = comment >= 0 and not _QUOTE.search(data, start, comment)
                stop = comment if in_code else end
                if any(_counts(token) for token in _IDENTIFIER.findall(data, start, stop)):
                    found[start] = end
            at = data.find(literal, end)
    for key in _KEYS if found else ():
        at = data.find(key)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            found.setdefault(data.rfind(b"\n", 0, at) + 1, end)
            at = data.find(key, end)
    return sorted(found.items())
