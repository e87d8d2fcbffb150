"""Requirements read from a line of installed text."""

from __future__ import annotations

from pathlib import Path

import pytest

from patcher.arch import SM120, SM121
from patcher.source import SourceTree
from patcher.statements import Stated
from tests.conftest import Met

HEADER = b"""\
// kernels
void other() { CHECK(mSM == kSM_90); }
struct Runner {
  Runner() { CHECK(mSM == kSM_100 || mSM == kSM_103, "Unsupported architecture"); }
};
"""


class Here(Met):
    """Facts of an environment with one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def tree(self, package: str) -> SourceTree | None:
        return SourceTree(self.root) if (self.root / package).is_dir() else None


@pytest.fixture
def here(tmp_path: Path) -> Here:
    (tmp_path / "lib/include").mkdir(parents=True)
    (tmp_path / "lib/include/runner.cuh").write_bytes(HEADER)
    return Here(tmp_path)


def test_the_line_that_decides_is_named(here: Here) -> None:
    stated = Stated("a-library", "lib/include/runner.cuh", text="kSM_", after="struct Runner", because="it says so")
    finding = stated.check(here, SM120)
    assert not finding.met
    assert finding.where == "lib/include/runner.cuh:4"
    assert finding.found.startswith("Runner() { CHECK(mSM == kSM_100")
    assert finding.needs == "a a-library with kernels for SM120"


def test_whom_it_admits_is_the_recipes_word(here: Here) -> None:
    stated = Stated("a-library", "lib/include/runner.cuh", text="kSM_90", because="", admits=frozenset({SM121}))
    assert stated.check(here, SM121).met
    assert not stated.check(here, SM120).met


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("lib/include/runner.cuh", "kSM_120", "no line with 'kSM_120'"),
        ("lib/include/other.cuh", "kSM_100", "no lib/include/other.cuh here"),
        ("else/runner.cuh", "kSM_100", "no else/runner.cuh here"),
    ],
)
def test_what_is_not_there_is_not_met(path: str, text: str, found: str, here: Here) -> None:
    finding = Stated("a-library", path, text=text, because="", admits=frozenset({SM120})).check(here, SM120)
    assert not finding.met
    assert finding.found == found
    assert finding.where == ""


def test_a_long_line_is_shown_short(here: Here) -> None:
    (here.root / "lib/include/runner.cuh").write_text(f"int archs[] = {{100, {', '.join('103' for _ in range(60))}}};")
    finding = Stated("a-library", "lib/include/runner.cuh", text="archs", because="").check(here, SM120)
    assert len(finding.found) == 91
