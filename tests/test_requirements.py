"""Requirements that read another package's source: what they find, where, and what they say is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.requirements import Exports, ListedCapability, ShutOutBy
from patcher.source import SourceTree

Folder = Callable[[Mapping[str, str]], Path]


class Beside:
    """Facts of a folder of packages; ``assume`` gives versions that stand in for what is installed."""

    def __init__(self, root: Path | None = None, **assume: str) -> None:
        self.root = root
        self.assume = assume

    def version(self, distribution: str) -> str | None:
        return self.assume.get(distribution, "1.0" if self.root else None)

    def assumed(self, distribution: str) -> bool:
        return distribution in self.assume

    def tree(self, package: str) -> SourceTree | None:
        return SourceTree(self.root) if self.root and (self.root / package).is_dir() else None


_APIS = Exports("deep", "deep/__init__.py", ("gemm", "layout"), since=">=2.0", because="kernels came with them")
_LISTED = ListedCapability("fi", "fi/gemm.py", "requirement", since=">=3.0", because="no kernel otherwise")
_SHUT = ShutOutBy("fi", (("fi/new.cu", r"case Sm100"), ("fi/old.cu", r"EQ\(major, 10\)")), because="binaries only")


@pytest.mark.parametrize(
    ("text", "met", "found"),
    [
        ("def gemm(): ...\nlayout = None\n", True, "all of them"),
        ("from x import gemm, layout\n", True, "all of them"),
        ("def gemm(): ...\n", False, "no layout"),
        ("def other():\n    gemm = layout = 1\n", False, "no gemm, layout"),
    ],
)
def test_exports(text: str, met: bool, found: str, folder_of: Folder) -> None:
    finding = _APIS.check(Beside(folder_of({"deep/__init__.py": text})), SM120)
    assert (finding.met, finding.found, finding.where) == (met, found, "deep/__init__.py")
    assert finding.needs == "deep>=2.0"


def test_exports_of_what_is_not_there_or_assumed(folder_of: Folder) -> None:
    missing = _APIS.check(Beside(folder_of({"other/__init__.py": ""})), SM120)
    assert not missing.met and "not installed" in missing.found
    assert _APIS.check(Beside(deep="2.1"), SM120).met
    assert not _APIS.check(Beside(deep="1.9"), SM120).met


_DECORATED = "@utils.supported_compute_capability([100, 103{}])\ndef requirement(a):\n    return True\n"


@pytest.mark.parametrize(
    ("more", "sm", "met"),
    [("", SM120, False), (", 120", SM120, True), (", 120", SM121, False), (", 120, 121", SM121, True)],
)
def test_listed_capability(more: str, sm: SM, met: bool, folder_of: Folder) -> None:
    finding = _LISTED.check(Beside(folder_of({"fi/gemm.py": f"\n{_DECORATED.format(more)}"})), sm)
    assert finding.met is met
    assert finding.where == "fi/gemm.py:2"


def test_listed_capability_that_cannot_be_read(folder_of: Folder) -> None:
    assert not _LISTED.check(Beside(folder_of({"fi/gemm.py": "def requirement(a): ...\n"})), SM120).met
    assert not _LISTED.check(Beside(folder_of({"fi/other.py": ""})), SM120).met
    assert _LISTED.check(Beside(fi="3.1"), SM120).met
    assert not _LISTED.check(Beside(fi="2.9"), SM120).met


def test_shut_out_by_names_the_line_and_is_never_met(folder_of: Folder) -> None:
    old = {"fi/old.cu": "// a\n  CHECK_EQ(major, 10) << x;\n"}
    finding = _SHUT.check(Beside(folder_of(old)), SM120)
    assert (finding.met, finding.where, finding.found) == (False, "fi/old.cu:2", "CHECK_EQ(major, 10) << x;")
    both = _SHUT.check(Beside(folder_of({**old, "fi/new.cu": "\n\n  case Sm100a:\n"})), SM120)
    assert both.where == "fi/new.cu:3"
    nowhere = _SHUT.check(Beside(folder_of({"fi/x.py": ""})), SM120)
    assert not _SHUT.check(Beside(), SM120).met and nowhere.met is False


def test_a_match_over_lines_reports_the_line_it_ends_in(folder_of: Folder) -> None:
    text = "def other(majors=[9]): ...\n\n\ndef kernel():\n    return build(\n        majors=[10, 11],\n    )\n"
    shut = ShutOutBy("fi", (("fi/jit.py", r"(?s)def kernel\(.*?majors="),), because="built for these only")
    finding = shut.check(Beside(folder_of({"fi/jit.py": text})), SM120)
    assert (finding.where, finding.found) == ("fi/jit.py:6", "majors=[10, 11],")
