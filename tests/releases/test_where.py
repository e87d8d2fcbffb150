"""``where`` on real releases: every predicate known to exist, in its file and form, and what it is really worth.

What each import path gives is checked by importing it, in a process in which torch reports the SM (packages that are
missing, torch among them, are stand-ins).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.version import Version

from patcher import catalogue, wheels
from patcher.arch import ALL_SMS, SM
from patcher.probe import Question, Report, probe
from patcher.where import Finder, Found
from scripts import releases

pytestmark = pytest.mark.releases

RELEASES = ("0.4.7", "0.5.1", "0.5.4", "0.5.8.post1", "0.5.14", "0.5.19", "0.5.23")

# Older than what the recipes are tried on; one era ended before those.
OLDER = {"0.4.0": "f0ae1c466f2480baec034decf8676c46e30beb900e018184fa6076da920391db"}

NOWHERE = (False, False, False, False)
RAISES, NO_GPU = "raises TypeError", "raises RuntimeError"


class Era(NamedTuple):
    """A predicate in a range of releases: its file and form, whom it admits, from which CUDA on.

    ``admits``: majors, exact capabilities, a least major, "sm" and "capability" for numbers, "arguments" for functions
    that take some, "" where nothing is to be told from source. ``elsewhere``: on AMD's gfx94, gfx110 and gfx120, and
    without a GPU.
    """

    name: str
    path: str
    form: str
    first: str
    last: str
    admits: str
    cuda: str = ""
    elsewhere: tuple[Any, ...] = NOWHERE


COMMON, UTILS, LAYERS = "srt/utils/common.py", "srt/utils.py", "srt/layers/utils.py"
INDEXER, FP8 = "srt/layers/attention/dsv4/v41_indexer/__init__.py", "srt/layers/quantization/fp8_utils.py"
CACHED, ONCE = "def @lru_cache(maxsize=1)", "def @cache_once"
PLATFORMS, JIT, DIFFUSION = "srt/platforms", "jit_kernel/utils.py", "multimodal_gen/runtime"
METHOD, OF_CLASS = "method, def", "method, def @classmethod"
NUMBERS = (94, 110, 120, 0)
PAIRS = ((9, 4), (11, 0), (12, 0), (None, None))

ERAS = (
    Era("_check_cuda_device_version", COMMON, "def", "0.5.7", "0.5.20", "arguments"),
    Era("_check_cuda_device_version", COMMON, "def", "0.5.21", "0.5.23", "arguments"),
    Era("get_device_capability", UTILS, "def", "0.4.0", "0.4.0.post1", "capability", "", PAIRS),
    Era("get_device_capability", UTILS, "def", "0.4.0.post2", "0.5.2", "capability", "", PAIRS),
    Era("get_device_capability", f"{PLATFORMS}/interface.py", OF_CLASS, "0.4.4.post4", "0.4.6.post4", ""),
    Era("get_device_capability", COMMON, "def", "0.5.3", "0.5.8.post1", "capability", "", PAIRS),
    Era("get_device_capability", COMMON, "def", "0.5.9", "0.5.23", "capability", "", PAIRS),
    Era("get_device_capability", f"{PLATFORMS}/device_mixin.py", METHOD, "0.5.11", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/cuda.py", METHOD, "0.5.13", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/cpu.py", METHOD, "0.5.14", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/xpu.py", METHOD, "0.5.17", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/npu.py", METHOD, "0.5.20", "0.5.23", ""),
    Era("get_device_capability", f"{PLATFORMS}/mps.py", METHOD, "0.5.22", "0.5.23", ""),
    Era("get_device_sm", UTILS, "def", "0.4.4.post2", "0.5.2", "sm", "", NUMBERS),
    Era("get_device_sm", COMMON, "def", "0.5.3", "0.5.10.post1", "sm", "", NUMBERS),
    Era("get_device_sm", COMMON, "def", "0.5.11", "0.5.20", "sm", "", NUMBERS),
    Era("get_device_sm", COMMON, "def", "0.5.21", "0.5.23", "sm", "", NUMBERS),
    Era("has_device_capability", f"{PLATFORMS}/interface.py", OF_CLASS, "0.4.4.post4", "0.4.6.post4", ""),
    Era("is_ampere_with_cuda_12_3", COMMON, "assign", "0.5.7", "0.5.23", "8", "12.3"),
    Era("is_arch_support_pdl", JIT, ONCE, "0.5.7", "0.5.9", ">=9", "", (True, True, True, NO_GPU)),
    Era("is_arch_support_pdl", JIT, "def", "0.5.10", "0.5.10.post1", ""),
    Era("is_arch_support_pdl", JIT, ONCE, "0.5.11", "0.5.12.post1", ""),
    Era("is_arch_support_pdl", JIT, ONCE, "0.5.13", "0.5.15.post1", ""),
    Era("is_blackwell", UTILS, "def", "0.4.7", "0.5.2", "10"),
    Era("is_blackwell", COMMON, CACHED, "0.5.3", "0.5.4.post1", "10"),
    Era("is_blackwell", COMMON, CACHED, "0.5.4.post2", "0.5.6.post2", "10 12"),
    Era("is_blackwell", COMMON, "assign", "0.5.7", "0.5.8.post1", "10 12", "12.8"),
    Era("is_blackwell", COMMON, "assign", "0.5.9", "0.5.23", "10 11 12", "12.8"),
    Era(
        "is_blackwell_supported",
        COMMON,
        CACHED,
        "0.5.4.post2",
        "0.5.6.post1",
        "10 12",
        "12.8",
        (False, False, RAISES, False),
    ),
    Era(
        "is_blackwell_supported",
        COMMON,
        CACHED,
        "0.5.6.post2",
        "0.5.6.post2",
        "10 12",
        "12.8",
        (False, False, RAISES, False),
    ),
    Era("is_blackwell_supported", COMMON, "assign", "0.5.7", "0.5.8.post1", "10 12", "12.8"),
    Era("is_blackwell_supported", COMMON, "assign", "0.5.9", "0.5.23", "10 11 12", "12.8"),
    Era("is_hopper_with_cuda_12_3", UTILS, "def", "0.4.5.post1", "0.4.6.post1", "9", "12.3 to 12.9"),
    Era("is_hopper_with_cuda_12_3", COMMON, "assign", "0.5.7", "0.5.23", "9", "12.3"),
    Era(
        "is_sm100_or_newer",
        INDEXER,
        "def @functools.cache",
        "0.5.21",
        "0.5.21",
        ">=10",
        "",
        (False, True, True, NO_GPU),
    ),
    Era("is_sm100_or_newer", INDEXER, "def @functools.cache", "0.5.22", "0.5.23", ">=10"),
    Era("is_sm100_or_sm110_supported", COMMON, "assign", "0.5.17", "0.5.23", "10 11", "12.8"),
    Era("is_sm100_supported", FP8, "def", "0.4.6.post5", "0.4.6.post5", "10", "12.8", (False, False, False, NO_GPU)),
    Era("is_sm100_supported", LAYERS, "def", "0.4.7", "0.4.10.post2", "10", "12.8", (False, False, False, NO_GPU)),
    Era("is_sm100_supported", LAYERS, CACHED, "0.5.1", "0.5.1.post2", "10", "12.8", (False, False, False, NO_GPU)),
    Era("is_sm100_supported", UTILS, CACHED, "0.5.1.post3", "0.5.2", "10", "12.8", (False, False, False, NO_GPU)),
    Era("is_sm100_supported", COMMON, CACHED, "0.5.3", "0.5.6.post1", "10", "12.8"),
    Era("is_sm100_supported", COMMON, CACHED, "0.5.6.post2", "0.5.6.post2", "10", "12.8"),
    Era("is_sm100_supported", COMMON, "assign", "0.5.7", "0.5.23", "10", "12.8"),
    Era("is_sm110_supported", COMMON, "assign", "0.5.22", "0.5.23", "11", "12.8"),
    Era("is_sm120", COMMON, CACHED, "0.5.20", "0.5.23", "12.0"),
    Era("is_sm120_supported", COMMON, CACHED, "0.5.4", "0.5.6.post2", "12", "12.8", (False, False, RAISES, False)),
    Era("is_sm120_supported", COMMON, "assign", "0.5.7", "0.5.23", "12", "12.8"),
    Era("is_sm121", COMMON, CACHED, "0.5.18", "0.5.23", "12.1"),
    Era("is_sm80_supported", COMMON, "assign", "0.5.13", "0.5.23", "8", "11.0"),
    Era("is_sm90_supported", LAYERS, CACHED, "0.5.1", "0.5.1.post2", "9", "12.3", (RAISES, False, False, NO_GPU)),
    Era("is_sm90_supported", UTILS, CACHED, "0.5.1.post3", "0.5.2", "9", "12.3", (RAISES, False, False, NO_GPU)),
    Era("is_sm90_supported", COMMON, CACHED, "0.5.3", "0.5.6.post1", "9", "12.3", (RAISES, False, False, False)),
    Era("is_sm90_supported", COMMON, CACHED, "0.5.6.post2", "0.5.6.post2", "9", "12.3"),
    Era("is_sm90_supported", COMMON, "assign", "0.5.7", "0.5.23", "9", "12.3"),
)
"""The eras that the census of the predicates lists, one by one (its bodies are told apart where they differ)."""

UNLISTED = (
    # Both were assignments of a lambda before 0.5.7 (srt/utils.py:1992 in 0.4.6.post2, common.py:216 in 0.5.6.post2).
    Era("is_ampere_with_cuda_12_3", UTILS, "assign", "0.4.6.post2", "0.5.2", "8", "12.3"),
    Era("is_ampere_with_cuda_12_3", COMMON, "assign", "0.5.3", "0.5.6.post2", "8", "12.3"),
    Era("is_hopper_with_cuda_12_3", UTILS, "assign", "0.4.6.post2", "0.5.2", "9", "12.3"),
    Era("is_hopper_with_cuda_12_3", COMMON, "assign", "0.5.3", "0.5.6.post2", "9", "12.3"),
    # It moved twice, and is still there (kernels/jit/utils/arch.py:195 in 0.5.23).
    Era("is_arch_support_pdl", "jit_kernel/utils/arch.py", ONCE, "0.5.16", "0.5.16", ""),
    Era("is_arch_support_pdl", "kernels/jit/utils/arch.py", ONCE, "0.5.17", "0.5.23", ""),
    # The diffusion half has platforms of its own.
    Era("is_blackwell", f"{DIFFUSION}/utils/common.py", CACHED, "0.5.5", "0.5.6.post2", "10"),
    Era(
        "is_blackwell",
        f"{DIFFUSION}/platforms/interface.py",
        f"{OF_CLASS} @lru_cache(maxsize=1)",
        "0.5.7",
        "0.5.23",
        "",
    ),
    Era("is_sm120", f"{DIFFUSION}/platforms/interface.py", f"{OF_CLASS} @lru_cache(maxsize=1)", "0.5.7", "0.5.23", ""),
    *(
        Era(name, f"{DIFFUSION}/platforms/{vendor}.py", form, first, last, "")
        for name, vendor, form, first, last in (
            ("get_device_capability", "cuda", OF_CLASS, "0.5.5", "0.5.23"),
            (
                "get_device_capability",
                "cuda",
                f"{OF_CLASS} @lru_cache(maxsize=8) @with_nvml_context",
                "0.5.5",
                "0.5.23",
            ),
            ("get_device_capability", "interface", OF_CLASS, "0.5.5", "0.5.23"),
            ("get_device_capability", "mps", OF_CLASS, "0.5.5", "0.5.21"),
            ("get_device_capability", "musa", OF_CLASS, "0.5.8", "0.5.23"),
            (
                "get_device_capability",
                "musa",
                f"{OF_CLASS} @lru_cache(maxsize=8) @with_mtml_context",
                "0.5.8",
                "0.5.23",
            ),
            ("get_device_capability", "npu", OF_CLASS, "0.5.9", "0.5.21"),
            ("get_device_capability", "rocm", OF_CLASS, "0.5.5", "0.5.23"),
            ("get_device_capability", "xpu", OF_CLASS, "0.5.11", "0.5.23"),
            (
                "has_device_capability",
                "cuda",
                f"{OF_CLASS} @lru_cache(maxsize=8) @with_nvml_context",
                "0.5.5",
                "0.5.23",
            ),
            ("has_device_capability", "interface", OF_CLASS, "0.5.5", "0.5.23"),
            (
                "has_device_capability",
                "musa",
                f"{OF_CLASS} @lru_cache(maxsize=8) @with_mtml_context",
                "0.5.8",
                "0.5.23",
            ),
        )
    ),
)
"""What the source has besides."""

ALL_ERAS = (*ERAS, *UNLISTED)


def admitted(text: str) -> set[SM]:
    if text.startswith(">="):
        return {sm for sm in ALL_SMS if sm.major >= int(text[2:])}
    if "." in text:
        major, minor = text.split(".")
        return {SM(int(major), int(minor))}
    return {sm for sm in ALL_SMS if str(sm.major) in text.split()}


def finder(release: str) -> Finder:
    if release in OLDER:
        root = wheels.unpacked("sglang", release, sha256=OLDER[release])
    else:
        root = releases.unpacked("sglang", release)
    return Finder(catalogue.engine_named("sglang"), root)


def lived(release: str) -> list[Era]:
    return [e for e in ALL_ERAS if Version(e.first) <= Version(release) <= Version(e.last)]


def answers(finder: Finder, eras: Iterable[Era]) -> dict[str, list[Found]]:
    return {name: finder.definitions(name).found for name in sorted({era.name for era in eras})}


def check(era: Era, answered: Mapping[str, Sequence[Found]]) -> None:
    these = [f for f in answered[era.name] if (f.path, f.form) == (f"sglang/{era.path}", era.form)]
    if era.form.startswith("method"):
        assert these and {f.meaning for f in these} == {None}, era
        return
    (one,) = these
    meaning = one.meaning
    if era.admits in ("", "arguments"):
        assert (meaning.note if meaning else "") == ("takes arguments" if era.admits else ""), era
        return
    assert meaning is not None, era
    assert tuple(meaning.elsewhere.values()) == era.elsewhere, era
    if era.admits == "sm":
        assert meaning.values == {sm: sm.major * 10 + sm.minor for sm in ALL_SMS}, era
    elif era.admits == "capability":
        assert meaning.values == {sm: tuple(sm) for sm in ALL_SMS}, era
    else:
        assert meaning.truth and set(meaning.admits) == admitted(era.admits), era
        assert meaning.cuda == cuda_wanted(era.cuda), era


def cuda_wanted(text: str) -> str:
    if text in ("", "11.0"):
        return "any CUDA version"
    return f"CUDA {text}" if " to " in text else f"CUDA >= {text}"


def others() -> dict[str, list[Era]]:
    """The eras that none of the releases falls into, by a release of each."""
    by_release: dict[str, list[Era]] = {}
    known = sorted({*releases.versions("sglang"), *OLDER}, key=Version)
    covered = {era for release in RELEASES for era in lived(release)}
    for era in (era for era in ALL_ERAS if era not in covered):
        inside = next(r for r in known if Version(era.first) <= Version(r) <= Version(era.last))
        by_release.setdefault(inside, []).append(era)
    return by_release


OTHERS = others()


@pytest.mark.parametrize("release", OTHERS)
def test_the_eras_between_these_releases(release: str) -> None:
    answered = answers(finder(release), OTHERS[release])
    for era in OTHERS[release]:
        check(era, answered)


@pytest.mark.parametrize("release", RELEASES)
def test_every_predicate_and_every_import_path(release: str) -> None:
    """Both ways: all that is on the list is found, and nothing else (the engine's own tests aside)."""
    looked = finder(release)
    answered = answers(looked, lived(release))
    for era in lived(release):
        check(era, answered)
    found = {(name, one.path, one.form) for name, all_of_it in answered.items() for one in all_of_it}
    besides = {entry for entry in found if {"test", "tests", "benchmark"} & set(entry[1].split("/"))}
    maps = {entry for entry in found if entry[2] == "name map"}
    assert found - besides - maps == {(era.name, f"sglang/{era.path}", era.form) for era in lived(release)}
    asked = ways(answered)
    report = really(looked, [question for question, _ in asked])
    assert (report.crash, report.failed_imports) == ("", {})
    assert len(report.rows) == len(asked) * len(ALL_SMS) > 0
    for index, row in enumerate(report.rows):
        told = asked[index % len(asked)][1]
        assert row.agrees is True if told else (row.error, row.real) == (None, True), row


def ways(answered: Mapping[str, Sequence[Found]]) -> list[tuple[Question, bool]]:
    """Every import path that is printed for these predicates, and whether the source tells what it is worth."""
    asked: list[tuple[Question, bool]] = []
    for name, all_of_it in answered.items():
        for one in all_of_it:
            told = one.meaning is not None and not one.meaning.note
            for line in one.imports:
                statement, _, expression = line.partition("; ")
                expression = expression or (f"{name}()" if told else f"callable({name})")
                asked.append((Question(f"{name} #{len(asked)}", statement, expression), told))
    return asked


def really(looked: Finder, asked: Sequence[Question]) -> Report:
    kernels = catalogue.data("sglang", "kernels")
    assert kernels is not None
    return probe(
        looked,
        asked,
        interpreter=Path(sys.executable),
        paths=[looked.root],
        simulate=ALL_SMS,
        stand_ins=kernels.STAND_INS,
        absent=kernels.OTHER_VENDORS,
    )


def test_the_paths_people_get_wrong() -> None:
    answer = finder("0.5.8.post1").where("from sglang.srt.utils.utils import is_sm120_supported")
    right = "from sglang.srt.utils.common import is_sm120_supported"
    assert answer.remarks == [f"there is no module sglang.srt.utils.utils here; right is: {right}"]
    (one,) = answer.found
    assert "from sglang.srt.utils import is_sm120_supported" in one.imports and one.form == "assign"
