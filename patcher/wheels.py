"""Real wheels from the package index, by name, through pip; kept and unpacked in a cache.

For ``sm-patch demo``, and for the scripts and tests that look at releases. Nothing is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from patcher.errors import IOFailure, SmPatchError

# Newer releases are built per interpreter and platform; naming one lets any machine read it.
_ANY_MACHINE = (
    "--only-binary=:all:",
    "--python-version=3.11",
    "--platform=manylinux_2_35_x86_64",
    "--platform=manylinux_2_34_x86_64",
    "--platform=manylinux_2_31_x86_64",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_24_x86_64",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux1_x86_64",
    "--platform=any",
)


class DownloadFailed(SmPatchError):
    """pip did not get the wheel, or it is not the one that was pinned."""

    id = "download"
    exit_code = 6


def cache_folder() -> Path:
    """Where wheels are kept: ``$SM_PATCH_CACHE``, else ``$XDG_CACHE_HOME/sm-patch``, else ``~/.cache/sm-patch``."""
    if named := os.environ.get("SM_PATCH_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sm-patch"


def download(name: str, version: str, *, sha256: str | None = None) -> Path:
    """The wheel of a release, from the cache or the index. ``sha256`` pins it. Raises DownloadFailed."""
    folder = cache_folder() / "wheels"
    found = _find(folder, name, version)
    if found is None:
        _pip_download(f"{name}=={version}", folder)
        found = _find(folder, name, version)
    if found is None:
        raise DownloadFailed(f"pip brought no wheel of {name} {version}", where=str(folder))
    if sha256 is not None and file_digest(found) != sha256:
        raise DownloadFailed(f"the wheel of {name} {version} is not the pinned one", where=str(found))
    return found


def file_digest(path: Path) -> str:
    """The SHA-256 of a file in hex."""
    with path.open("rb") as file:
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
        return hasher.hexdigest()


def _find(folder: Path, name: str, version: str) -> Path | None:
    return next(iter(sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))), None)


def _pip_download(requirement: str, folder: Path) -> None:
    pip = _pip()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IOFailure(f"the cache cannot be written: {error.strerror}", where=str(folder)) from error
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        bar = ["--progress-bar=on"] if sys.stderr.isatty() else ["--progress-bar=off", "--quiet"]
        command = [*pip, "download", "--no-deps", "--disable-pip-version-check", *bar, *_ANY_MACHINE]
        done = subprocess.run([*command, f"--dest={scratch}", requirement], stdout=sys.stderr, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            raise DownloadFailed(f"pip could not download {requirement}", hint="see pip's message above")
        wheels[0].replace(folder / wheels[0].name)


def _pip() -> Sequence[str]:
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    other = shutil.which("pip3") or shutil.which("pip")
    if other is None:
        raise DownloadFailed("there is no pip to download with", hint="run it from an environment that has pip")
    return [other]


def unpacked(name: str, version: str, *, sha256: str | None = None) -> Path:
    """The wheel of a release, unpacked once in the cache; read it, do not write to it."""
    folder = cache_folder() / "unpacked" / f"{name}-{version}"
    if not folder.is_dir():
        unpack(download(name, version, sha256=sha256), folder)
    return folder


def source(name: str, version: str) -> Path:
    """The Python files and the metadata of a release, for those who only read them: its kernels are not kept."""
    whole = cache_folder() / "unpacked" / f"{name}-{version}"
    folder = cache_folder() / "source" / f"{name}-{version}"
    if whole.is_dir() or folder.is_dir():
        return whole if whole.is_dir() else folder
    kept = _find(cache_folder() / "wheels", name, version)
    wheel = kept or download(name, version)
    unpack(wheel, folder, only=is_source)
    if kept is None:
        wheel.unlink()
    return folder


def is_source(member: str) -> bool:
    """Whether a member of a wheel is a Python file or part of its metadata."""
    return member.endswith(".py") or ".dist-info/" in member


def unpack(wheel: Path, folder: Path, only: Callable[[str], bool] | None = None) -> None:
    """Unpack a wheel (or ``only`` some members) so that ``folder`` appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if only is None or only(name)])
        scratch.chmod(0o755)
        if not folder.is_dir():
            scratch.rename(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise IOFailure(f"the wheel cannot be unpacked: {error}", where=str(wheel)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
