"""Every change of a disk goes through here, and every look at a file that is not trusted.

Files are reached through open folders, one name at a time, and a name that is a symbolic link is never followed.
Nothing is written in place: a new file is written beside the old one and renamed over it, so the other names of a
hard link keep their bytes, and a reader sees the old bytes or the new ones.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from patcher.errors import IOFailure

TEMPORARY = ".sm-patch-"
"""How the names of unfinished files begin; nothing of that name means anything once the lock is free."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class System:
    """The system calls that change a disk, one method each. The fault tests put a failing one in its place."""

    def mkdir(self, folder: int, name: str) -> None:
        os.mkdir(name, 0o755, dir_fd=folder)

    def create(self, folder: int, name: str) -> int:
        return os.open(name, _NEW, 0o600, dir_fd=folder)

    def open_lock(self, folder: int, name: str) -> int:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)

    def write(self, handle: int, data: bytes | memoryview) -> int:
        return os.write(handle, data)

    def truncate(self, handle: int) -> None:
        os.ftruncate(handle, 0)

    def chown(self, handle: int, user: int, group: int) -> None:
        os.fchown(handle, user, group)

    def chmod(self, handle: int, mode: int) -> None:
        os.fchmod(handle, mode)

    def set_attribute(self, handle: int, name: str, value: bytes) -> None:
        os.setxattr(handle, name, value)

    def set_time(self, handle: int, nanoseconds: int) -> None:
        os.utime(handle, ns=(nanoseconds, nanoseconds))

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def symlink(self, folder: int, name: str, target: str) -> None:
        os.symlink(target, name, dir_fd=folder)

    def rename(self, folder: int, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def unlink(self, folder: int, name: str) -> None:
        os.unlink(name, dir_fd=folder)

    def rmdir(self, folder: int, name: str) -> None:
        os.rmdir(name, dir_fd=folder)


system = System()


@contextlib.contextmanager
def reported(path: Path, doing: str) -> Iterator[None]:
    """Turns an OSError into IOFailure naming the path and what was being done."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "error")
        hint = _HINTS.get(error.errno or 0, "check space and permissions")
        raise IOFailure(f"{doing} failed: {error.strerror or error} ({name})", where=str(path), hint=hint) from error


_HINTS = {
    errno.ENOSPC: "make room on this disk, then try again",
    errno.EDQUOT: "make room in this quota, then try again",
    errno.EROFS: "mount it writable, then try again",
    errno.ELOOP: "a symbolic link is not followed here",
}


class Metadata(NamedTuple):
    """What a replaced file hands on to the new one. ``modified`` in seconds since the epoch."""

    mode: int
    user: int
    group: int
    modified: int
    size: int
    attributes: tuple[tuple[str, bytes], ...] = ()


class Found(NamedTuple):
    """A file as it is: its bytes, what else there is to keep, and where it points when it is a symbolic link."""

    data: bytes
    metadata: Metadata
    link: str | None


class Unsynced:
    """What must be on the disk before the next step may be; each file and folder once."""

    def __init__(self) -> None:
        self._handles: dict[tuple[int, int], int] = {}

    def add(self, handle: int) -> None:
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) not in self._handles:
            self._handles[status.st_dev, status.st_ino] = os.dup(handle)

    def sync(self, path: Path) -> None:
        """fsync all of it. Raises IOFailure naming ``path``."""
        with reported(path, "syncing"):
            for which, handle in list(self._handles.items()):
                system.sync(handle)
                os.close(handle)
                del self._handles[which]

    def forget(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])


class Folder:
    """An open folder. Names are single components; links are not followed. Every failure is an IOFailure."""

    def __init__(self, handle: int, path: Path) -> None:
        self.handle = handle
        self.path = path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Open the folder at ``path``, through links."""
        with reported(path, "opening the folder"):
            return cls(os.open(path, _FOLDER), path)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    # -- looking ---------------------------------------------------------------------------------------------

    def child(self, name: str) -> Folder | None:
        """The folder ``name`` in this one, or None when there is nothing of that name."""
        path = self.path / name
        with reported(path, "opening the folder"):
            try:
                return Folder(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.handle), path)
            except FileNotFoundError:
                return None

    def descend(self, names: Sequence[str]) -> Folder:
        """The folder below this one. The caller closes it."""
        folder = Folder(os.dup(self.handle), self.path)
        for name in names:
            with folder:
                inner = folder.child(name)
            if inner is None:
                raise IOFailure("the folder does not exist", where=str(self.path / "/".join(names)))
            folder = inner
        return folder

    def names(self) -> list[str]:
        with reported(self.path, "listing the folder"):
            return sorted(os.listdir(self.handle))  # noqa: PTH208 - of an open folder

    def status(self, name: str) -> os.stat_result | None:
        with reported(self.path / name, "looking"):
            try:
                return os.stat(name, dir_fd=self.handle, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def read(self, name: str, limit: int = sys.maxsize) -> bytes | None:
        """The bytes of a regular file, None when it is not there. Anything else of that name is an IOFailure."""
        with reported(self.path / name, "reading"):
            try:
                handle = os.open(name, _LOOK | os.O_NOFOLLOW, dir_fd=self.handle)
            except FileNotFoundError:
                return None
            return _read(handle, self.path / name, limit)[0]

    def look(self, name: str) -> Found | None:
        """A file with all that is to be kept of it; a symbolic link is looked through. None when it is not there."""
        path = self.path / name
        with reported(path, "reading"):
            link = None
            with contextlib.suppress(OSError):
                link = os.readlink(name, dir_fd=self.handle)
            try:
                handle = os.open(name, _LOOK | (0 if link is not None else os.O_NOFOLLOW), dir_fd=self.handle)
            except FileNotFoundError:
                return None
            data, metadata = _read(handle, path, sys.maxsize)
            return Found(data, metadata, link)

    # -- changing --------------------------------------------------------------------------------------------

    def make(self, name: str) -> None:
        """Make a folder; that it is there already is as good."""
        with reported(self.path / name, "making the folder"), contextlib.suppress(FileExistsError):
            system.mkdir(self.handle, name)

    def prepare(self, name: str, data: bytes, like: Metadata | None, unsynced: Unsynced, mode: int = 0o644) -> str:
        """Write the new bytes of ``name`` beside it; returns the temporary name. ``rename`` puts it in place."""
        temporary = temporary_name(name)
        with reported(self.path / name, "writing"):
            handle = self._create(temporary)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[system.write(handle, rest) :]
                if like is None:
                    system.chmod(handle, mode)
                else:
                    _hand_on(like, handle)
                unsynced.add(handle)
            finally:
                os.close(handle)
        return temporary

    def _create(self, temporary: str) -> int:
        try:
            return system.create(self.handle, temporary)
        except FileExistsError:  # left by an interrupted change: the lock is ours, so nobody is writing it
            system.unlink(self.handle, temporary)
            return system.create(self.handle, temporary)

    def prepare_link(self, name: str, target: str) -> str:
        """Make the symbolic link that is to become ``name`` beside it; returns the temporary name."""
        temporary = temporary_name(name)
        with reported(self.path / name, "writing"):
            try:
                system.symlink(self.handle, temporary, target)
            except FileExistsError:
                system.unlink(self.handle, temporary)
                system.symlink(self.handle, temporary, target)
        return temporary

    def rename(self, old: str, new: str) -> None:
        with reported(self.path / new, "replacing"):
            system.rename(self.handle, old, new)

    def remove(self, name: str) -> bool:
        """Remove a file; whether it was there."""
        with reported(self.path / name, "removing"):
            try:
                system.unlink(self.handle, name)
            except FileNotFoundError:
                return False
            return True

    def remove_empty(self, name: str) -> None:
        """Remove a folder in it; one that holds something is an IOFailure, and stays."""
        with reported(self.path / name, "removing the folder"):
            system.rmdir(self.handle, name)

    def sync(self) -> None:
        """fsync, so that renames and removals in this folder are on the disk."""
        with reported(self.path, "syncing the folder"):
            system.sync(self.handle)


def temporary_name(name: str) -> str:
    """The one name under which the next bytes of ``name`` are written, so that what is left behind is found."""
    return TEMPORARY + hashlib.sha256(name.encode()).hexdigest()[:16]


def _read(handle: int, path: Path, limit: int) -> tuple[bytes, Metadata]:
    """Read and close an open file."""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise IOFailure("this is no regular file", where=str(path))
        if status.st_size > limit:
            raise IOFailure(f"the file is larger than {limit} bytes", where=str(path))
        names = os.listxattr(handle) if hasattr(os, "listxattr") else ()
        attributes = tuple((name, os.getxattr(handle, name)) for name in names if not name.startswith(_KERNELS_OWN))
        mode = stat.S_IMODE(status.st_mode)
        kept = Metadata(mode, status.st_uid, status.st_gid, status.st_mtime_ns // 10**9, status.st_size, attributes)
        return file.read(), kept


_KERNELS_OWN = ("security.selinux", "security.ima", "security.evm", "trusted.")


def _hand_on(kept: Metadata, handle: int) -> None:
    """Give an open new file the owner, mode and attributes of the old one, and a later second of modification.

    Bytecode caches hold the second and the size of their source. A file of the same size written in the same
    second as its predecessor would be taken for it, so every second that is given here is later than the last.
    """
    status = os.fstat(handle)
    if (status.st_uid, status.st_gid) != (kept.user, kept.group):
        system.chown(handle, kept.user, kept.group)
    system.chmod(handle, kept.mode)
    for name, value in kept.attributes:
        system.set_attribute(handle, name, value)
    system.set_time(handle, max(time.time_ns(), (kept.modified + 1) * 10**9))


# -- bytecode ----------------------------------------------------------------------------------------------------


def cached_bytecode(folders: Iterable[Path], name: str) -> list[tuple[Path, list[str]]]:
    """Where interpreters keep what they compiled from a source file: folders, and the names in them.

    ``folders`` are all the names of the source's folder. Bytecode lies beside the source, for every interpreter and
    optimisation level, and below PYTHONPYCACHEPREFIX where it is set.
    """
    prefixes = list(dict.fromkeys(filter(None, (os.environ.get("PYTHONPYCACHEPREFIX"), sys.pycache_prefix))))
    stem = name.removesuffix(".py") + "."
    found = []
    for folder in dict.fromkeys(folders):
        for place in (folder / "__pycache__", *(Path(prefix, *folder.parts[1:]) for prefix in prefixes)):
            try:
                names = [p.name for p in place.iterdir() if p.name.startswith(stem) and p.suffix == ".pyc"]
            except OSError:
                continue
            if names:
                found.append((place, sorted(names)))
    return found


def remove_bytecode(folders: Iterable[Path], name: str) -> None:
    """Remove every cached bytecode of a source file, durably, so that no interpreter runs what it was compiled from."""
    for place, names in cached_bytecode(folders, name):
        with Folder.at(place) as cache:
            for cached in names:
                cache.remove(cached)
            cache.sync()


# -- may it be written? --------------------------------------------------------------------------------------------

_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS of Linux
_IMMUTABLE = 0x10
_APPEND_ONLY = 0x20


def require_writable(path: Path) -> None:
    """Raises IOFailure when nothing can be made in this folder (or, while it is not there, above it)."""
    existing = next(p for p in (path, *path.parents) if p.exists())
    _refuse_flags(existing)
    effective = os.access in os.supports_effective_ids
    if not os.access(existing, os.W_OK | os.X_OK, effective_ids=effective):
        hint = "mount it writable, or run sm-patch as the user that owns it"
        raise IOFailure("the folder cannot be written", where=str(existing), hint=hint)


def require_replaceable(path: Path) -> None:
    """Raises IOFailure when the file cannot be replaced by one that is like it."""
    status = path.stat()
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise IOFailure("the file is set-user-ID or set-group-ID", where=str(path), hint="sm-patch writes no such file")
    _refuse_flags(path)
    if os.geteuid() not in (0, status.st_uid):
        hint = "run sm-patch as the user that owns it, or as root"
        raise IOFailure(f"the file belongs to user {status.st_uid}, and would not after", where=str(path), hint=hint)


def _refuse_flags(path: Path) -> None:
    """Files and folders that even root may not change (chattr +i, +a), where the file system has such flags."""
    if sys.platform != "linux":
        return
    try:
        handle = os.open(path, _LOOK)
    except OSError:
        return
    try:
        flags = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, struct.pack("l", 0)))[0]
    except OSError:
        return
    finally:
        os.close(handle)
    if flags & (_IMMUTABLE | _APPEND_ONLY):
        word = "immutable" if flags & _IMMUTABLE else "append-only"
        raise IOFailure(f"this is marked {word}", where=str(path), hint=f"lift it with chattr -{word[0]} {path}")


# -- the lock --------------------------------------------------------------------------------------------------------


class Lock:
    """An exclusive lock on a file of a folder; it dies with the process. The file says who holds it."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._handle = -1

    def acquire(self, seconds: float, saying: str) -> bool:
        """Wait for it. Whether it was got. ``saying``: what those who wait are told about its holder."""
        deadline = time.monotonic() + seconds
        with reported(self._folder.path / self._name, "locking"):
            while not self._try():
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
            with contextlib.suppress(OSError):  # a full disk is no reason not to revert
                system.truncate(self._handle)
                system.write(self._handle, saying.encode("utf-8", "replace"))
        return True

    def _try(self) -> bool:
        handle = system.open_lock(self._folder.handle, self._name)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:
            os.close(handle)
            raise
        there = self._folder.status(self._name)
        if there is None or there.st_ino != os.fstat(handle).st_ino:  # removed while we waited
            os.close(handle)
            return False
        self._handle = handle
        return True

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def holder(self) -> str | None:
        """What the holder says of itself, None when nobody holds it. Changes nothing."""
        try:
            handle = os.open(self._name, _LOOK | os.O_NOFOLLOW, dir_fd=self._folder.handle)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            said = os.read(handle, 400).decode("utf-8", "replace")
            return "".join(c if c.isprintable() else " " for c in said).strip() or "a process that did not say which"
        finally:
            os.close(handle)
        return None
