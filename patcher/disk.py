"""Every write to a disk goes through here: new inode, fsync, rename, fsync of the folder.

Nothing is ever written in place: the other names of a hard link keep their bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from patcher.errors import ChangedMeanwhile, IOFailure
from patcher.source import digest

TEMPORARY = ".sm-patch-"


@contextlib.contextmanager
def reported(path: Path, doing: str) -> Iterator[None]:
    """Turns an OSError into IOFailure naming the path and what was being done."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "error")
        raise IOFailure(
            f"{doing} failed: {error.strerror or error} ({name})", where=str(path), hint="check space and permissions"
        ) from error


def read(path: Path) -> bytes:
    """The file's bytes. Raises IOFailure."""
    with reported(path, "reading"):
        return path.read_bytes()


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    with reported(path, "creating the folder"):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """fsync a folder, so that renames and removals in it are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, data: bytes, *, like: Path | None = None, expected: str | None = None) -> None:
    """Put ``data`` at ``path``: a temporary file beside it, fsync, rename, fsync of the folder.

    ``like``: take mode, owner, times of access and extended attributes from this file. ``expected``: the SHA-256
    that ``path`` must have right before the rename (raises ChangedMeanwhile). Raises IOFailure; on any error the
    file is as it was.
    """
    with reported(path, "writing"):
        handle, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if like is not None:
                    _copy_metadata(like, temporary)
                file.flush()
                os.fsync(file.fileno())
            if expected is not None and digest(path.read_bytes()) != expected:
                raise ChangedMeanwhile("the file changed while sm-patch was working", where=str(path), hint="try again")
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def _copy_metadata(source: Path, target: Path) -> None:
    status = source.stat()
    os.chown(target, status.st_uid, status.st_gid)
    shutil.copymode(source, target)
    for name in os.listxattr(source) if hasattr(os, "listxattr") else ():
        with contextlib.suppress(OSError):  # security.* may be refused; the kernel sets its own
            os.setxattr(target, name, os.getxattr(source, name))


def remove(path: Path) -> None:
    """Remove a file if it is there, durably."""
    with reported(path, "removing"), contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync_folder(path.parent)


def remove_bytecode(path: Path) -> None:
    """Remove every cached bytecode of a source file, so that no interpreter runs what it was compiled from."""
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        remove(cached)


def require_writable(folder: Path) -> None:
    """Raises IOFailure when files cannot be replaced in this folder (also for root on a read-only mount)."""
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise IOFailure("the folder cannot be written", where=str(existing), hint="mount it writable or change user")
