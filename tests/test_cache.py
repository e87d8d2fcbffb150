from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from patcher import cache


class Counter:
    """An answer that says how often it was computed, and rests on some files."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.calls = 0
        self.paths = [str(path) for path in paths]

    def __call__(self) -> tuple[dict[str, Any], list[str]]:
        self.calls += 1
        return {"calls": self.calls}, self.paths


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a while had passed since the files were written."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10_000_000_000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.py"
    path.write_text("one")
    return path


@pytest.mark.usefixtures("settled")
def test_an_answer_is_kept_while_nothing_changes(tmp_path: Path, file: Path) -> None:
    compute = Counter([file, tmp_path / "absent"])
    for _ in range(3):
        assert cache.remembered(tmp_path / "c", "key", compute) == {"calls": 1}
    assert cache.remembered(tmp_path / "c", "other", compute) == {"calls": 2}


def rewrite(path: Path) -> None:
    path.write_text("two")


def rewrite_with_the_old_times(path: Path) -> None:
    status = path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_a_copy(path: Path) -> None:
    status = path.stat()
    copy = path.with_name("copy")
    copy.write_text("two")
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def appear(path: Path) -> None:
    (path.parent / "absent").touch()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", [rewrite, rewrite_with_the_old_times, replace_by_a_copy, remove, appear])
def test_no_change_is_missed(tmp_path: Path, file: Path, change: Callable[[Path], None]) -> None:
    compute = Counter([file, tmp_path / "absent"])
    cache.remembered(tmp_path / "c", "key", compute)
    change(file)
    assert cache.remembered(tmp_path / "c", "key", compute) == {"calls": 2}


def test_an_answer_about_fresh_files_is_not_kept(tmp_path: Path, file: Path) -> None:
    compute = Counter([file])
    cache.remembered(tmp_path / "c", "key", compute)
    assert cache.remembered(tmp_path / "c", "key", compute) == {"calls": 2}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"key": "key", "depends": 1, "answer": {}}'])
def test_a_damaged_cache_is_no_error(tmp_path: Path, file: Path, damage: bytes) -> None:
    compute = Counter([file])
    cache.remembered(tmp_path / "c", "key", compute)
    for path in (tmp_path / "c").iterdir():
        path.write_bytes(damage)
    assert cache.remembered(tmp_path / "c", "key", compute) == {"calls": 2}


@pytest.mark.usefixtures("settled")
def test_a_cache_that_cannot_be_written_is_no_error(file: Path) -> None:
    compute = Counter([file])
    assert cache.remembered(file / "below-a-file", "key", compute) == {"calls": 1}


def test_sm_patch_itself_is_part_of_every_answer() -> None:
    names = {os.path.basename(path) for path in cache.own_code()}  # noqa: PTH119
    assert {"plan.py", "allreduce_fusion.py"} <= names
