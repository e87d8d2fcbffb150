"""pip and uv for real, with SGLang for real: upgrade, reinstall, downgrade, uninstall between commands; hard links."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from patcher import wheels
from scripts import releases

pytestmark = pytest.mark.releases

OLD, NEW = "0.5.8", "0.5.10.post1"  # the newest that installs on every interpreter
GATE = "allreduce-fusion"
ASSUME = ("--assume", "flashinfer-python==0.7.2", "--sm", "120")


def _wheel(version: str) -> Path:
    return wheels.download("sglang", version, sha256=releases.pins()["sglang"][version])


def _venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def _site(venv: Path) -> Path:
    (found,) = venv.glob("lib/python*/site-packages")
    return found


def _pip(venv: Path, *words: str | Path) -> None:
    pip = [*wheels._pip(), "--python", str(venv / "bin/python"), "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, *words], check=True, capture_output=True)


def _install(venv: Path, version: str, *options: str) -> None:
    _pip(venv, "install", "--no-deps", "--no-compile", "--no-index", *options, _wheel(version))


def _sm_patch(venv: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "patcher", *words, "--venv", str(venv), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def _state(venv: Path) -> str:
    code, document = _sm_patch(venv, "status", *ASSUME)
    assert code == 0
    (installation,) = document["installations"]
    return next(str(gate["state"]) for gate in installation["gates"] if gate["gate"] == GATE)


def _apply(venv: Path) -> list[str]:
    code, document = _sm_patch(venv, "apply", "--gate", GATE, *ASSUME)
    assert code == 0, document
    changed: list[str] = document["outcomes"][0]["changed"]
    return changed


def _differing(venv: Path, version: str) -> set[str]:
    """Files of the package that are not the wheel's, in either direction."""
    site, wheel = _site(venv), releases.unpacked("sglang", version)
    there, wanted = _digests(site / "sglang"), _wheel_digests(wheel / "sglang")
    return {f"sglang/{path}" for path in there.keys() | wanted.keys() if there.get(path) != wanted.get(path)}


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


_wheel_digests = cache(_digests)


def test_pip_between_commands(tmp_path: Path) -> None:
    venv = _venv(tmp_path / "venv")
    _install(venv, OLD)
    old = set(_apply(venv))
    assert _differing(venv, OLD) == old
    assert _state(venv) == "patched"

    _install(venv, NEW, "--upgrade")
    assert _state(venv) == "lost"
    assert _sm_patch(venv, "verify")[0] == 1
    code, document = _sm_patch(venv, "revert")
    assert (code, document["outcomes"][0]["changed"]) == (0, [])  # nothing old is put over anything new
    assert not _differing(venv, NEW)

    new = set(_apply(venv))
    assert _differing(venv, NEW) == new
    assert new
    assert _state(venv) == "patched"
    _install(venv, NEW, "--force-reinstall")
    assert not _differing(venv, NEW)
    assert _state(venv) == "lost"
    _apply(venv)
    assert _state(venv) == "patched"

    _install(venv, OLD)  # a downgrade
    assert _state(venv) == "lost"
    assert set(_apply(venv)) == old
    assert _differing(venv, OLD) == old
    _pip(venv, "uninstall", "-y", "sglang")
    code, document = _sm_patch(venv, "status", *ASSUME)
    assert (code, document["error"]["id"]) == (3, "no-engine")
    assert _sm_patch(venv, "revert")[0] == 3

    _install(venv, OLD)
    assert _state(venv) == "lost"
    code, document = _sm_patch(venv, "gc")
    assert document["installations"][0]["forgotten"] == [GATE]
    assert document["installations"][0]["backups"]
    assert _state(venv) == "closed"
    assert not _differing(venv, OLD)


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """uv, from the index."""
    folder = tmp_path_factory.mktemp("uv")
    pip = [*wheels._pip(), "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", str(folder), "uv"]
    subprocess.run(pip, check=True, capture_output=True)
    yield folder / "bin" / "uv"


def _uv_install(uv: Path, kept: Path, venv: Path, mode: str, *options: str) -> None:
    command: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--python",
        venv / "bin/python",
        "--cache-dir",
        kept,
        "--link-mode",
        mode,
    ]
    words: list[str | Path] = ["--no-deps", "--no-index", "--offline", "--no-config", "--quiet", *options, _wheel(NEW)]
    subprocess.run([*command, *words], check=True, capture_output=True, env={**os.environ, "UV_NO_PROGRESS": "1"})


def _snapshot(folder: Path) -> Mapping[str, tuple[int, int, str]]:
    """Every file: its inode, when it was modified, and its digest."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts:
            status = path.stat()
            sha = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = (status.st_ino, status.st_mtime_ns, sha)
    return found


def test_uv_hard_links(uv: Path, tmp_path: Path) -> None:
    mine, sibling, kept = _venv(tmp_path / "mine"), _venv(tmp_path / "sibling"), tmp_path / "cache"
    for venv in (mine, sibling):
        _uv_install(uv, kept, venv, "hardlink")
    shared = [path for path in (_site(mine) / "sglang").rglob("*.py") if path.stat().st_nlink >= 3]
    assert len(shared) > 100, "uv made no hard links here: the test would show nothing"
    before = _snapshot(_site(sibling) / "sglang"), _snapshot(kept)

    changed = _apply(mine)
    assert _differing(mine, NEW) == set(changed)
    assert (_snapshot(_site(sibling) / "sglang"), _snapshot(kept)) == before
    assert _state(sibling) == "closed"
    assert _sm_patch(mine, "revert")[0] == 0
    assert not _differing(mine, NEW)
    assert (_snapshot(_site(sibling) / "sglang"), _snapshot(kept)) == before

    _apply(mine)
    _uv_install(uv, kept, mine, "hardlink", "--reinstall")
    assert _state(mine) == "lost"
    assert not _differing(mine, NEW)  # the cache's bytes are pristine, so what comes out of it is


def test_uv_symbolic_links(uv: Path, tmp_path: Path) -> None:
    mine, kept = _venv(tmp_path / "mine"), tmp_path / "cache"
    _uv_install(uv, kept, mine, "symlink")
    before = _snapshot(kept)
    changed = _apply(mine)
    paths = [_site(mine) / path for path in changed]
    assert paths
    assert not any(path.is_symlink() for path in paths)
    assert _snapshot(kept) == before
    assert _sm_patch(mine, "revert")[0] == 0
    assert all(path.is_symlink() for path in paths)
    assert not _differing(mine, NEW)
    assert _snapshot(kept) == before
