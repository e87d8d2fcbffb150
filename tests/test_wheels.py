"""Wheels of which only the source is kept: what is unpacked, what is left in the cache."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from patcher import wheels

MEMBERS = (
    "engine/__init__.py",
    "engine/ops/kernel.py",
    "engine/_C.so",
    "engine/data.json",
    "engine-1.0.dist-info/METADATA",
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(folder: Path) -> Path:
    folder.mkdir(parents=True)
    wheel = folder / "engine-1.0-1-cp38-abi3-manylinux_2_24_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in MEMBERS:
            archive.writestr(name, name)
    return wheel


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_only_python_files_and_metadata_are_kept(cache: Path) -> None:
    wheel = build(cache / "wheels")
    folder = wheels.source("engine", "1.0")
    assert files(folder) == {name for name in MEMBERS if name.endswith((".py", "METADATA"))}
    assert wheel.exists()  # it was there before
    wheel.unlink()
    assert wheels.source("engine", "1.0") == folder  # nothing is fetched again


def test_a_wheel_fetched_for_its_source_alone_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []
    monkeypatch.setattr(wheels, "_pip_download", lambda requirement, folder: fetched.append(build(folder)))
    assert (wheels.source("engine", "1.0") / "engine/ops/kernel.py").is_file()
    assert [wheel.exists() for wheel in fetched] == [False]


def test_what_is_unpacked_whole_is_used(cache: Path) -> None:
    build(cache / "wheels")
    whole = wheels.unpacked("engine", "1.0")
    assert wheels.source("engine", "1.0") == whole
    assert files(whole) == set(MEMBERS)
