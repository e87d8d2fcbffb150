"""``where`` on real releases: every predicate known to exist, in its file and form, and what it is really worth.

What each import path gives is checked by importing it, in a process in which torch reports the SM (packages that are
missing, torch among them, are stand-ins).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.version import Version

from patcher import catalogue
from patcher.arch import ALL_SMS, SM
from patcher.probe import Report, probe, questions
from patcher.where import Finder, Found
from scripts import releases

pytestmark = pytest.mark.releases

RELEASES = ("0.4.7", "0.5.1", "0.5.4", "0.5.8.post1", "0.5.14", "0.5.19", "0.5.23")

# Importing its package imports every model; some of those pickle and dump what they import, which no stand-in survives.
NOT_ON_STAND_INS = {"from sglang.srt.layers.attention.dsv4.v41_indexer import is_sm100_or_newer"}


class Era(NamedTuple):
    """A predicate in a range of releases: its file and form, whom it admits, from which CUDA on."""

    name: str
    path: str
    form: str
    first: str
    last: str
    admits: str
    cuda: str = ""


COMMON, UTILS, LAYERS = "srt/utils/common.py", "srt/utils.py", "srt/layers/utils.py"
CACHED = "def @lru_cache(maxsize=1)"
PLATFORMS = "srt/platforms"

# ``admits``: majors, exact capabilities, a least major, "sm" and "capability" for numbers, "arguments" for functions
# that take some, "" where nothing is to be told from source.
ERAS = (
    Era("_check_cuda_device_version", COMMON, "def", "0.5.7", "0.5.23", "arguments"),
    Era("get_device_capability", UTILS, "def", "0.4.0", "0.5.2", "capability"),
    Era("get_device_capability", COMMON, "def", "0.5.3", "0.5.23", "capability"),
    Era("get_device_capability", f"{PLATFORMS}/device_mixin.py", "method, def", "0.5.11", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/cuda.py", "method, def", "0.5.13", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/cpu.py", "method, def", "0.5.14", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/xpu.py", "method, def", "0.5.17", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/npu.py", "method, def", "0.5.20", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/mps.py", "method, def", "0.5.22", "0.5.23", ""),
    Era("get_device_sm", UTILS, "def", "0.4.4.post2", "0.5.2", "sm"),
    Era("get_device_sm", COMMON, "def", "0.5.3", "0.5.23", "sm"),
    Era("is_ampere_with_cuda_12_3", COMMON, "assign", "0.5.7", "0.5.23", "8", "12.3"),
    Era("is_arch_support_pdl", "jit_kernel/utils.py", "def @cache_once", "0.5.7", "0.5.9", ""),
    Era("is_arch_support_pdl", "jit_kernel/utils.py", "def", "0.5.10", "0.5.10.post1", ""),
    Era("is_arch_support_pdl", "jit_kernel/utils.py", "def @cache_once", "0.5.11", "0.5.15.post1", ""),
    Era("is_blackwell", UTILS, "def", "0.4.7", "0.5.2", "10"),
    Era("is_blackwell", COMMON, CACHED, "0.5.3", "0.5.4.post1", "10"),
    Era("is_blackwell", COMMON, CACHED, "0.5.4.post2", "0.5.6.post2", "10 12"),
    Era("is_blackwell", COMMON, "assign", "0.5.7", "0.5.8.post1", "10 12", "12.8"),
    Era("is_blackwell", COMMON, "assign", "0.5.9", "0.5.23", "10 11 12", "12.8"),
    Era("is_blackwell_supported", COMMON, CACHED, "0.5.4.post2", "0.5.6.post2", "10 12", "12.8"),
    Era("is_blackwell_supported", COMMON, "assign", "0.5.7", "0.5.8.post1", "10 12", "12.8"),
    Era("is_blackwell_supported", COMMON, "assign", "0.5.9", "0.5.23", "10 11 12", "12.8"),
    Era("is_hopper_with_cuda_12_3", COMMON, "assign", "0.5.7", "0.5.23", "9", "12.3"),
    Era(
        "is_sm100_or_newer",
        "srt/layers/attention/dsv4/v41_indexer/__init__.py",
        "def @functools.cache",
        "0.5.21",
        "0.5.23",
        ">=10",
    ),
    Era("is_sm100_or_sm110_supported", COMMON, "assign", "0.5.17", "0.5.23", "10 11", "12.8"),
    Era("is_sm100_supported", LAYERS, "def", "0.4.7", "0.4.10.post2", "10", "12.8"),
    Era("is_sm100_supported", LAYERS, CACHED, "0.5.1", "0.5.1.post2", "10", "12.8"),
    Era("is_sm100_supported", UTILS, CACHED, "0.5.1.post3", "0.5.2", "10", "12.8"),
    Era("is_sm100_supported", COMMON, CACHED, "0.5.3", "0.5.6.post2", "10", "12.8"),
    Era("is_sm100_supported", COMMON, "assign", "0.5.7", "0.5.23", "10", "12.8"),
    Era("is_sm110_supported", COMMON, "assign", "0.5.22", "0.5.23", "11", "12.8"),
    Era("is_sm120", COMMON, CACHED, "0.5.20", "0.5.23", "12.0"),
    Era("is_sm120_supported", COMMON, CACHED, "0.5.4", "0.5.6.post2", "12", "12.8"),
    Era("is_sm120_supported", COMMON, "assign", "0.5.7", "0.5.23", "12", "12.8"),
    Era("is_sm121", COMMON, CACHED, "0.5.18", "0.5.23", "12.1"),
    Era("is_sm80_supported", COMMON, "assign", "0.5.13", "0.5.23", "8", "11.0"),
    Era("is_sm90_supported", LAYERS, CACHED, "0.5.1", "0.5.1.post2", "9", "12.3"),
    Era("is_sm90_supported", UTILS, CACHED, "0.5.1.post3", "0.5.2", "9", "12.3"),
    Era("is_sm90_supported", COMMON, CACHED, "0.5.3", "0.5.6.post2", "9", "12.3"),
    Era("is_sm90_supported", COMMON, "assign", "0.5.7", "0.5.23", "9", "12.3"),
)


def admitted(text: str) -> set[SM]:
    if text.startswith(">="):
        return {sm for sm in ALL_SMS if sm.major >= int(text[2:])}
    if "." in text:
        major, minor = text.split(".")
        return {SM(int(major), int(minor))}
    return {sm for sm in ALL_SMS if str(sm.major) in text.split()}


@cache
def finder(release: str) -> Finder:
    return Finder(catalogue.engine_named("sglang"), releases.unpacked("sglang", release))


@cache
def found(release: str, name: str) -> tuple[Found, ...]:
    return tuple(finder(release).where(name).found)


def lived(release: str) -> list[Era]:
    return [e for e in ERAS if Version(e.first) <= Version(release) <= Version(e.last)]


CASES = [(release, era) for release in RELEASES for era in lived(release)]


@pytest.mark.parametrize(("release", "era"), CASES, ids=[f"{r}-{e.name}-{Path(e.path).stem}" for r, e in CASES])
def test_every_known_predicate(release: str, era: Era) -> None:
    (one,) = [f for f in found(release, era.name) if f.path == f"sglang/{era.path}"]
    assert one.form == era.form
    meaning = one.meaning
    if era.admits in ("", "arguments"):
        assert (meaning.note if meaning else "") == ("takes arguments" if era.admits else "")
        return
    assert meaning is not None
    if era.admits == "sm":
        assert meaning.values == {sm: sm.major * 10 + sm.minor for sm in ALL_SMS}
    elif era.admits == "capability":
        assert meaning.values == {sm: tuple(sm) for sm in ALL_SMS}
    else:
        assert meaning.truth and set(meaning.admits) == admitted(era.admits)
        least = f"CUDA >= {era.cuda}" if era.cuda and era.cuda != "11.0" else "any CUDA version"
        assert meaning.cuda == least


@cache
def really(release: str) -> tuple[Finder, Report]:
    names = sorted({e.name for e in lived(release)})
    asked = questions(finder(release), names)
    kernels = catalogue.data("sglang", "kernels")
    assert kernels is not None
    report = probe(
        finder(release),
        asked,
        interpreter=Path(sys.executable),
        paths=[releases.unpacked("sglang", release)],
        simulate=ALL_SMS,
        stand_ins=kernels.STAND_INS,
        absent=kernels.OTHER_VENDORS,
    )
    return finder(release), report


@pytest.mark.parametrize("release", RELEASES)
def test_every_import_path_gives_what_its_source_says(release: str) -> None:
    _, report = really(release)
    assert report.crash == ""
    assert set(report.failed_imports) <= NOT_ON_STAND_INS
    assert [row for row in report.rows if row.agrees is not True] == []
    # Every path that ``where`` prints for these predicates was among those imported.
    imported = {row.predicate.split(":")[0] for row in report.rows}
    for era in lived(release):
        if era.admits in ("", "arguments"):
            continue
        for one in found(release, era.name):
            if one.path == f"sglang/{era.path}":
                tried = [statement for statement in one.imports if statement not in report.failed_imports]
                assert {statement.split()[1] for statement in tried} <= imported


def test_the_paths_people_get_wrong() -> None:
    answer = finder("0.5.8.post1").where("from sglang.srt.utils.utils import is_sm120_supported")
    right = "from sglang.srt.utils.common import is_sm120_supported"
    assert answer.remarks == [f"there is no module sglang.srt.utils.utils here; right is: {right}"]
    (one,) = answer.found
    assert "from sglang.srt.utils import is_sm120_supported" in one.imports and one.form == "assign"
