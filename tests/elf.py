"""Hand-made ELF files with fat binaries: headers as nvcc writes them, payloads of zeros."""

from __future__ import annotations

import struct
from collections.abc import Sequence

PTX, CODE = 1, 2
PLAIN, SPECIFIC, FAMILY = 0, 0x100000, 0x200000
COMPRESSED = 0x8000


def entry(sm: int, flags: int = PLAIN, kind: int = CODE, payload: int = 32) -> bytes:
    """One entry: a 64-byte header and its payload."""
    head = struct.pack("<HHIQ", kind, 0x101, 64, payload).ljust(28, b"\0")
    head += struct.pack("<I", sm).ljust(12, b"\0") + struct.pack("<Q", flags)
    return head.ljust(64, b"\0") + bytes(payload)


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(sections: Sequence[tuple[str, bytes]]) -> bytes:
    """A 64-bit little-endian ELF file with these sections, and the string table that names them."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _ in sections) + b".shstrtab\0"
    data, headers = b"", [bytes(64)]
    for name, content in (*sections, (".shstrtab", names)):
        at = names.index(name.encode() + b"\0")
        kind = 3 if name == ".shstrtab" else 1
        headers.append(struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(data), len(content), 0, 0, 1, 0))
        data += content
    start = 64 + len(data)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    return header + data + b"".join(headers)


def cubin(number: int, new_abi: bool = True) -> bytes:
    """The header of a .cubin file."""
    ident = b"\x7fELF\x02\x01\x01" + (b"\x41" if new_abi else b"\x33")
    flags = number << 8 | 2 if new_abi else number
    rest = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 0, flags, 64, 0, 0, 64, 0, 0)
    return ident.ljust(16, b"\0") + rest
