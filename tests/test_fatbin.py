"""The SMs inside compiled libraries, read from hand-made ELF files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from patcher import fatbin
from patcher.arch import SM
from patcher.errors import IOFailure
from patcher.fatbin import Arch, NotALibrary
from tests.elf import CODE, COMPRESSED, FAMILY, PTX, SPECIFIC, container, cubin, entry, library


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    return path


def test_every_kind_of_entry_is_counted(tmp_path: Path) -> None:
    first = container(
        entry(80), entry(90, SPECIFIC), entry(100, FAMILY | COMPRESSED), entry(120, SPECIFIC, payload=4096)
    )
    second = container(entry(80), entry(90, kind=PTX), entry(120, FAMILY, PTX))
    data = library(
        [(".text", b"x" * 100), (".nv_fatbin", first + bytes(24) + second), ("__nv_relfatbin", container(entry(75)))]
    )
    found = fatbin.read(written(tmp_path, data))
    assert found.code == Counter({Arch(80): 2, Arch(90, "a"): 1, Arch(100, "f"): 1, Arch(120, "a"): 1, Arch(75): 1})
    assert found.ptx == Counter({Arch(90): 1, Arch(120, "f"): 1})


def test_the_magic_inside_a_payload_is_no_container(tmp_path: Path) -> None:
    trap = entry(90, payload=64)[:-64] + container(entry(120))[:64].ljust(64, b"\0")
    found = fatbin.read(written(tmp_path, library([(".nv_fatbin", container(trap, entry(80)))])))
    assert found.code == Counter({Arch(90): 1, Arch(80): 1})


def test_a_library_without_gpu_code_is_empty(tmp_path: Path) -> None:
    found = fatbin.read(written(tmp_path, library([(".text", b"x")])))
    assert not found.code and not found.ptx


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\n", "no 64-bit little-endian ELF"),
        (b"\x7fELF\x01\x01" + bytes(80), "no 64-bit little-endian ELF"),
        (b"\x7fELF\x02\x01" + bytes(20), "ends in the middle of a header"),
        (library([(".nv_fatbin", container(entry(90))[:-8])]), "cut short"),
        (library([(".nv_fatbin", container(b"\x02\x00\x01\x01" + bytes(92)))]), "not laid out as known"),
    ],
)
def test_damaged_files_are_errors_not_answers(tmp_path: Path, data: bytes, what: str) -> None:
    with pytest.raises(NotALibrary, match=what):
        fatbin.read(written(tmp_path, data))


def test_a_missing_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(IOFailure):
        fatbin.read(tmp_path / "none.so")


@pytest.mark.parametrize(
    ("arch", "runs", "not_on"),
    [
        (Arch(120, "a"), ["120"], ["121", "90", "100"]),
        (Arch(120, "f"), ["120", "121"], ["100"]),
        (Arch(120), ["120", "121"], ["90"]),
        (Arch(121), ["121"], ["120"]),
        (Arch(80), ["80", "86", "89"], ["90", "75"]),
        (Arch(100, "f"), ["100", "103"], ["120", "110"]),
    ],
)
def test_code_runs_within_its_major(arch: Arch, runs: list[str], not_on: list[str]) -> None:
    assert [arch.runs_on(SM(int(t[:-1]), int(t[-1]))) for t in runs] == [True] * len(runs)
    assert [arch.runs_on(SM(int(t[:-1]), int(t[-1]))) for t in not_on] == [False] * len(not_on)


def test_plain_ptx_serves_later_sms_and_specific_ptx_does_not(tmp_path: Path) -> None:
    plain = fatbin.read(
        written(tmp_path, library([(".nv_fatbin", container(entry(80, kind=PTX), entry(80, kind=CODE)))]))
    )
    assert plain.compiles_for(SM(12, 0)) and not plain.runs_on(SM(12, 0)) and not plain.compiles_for(SM(7, 5))
    specific = fatbin.read(written(tmp_path, library([(".nv_fatbin", container(entry(90, SPECIFIC, PTX)))])))
    assert not specific.compiles_for(SM(12, 0))


def test_a_cubin_tells_by_its_name_or_its_header(tmp_path: Path) -> None:
    named = tmp_path / "Bmm_t128x8_sm100f.cubin"
    named.write_bytes(cubin(100))
    assert fatbin.cubin_arch(named) == Arch(100, "f")
    for new_abi in (True, False):
        unnamed = tmp_path / "kernel.fp8_gemm.0123.cubin"
        unnamed.write_bytes(cubin(103, new_abi))
        assert fatbin.cubin_arch(unnamed) == Arch(103)
    unnamed.write_bytes(b"not a cubin")
    assert fatbin.cubin_arch(unnamed) is None
    assert fatbin.arch_in_name("fmhaSm103aKernel_QE4m3") == Arch(103, "a")
    assert fatbin.arch_in_name("tram120.cubin") is None
