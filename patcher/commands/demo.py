"""``sm-patch demo``: the whole story on a real release, in a throw-away folder. No GPU, no torch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import click

from patcher import console
from patcher.cli import main, shown_errors

_RELEASE = "0.5.23"
_ENGINE = "sglang"
_KERNELS = "flashinfer-python"


@click.command()
@click.option("--release", metavar="X", default=_RELEASE, show_default=True, help="The SGLang release to show it on.")
@click.option("--keep", is_flag=True, help="Leave the folder, and say where it is.")
def demo(release: str, keep: bool) -> None:
    """Download a real SGLang wheel and the FlashInfer it pins; show status, apply, status, revert on them."""
    with shown_errors(as_json=False):
        code = _demo(release, keep)
    sys.exit(code)


def _demo(release: str, keep: bool) -> int:
    from patcher import wheels

    console.say(f"fetching {_ENGINE} {release} and the {_KERNELS} it pins, by name, into {wheels.cache_folder()}")
    engine = wheels.unpacked(_ENGINE, release)
    pinned = _pinned(engine)
    kernels = None
    if pinned is None:
        console.say(f"{_ENGINE} {release} pins no version of {_KERNELS}")
    else:
        try:
            kernels = wheels.unpacked(_KERNELS, pinned)
        except wheels.DownloadFailed as error:
            console.say(f"{error.what}; going on without it")
    scratch = Path(tempfile.mkdtemp(prefix="sm-patch-demo-"))
    try:
        root = scratch / "site-packages"
        console.say(f"unpacking into {root}")
        shutil.copytree(engine, root)
        if kernels is not None:
            shutil.copytree(kernels, root, dirs_exist_ok=True, copy_function=_link)
        return _show(root, wheels.download(_ENGINE, release))
    finally:
        if keep:
            console.say(f"left in {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)


def _link(source: str, target: str) -> None:
    """The kernel package is only read: a link will do where the file system has links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _pinned(folder: Path) -> str | None:
    """The version of the kernel package that the unpacked engine requires."""
    import importlib_metadata as metadata
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for distribution in metadata.distributions(path=[str(folder)]):
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == _KERNELS:
                exact = [s.version for s in requirement.specifier if s.operator == "=="]
                if exact:
                    return exact[0]
    return None


def _show(root: Path, wheel: Path) -> int:
    place = ["--root", str(root), "--sm", "120"]  # whatever GPU this machine has
    for words in (["status"], ["apply", "--diff"], ["status"], ["revert"]):
        console.say(f"\n$ sm-patch {' '.join([*words, *place])}")
        code = _run([*words, *place])
        if code != 0:
            return code
    changed = _different(root, wheel)
    console.say(f"\ncompared {_ENGINE}/ with the wheel, byte for byte: {len(changed)} files differ")
    for path in changed:
        console.say(f"  {path}")
    return 1 if changed else 0


def _run(words: list[str]) -> int:
    """Run a command with nothing taken from the environment's ``SM_PATCH_…``, but for the cache."""
    sys.stdout.flush()
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name in _STAND_INS}
    try:
        main(words, prog_name="sm-patch", standalone_mode=False)
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 1
    finally:
        os.environ.update(kept)
    return 0


_STAND_INS = ("SM_PATCH_SM", "SM_PATCH_PYTHON", "SM_PATCH_VENV", "SM_PATCH_ROOT")


def _different(root: Path, wheel: Path) -> list[str]:
    """Files of the engine that are not byte for byte those in the wheel, or on one side only."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(f"{_ENGINE}/") and not name.endswith("/")}
        there = {p.relative_to(root).as_posix() for p in (root / _ENGINE).rglob("*") if p.is_file()}
        differ = [name for name in packed & there if (root / name).read_bytes() != archive.read(name)]
    return sorted((*differ, *(packed ^ there)))
