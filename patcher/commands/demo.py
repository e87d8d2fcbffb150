"""``sm-patch demo``: the whole story on a real release, in a throw-away folder. No GPU, no torch."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
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
        sys.exit(_demo(release, keep))


def _demo(release: str, keep: bool) -> int:
    from patcher import wheels

    console.say(f"fetching {_ENGINE} {release} and the {_KERNELS} it pins, by name, into {wheels.cache_folder()}")
    engine = wheels.unpacked(_ENGINE, release)
    pinned = _pinned(engine)
    kernels = wheels.unpacked(_KERNELS, pinned) if pinned else None
    if kernels is None:
        console.say(f"{_ENGINE} {release} pins no version of {_KERNELS}")
    scratch = Path(tempfile.mkdtemp(prefix="sm-patch-demo-"))
    try:
        root = scratch / "site-packages"
        console.say(f"unpacking into {root}")
        shutil.copytree(engine, root)
        if kernels is not None:
            shutil.copytree(kernels, root, dirs_exist_ok=True, copy_function=_link)
        return _show(root, engine)
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


def _show(root: Path, pristine: Path) -> int:
    place = ["--root", str(root)]
    for words in (["status"], ["apply", "--diff"], ["status"], ["revert"]):
        console.say(f"\n$ sm-patch {' '.join([*words, *place])}")
        code = _run([*words, *place])
        if code != 0:
            return code
    changed = _different(root, pristine)
    console.say(f"\ncompared {_ENGINE}/ with the wheel, byte for byte: {len(changed)} files differ")
    for path in changed:
        console.say(f"  {path}")
    return 1 if changed else 0


def _run(words: list[str]) -> int:
    sys.stdout.flush()
    try:
        main(words, prog_name="sm-patch", standalone_mode=False)
    except SystemExit as stopped:
        return stopped.code if isinstance(stopped.code, int) else 1
    return 0


def _different(root: Path, pristine: Path) -> list[str]:
    """Files of the engine that are not byte for byte those of the wheel, or on one side only."""
    sides = [{p.relative_to(side) for p in (side / _ENGINE).rglob("*") if p.is_file()} for side in (root, pristine)]
    both = sides[0] & sides[1]
    differ = [p for p in both if (root / p).read_bytes() != (pristine / p).read_bytes()]
    return sorted(str(p) for p in (*differ, *(sides[0] ^ sides[1])))
