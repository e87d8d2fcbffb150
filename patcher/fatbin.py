"""Which SMs a compiled library holds code for, read from the headers of its CUDA fat binaries through mmap.

Nothing is decompressed and no code is read: an entry's header names its SM whether its payload is compressed or not.
Layout (calibrated with nvcc 13.0 on 13 targets): the ELF sections ``.nv_fatbin`` and ``__nv_relfatbin`` hold containers
(u32 magic 0xBA55ED50, u16 version, u16 header size, u64 size) of entries (u16 kind: 1 PTX, 2 machine code; u32 header
size at +4; u64 payload size at +8; u32 SM at +28; u64 flags at +40, where 0x100000 is "a" and 0x200000 "f").
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from patcher.arch import SM
from patcher.errors import IOFailure, SmPatchError

_MAGIC = 0xBA55ED50
_MAGIC_BYTES = struct.pack("<I", _MAGIC)
_SECTIONS = ("nv_fatbin", "nv_relfatbin")
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ")
_ENTRY_LEAST = 48
_PTX, _CODE = 1, 2
_SPECIFIC, _FAMILY = 0x100000, 0x200000
_CUBIN_MACHINE = 190
_CUBIN_NEW_ABI = 0x41


class NotALibrary(SmPatchError):
    """The file is no 64-bit ELF file, or its fat binaries are not laid out as known."""

    id = "not-a-library"


@dataclass(frozen=True, order=True)
class Arch:
    """A target of the compiler: 120, 120a (that SM only), 120f (its family)."""

    number: int
    letter: str = ""

    def __str__(self) -> str:
        return f"{self.number}{self.letter}"

    def runs_on(self, sm: SM) -> bool:
        """Whether machine code for it runs on ``sm``: plain and "f" code also on later SMs of the same major."""
        major, minor = divmod(self.number, 10)
        if major != sm.major:
            return False
        return minor == sm.minor if self.letter == "a" else minor <= sm.minor


@dataclass
class Contents:
    """How many entries of machine code and of PTX a library holds for each target."""

    code: Counter[Arch] = field(default_factory=Counter)
    ptx: Counter[Arch] = field(default_factory=Counter)

    def runs_on(self, sm: SM) -> bool:
        """Whether some machine code in it runs on ``sm`` (necessary for a kernel, not sufficient)."""
        return any(arch.runs_on(sm) for arch in self.code)

    def compiles_for(self, sm: SM) -> bool:
        """Whether some PTX in it can be compiled for ``sm`` by the driver (arch-specific PTX cannot)."""
        return any(not a.letter and a.number <= sm.major * 10 + sm.minor for a in self.ptx)


def read(path: Path) -> Contents:
    """What a library (.so) holds. Raises NotALibrary, IOFailure."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            contents = Contents()
            for start, end in _fatbin_sections(data, path):
                for kind, arch in _entries(data, start, end, path):
                    (contents.ptx if kind == _PTX else contents.code)[arch] += 1
            return contents
    except OSError as error:
        raise IOFailure(f"cannot read the library: {error.strerror}", where=str(path)) from error
    except ValueError as error:  # mmap refuses an empty file
        raise NotALibrary("the file is empty", where=str(path)) from error
    except struct.error as error:
        raise NotALibrary("the file ends in the middle of a header", where=str(path)) from error


def _fatbin_sections(data: mmap.mmap, path: Path) -> Iterator[tuple[int, int]]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotALibrary("this is no 64-bit little-endian ELF file", where=str(path))
    (headers,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, headers + index * size) for index in range(count)]
    if names >= len(sections):
        return
    strings = sections[names][4]
    for name_at, kind, _, _, offset, length in sections:
        end = data.find(b"\0", strings + name_at)
        name = data[strings + name_at : end].decode("ascii", "replace")
        if name.endswith(_SECTIONS) and kind != 8:  # SHT_NOBITS: taken out by strip --only-keep-debug
            yield offset, min(offset + length, len(data))


def _entries(data: mmap.mmap, start: int, end: int, path: Path) -> Iterator[tuple[int, Arch]]:
    at = start
    while at + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(data, at)
        if magic != _MAGIC:  # padding between containers
            at = data.find(_MAGIC_BYTES, at + 1, end)
            if at < 0:
                return
            continue
        entry, stop = at + header, at + header + size
        if header < _CONTAINER.size or stop > end:
            raise NotALibrary("a fat binary is cut short", where=f"{path} at {at:#x}")
        while entry + _ENTRY_LEAST <= stop:
            kind, _, entry_header, payload = _ENTRY.unpack_from(data, entry)
            if entry_header < _ENTRY_LEAST or entry + entry_header + payload > stop:
                raise NotALibrary("an entry of a fat binary is not laid out as known", where=f"{path} at {entry:#x}")
            if kind in (_PTX, _CODE):
                (number,) = struct.unpack_from("<I", data, entry + 28)
                (flags,) = struct.unpack_from("<Q", data, entry + 40)
                yield kind, Arch(number, "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else "")
            entry += entry_header + payload
        at = stop


def cubin_arch(path: Path) -> Arch | None:
    """The SM of a single .cubin file: from its name (``…_sm100f.cubin``), else its ELF header, else None.

    A header names the number only: a from f cannot be told there. Raises IOFailure.
    """
    named = arch_in_name(path.name)
    if named is not None:
        return named
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except OSError as error:
        raise IOFailure(f"cannot read the cubin: {error.strerror}", where=str(path)) from error
    if len(header) < 64 or header[:4] != b"\x7fELF" or struct.unpack_from("<H", header, 18)[0] != _CUBIN_MACHINE:
        return None
    (flags,) = struct.unpack_from("<I", header, 48)
    number = (flags >> 8) & 0xFF if header[7] == _CUBIN_NEW_ABI else flags & 0xFF
    return Arch(number)


def arch_in_name(name: str) -> Arch | None:
    """``sm100f``, ``Sm103a``, ``sm_120`` in a file name."""
    import re

    found = re.findall(r"(?:(?<![A-Za-z])sm_?|SM_?|Sm)(\d{2,3})([af]?)(?![\da-z])", name)
    return Arch(int(found[-1][0]), found[-1][1].lower()) if found else None


def summary(counts: Mapping[Arch, int]) -> str:
    """``80 (35), 90a (35)``."""
    return ", ".join(f"{arch} ({count})" for arch, count in sorted(counts.items())) or "none"
