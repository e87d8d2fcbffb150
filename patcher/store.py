"""The store of one installation: original bytes, manifest, journal and lock.

    <state>/manifest.json     which gates are applied, and each file's original and written digest
    <state>/blobs/<sha256>    the bytes those digests name
    <state>/journal.json      only while files are being replaced, or after that was interrupted
    <state>/lock              locked while something is written

The order of a change (``commit``):

1. the journal, which names every file with its old and new digest;
2. the old bytes of every file into the blobs, the new bytes beside every file, the new manifest beside the old one;
3. all of that onto the disk;
4. each new file over its old one, its digest looked at once more just before; the folders onto the disk;
5. cached bytecode away; every file read back;
6. the new manifest over the old one: from here on the change is made; onto the disk; the journal away.

Whatever stops this before 6, the next writing command undoes it from the journal (``_settle``); after 6, it finishes
it. What is in the state folder is not trusted: digests, paths and kinds are checked before anything is done with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from patcher import disk
from patcher.errors import Busy, ChangedMeanwhile, IOFailure, RecoveryNeeded, SmPatchError, StoreDamaged, Untrusted
from patcher.records import (
    FileRecord,
    GateRecord,
    Journal,
    Manifest,
    Move,
    decode_journal,
    decode_manifest,
    encode_journal,
    encode_manifest,
    is_digest,
    parts_below,
)
from patcher.source import digest

__all__ = ["FileRecord", "GateRecord", "Manifest", "Store", "Write"]

_MANIFEST, _JOURNAL, _BLOBS, _LOCK = "manifest.json", "journal.json", "blobs", "lock"
_RECORD_LIMIT = 64 << 20
_OWN_NAMES = ("sm-patch", ".sm-patch")


@dataclass(frozen=True)
class Write:
    """One file to replace: the SHA-256 it must have now, and its new bytes.

    ``link``: put this symbolic link in its place instead; ``data`` is then what it must lead to.
    """

    expected: str
    data: bytes
    link: str | None = None


class Store:
    """Reads need no lock and change nothing; ``commit`` and ``sweep`` must be called inside ``locked``.

    ``root`` is the folder that holds the engine's ``package``; nothing outside that package is ever written.
    """

    lock_seconds = 30.0

    def __init__(self, root: Path, state: Path, package: str | None = None) -> None:
        self.root = root
        self.state = state
        self.package = package or state.name
        self.notes: list[str] = []
        """What settling an interrupted change did, for people."""
        self._held: disk.Folder | None = None
        self._unsynced = disk.Unsynced()
        self._made: list[Path] = []
        """The folders that were made for the state, outermost first; they go again where nothing is recorded."""
        self._placed: dict[str, tuple[int, int]] | None = None
        """The very files that a change of this process has put in place; None when it was another process."""

    # -- reading ---------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """What is in force, or None when nothing ever was. Raises StoreDamaged, Untrusted."""
        data = self._record(_MANIFEST)
        return None if data is None else decode_manifest(data, self.state / _MANIFEST, self.package)

    def interrupted(self) -> bool:
        """Whether a change was cut off (or is being made right now) and waits to be undone. Raises Untrusted."""
        data = self._record(_JOURNAL)
        if data is None:
            return False
        try:
            journal = decode_journal(data, self.state / _JOURNAL, self.package)
        except StoreDamaged:
            return True
        return not journal.reached(self._record(_MANIFEST))

    def holder(self) -> str | None:
        """The process that is writing right now, as it calls itself; None when there is none."""
        with self._open() as state:
            return disk.Lock(state, _LOCK).holder() if state else None

    def mark(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes whenever something was written: the same before and after a look, the look was of one state."""
        with self._open() as state:
            found = [state.status(name) if state else None for name in (_MANIFEST, _JOURNAL)]
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) if s else None for s in found)

    def changed(self) -> float | None:
        """When something was last changed, in seconds since the epoch; None when nothing ever was."""
        with self._open() as state:
            status = state.status(_MANIFEST) if state else None
        return status.st_mtime if status else None

    def blob(self, sha: str) -> bytes:
        """The bytes of a digest. Raises StoreDamaged when they are gone or altered."""
        where = self.state / _BLOBS / sha
        with self._open(_BLOBS) as blobs:
            data = None
            if blobs and is_digest(sha):
                with contextlib.suppress(IOFailure):
                    data = blobs.read(sha)
        if data is None:
            raise StoreDamaged("a backup is gone or cannot be read", where=str(where), hint=_WAY_OUT)
        if digest(data) != sha:
            raise StoreDamaged("a backup does not have the bytes it should have", where=str(where), hint=_WAY_OUT)
        return data

    def blobs(self) -> dict[str, int]:
        """Every backup there is, by digest, with its size in bytes."""
        with self._open(_BLOBS) as blobs:
            names = [n for n in blobs.names() if is_digest(n)] if blobs else []
            return {name: s.st_size for name in names if blobs and (s := blobs.status(name))}

    def link(self, path: str) -> str | None:
        """Where a file of the package points when it is a symbolic link."""
        try:
            return str((self.root / path).readlink())
        except OSError:
            return None

    def leads_to(self, path: str, link: str | None, data: bytes) -> bool:
        """Whether a symbolic link in the place of a file would lead to these very bytes."""
        if link is None:
            return False
        target = (self.root / path).parent / link
        try:
            status = target.stat()
            return stat.S_ISREG(status.st_mode) and status.st_size == len(data) and target.read_bytes() == data
        except (OSError, ValueError):
            return False

    def _record(self, name: str) -> bytes | None:
        with self._open() as state:
            try:
                return state.read(name, _RECORD_LIMIT) if state else None
            except IOFailure as error:
                raise StoreDamaged(f"cannot be read: {error.what}", where=str(self.state / name)) from error

    @contextlib.contextmanager
    def _open(self, *inner: str, make: bool = False) -> Iterator[disk.Folder | None]:
        """The state folder (or one in it), each step of it trusted; None while it is not there. Raises Untrusted."""
        parts = self.state.parts
        own = len(parts) - (3 if parts[-3:][0] in _OWN_NAMES else 1)  # <own name>/<root>/<engine>
        above = Path(*parts[:own])
        with disk.reported(above, "looking"):
            there = above.is_dir()
        if not there:
            if not make:
                yield None
                return
            self._make_folders(above)
        folder = disk.Folder.at(above)
        try:
            for name in (*parts[own:], *inner):
                inside = self._child(folder, name)
                if inside is None and make:
                    self._made.append(folder.path / name)
                    folder.make(name)
                    self._unsynced.add(folder.handle)
                    inside = self._child(folder, name)
                if inside is None:
                    yield None
                    return
                folder.close()
                folder = inside
                self._trust(folder)
            yield folder
        finally:
            folder.close()

    def _make_folders(self, path: Path) -> None:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for folder in reversed(missing):
            with disk.Folder.at(folder.parent) as above:
                self._made.append(folder)
                above.make(folder.name)
                self._unsynced.add(above.handle)

    def _child(self, folder: disk.Folder, name: str) -> disk.Folder | None:
        try:
            return folder.child(name)
        except IOFailure as error:
            where = folder.path / name
            if where.is_symlink():
                raise Untrusted("sm-patch's own folder is a symbolic link", where=str(where), hint=_MOVE) from error
            raise

    def _trust(self, folder: disk.Folder) -> None:
        status = os.fstat(folder.handle)
        if status.st_mode & 0o002:
            hint = f"chmod -R o-w {folder.path}, if nobody else has written in it"
            raise Untrusted("anybody may write in sm-patch's own folder", where=str(folder.path), hint=hint)
        owners = {0, os.geteuid()}
        with contextlib.suppress(OSError):
            owners.add((self.root / self.package).stat().st_uid)
        if status.st_uid not in owners:
            what = f"sm-patch's own folder belongs to user {status.st_uid}, who is not the owner of the package"
            raise Untrusted(what, where=str(folder.path), hint=_MOVE)

    # -- may it be written? ------------------------------------------------------------------------------------

    def check(self, writes: Mapping[str, Write]) -> None:
        """Raises IOFailure, naming the path, where a change could not be made. Writes nothing."""
        for path in writes:
            with disk.reported(self.root / path, "looking"):
                file = self._folder_of(path) / path.rpartition("/")[2]
                disk.require_writable(file.parent)
                if file.exists():
                    disk.require_replaceable(file)
                for place, _ in disk.cached_bytecode(self._names_of(path), file.name):
                    disk.require_writable(place)
        with disk.reported(self.state, "looking"):
            disk.require_writable(self.state)
        with self._open(_BLOBS):
            pass

    def _folder_of(self, path: str) -> Path:
        """The real folder of a file. Raises IOFailure when it is not below the package."""
        names = parts_below(path, self.package)
        if names is None:
            raise IOFailure("the path leads out of the package: sm-patch writes nothing there", where=path)
        package = (self.root / self.package).resolve()
        folder = self.root.joinpath(*names[:-1]).resolve()
        if folder != package and package not in folder.parents:
            what = f"the folder is a link that leads out of the package, to {folder}"
            hint = "name the real place with --root"
            raise IOFailure(what, where=str(self.root.joinpath(*names[:-1])), hint=hint)
        return folder

    def _names_of(self, path: str) -> tuple[Path, Path]:
        return self._folder_of(path), (self.root / path).parent.absolute()

    @contextlib.contextmanager
    def _target(self, path: str) -> Iterator[tuple[disk.Folder, str]]:
        """The open folder of a file and its name in it. Links that appear on the way meanwhile are not followed."""
        package = (self.root / self.package).resolve()
        below = self._folder_of(path).relative_to(package).parts
        with disk.Folder.at(package) as top, top.descend(below) as folder:
            yield folder, path.rpartition("/")[2]

    # -- writing -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the installation's lock; first settle what an interrupted change left. Raises Busy.

        Where nothing was ever recorded, nothing that was made for it stays behind.
        """
        try:
            with self._opened_and_locked() as (state, before):
                try:
                    self._held = state
                    self._settle()
                    if ".sm-patch" in self.state.parts and state.status(".gitignore") is None:
                        self._put(".gitignore", b"*\n")  # it lies beside the package, maybe in a checkout
                    yield
                finally:
                    with contextlib.suppress(SmPatchError):
                        self._leave_nothing(before)
                    self._held = None
                    self._unsynced.forget()
        finally:
            while self._made:
                made = self._made.pop()
                with contextlib.suppress(IOFailure), disk.Folder.at(made.parent) as above:  # it may be in use
                    above.remove_empty(made.name)

    @contextlib.contextmanager
    def _opened_and_locked(self) -> Iterator[tuple[disk.Folder, set[str]]]:
        """The state folder, locked, and what was in it before. Raises Busy."""
        deadline = time.monotonic() + self.lock_seconds
        entered = False
        while True:
            try:
                with self._open(make=True) as state:
                    assert state is not None
                    before = self._entries(state)
                    lock = disk.Lock(state, _LOCK)
                    try:
                        if not lock.acquire(max(0.0, deadline - time.monotonic()), _myself()):
                            holder = lock.holder() or "it has just ended"
                            raise Busy(
                                f"another sm-patch is changing this installation: {holder}",
                                where=str(self.root),
                                hint="wait for it to end, then try again",
                            )
                        entered = True
                        yield state, before
                    finally:
                        lock.release()
                    return
            except IOFailure as error:
                # Another sm-patch that had nothing to record has taken the folder away while this one came to it.
                gone = isinstance(error.__cause__, FileNotFoundError)
                if entered or not gone or time.monotonic() >= deadline:
                    raise

    def _entries(self, state: disk.Folder) -> set[str]:
        with self._open(_BLOBS) as blobs:
            inside = blobs.names() if blobs else []
        return {*state.names(), *(f"{_BLOBS}/{name}" for name in inside)}

    def _leave_nothing(self, before: Collection[str]) -> None:
        """Take away what this process made in the state folder, unless something is on record."""
        if {_MANIFEST, _JOURNAL} & set(self._state.names()):
            self._made.clear()
            return
        new = self._entries(self._state) - set(before)
        with self._open(_BLOBS) as blobs:
            for name in new:
                if blobs and name.startswith(f"{_BLOBS}/"):
                    blobs.remove(name.partition("/")[2])
        for name in new - {_BLOBS, _LOCK}:
            if "/" not in name:
                self._state.remove(name)
        if _LOCK in new:
            self._state.remove(_LOCK)  # who waits for it sees that it is gone, and makes another

    @property
    def _state(self) -> disk.Folder:
        assert self._held is not None, "inside locked() only"
        return self._held

    def commit(self, writes: Mapping[str, Write], manifest: Manifest) -> None:
        """Replace files and record it, all or nothing. Raises ChangedMeanwhile, IOFailure; then all is as before.

        RecoveryNeeded means that it could not be undone either: the next writing command tries again.
        """
        self.check(writes)
        before = self._record(_MANIFEST)
        previous = self.manifest()
        manifest = replace(manifest, serial=previous.serial + 1 if previous else 1)
        after = encode_manifest(manifest)
        old = {path: self._expected(path, change.expected) for path, change in writes.items()}
        moves = {
            path: Move(digest(old[path].data), digest(change.data), old[path].link, change.link)
            for path, change in writes.items()
        }
        journal = Journal((digest(before) if before is not None else None,), digest(after), moves)
        self._placed = {}
        try:
            self._put(_JOURNAL, encode_journal(journal))
            for found in old.values():
                self._keep(found)
            self._replace({path: (old[path], change) for path, change in writes.items()}, after)
        except BaseException as error:
            if not (self._undo(error) and isinstance(error, IOFailure)):
                raise
            # the manifest was reached and is on the disk now: the change is made, whatever went wrong after
        finally:
            self._placed = None
        with contextlib.suppress(IOFailure):  # finished or not, it is settled next time
            self._state.remove(_JOURNAL)
            # What sm-patch had written itself was kept for the undo only; all other backups stay until ``sweep``.
            own = {record.written for record in previous.files.values()} if previous else set()
            self._drop({move.old for move in moves.values()} & own - manifest.originals)

    def _expected(self, path: str, expected: str) -> disk.Found:
        with self._target(path) as (folder, name):
            found = folder.look(name)
        if found is None or digest(found.data) != expected:
            raise ChangedMeanwhile(
                "the file changed while sm-patch was working", where=str(self.root / path), hint="try again"
            )
        return found

    def _put(self, name: str, data: bytes) -> None:
        """Write a file of the state folder: whole or not at all, also after a power loss."""
        written = disk.Unsynced()
        prepared = self._state.prepare(name, data, None, written)
        written.sync(self._state.path / name)
        self._state.rename(prepared, name)

    def _keep(self, found: disk.Found) -> None:
        sha = digest(found.data)
        with self._open(_BLOBS, make=True) as blobs:
            assert blobs is not None
            there = None
            with contextlib.suppress(IOFailure):
                there = blobs.read(sha)
            if there != found.data:
                mode = found.metadata.mode & 0o644 | 0o400  # nobody may read a backup who could not read the file
                blobs.rename(blobs.prepare(sha, found.data, None, self._unsynced, mode), sha)
            self._unsynced.add(blobs.handle)

    def _replace(self, files: Mapping[str, tuple[disk.Found, Write]], manifest: bytes) -> None:
        prepared = {
            path: self._prepare(path, found, change.data, change.link) for path, (found, change) in files.items()
        }
        new_manifest = self._state.prepare(_MANIFEST, manifest, None, self._unsynced)
        self._unsynced.add(self._state.handle)
        self._unsynced.sync(self.state)
        for path, (_, change) in files.items():
            with self._target(path) as (folder, name):
                self._expected(path, change.expected)
                if self._placed is not None and (new := folder.status(prepared[path])):
                    self._placed[path] = (new.st_dev, new.st_ino)
                folder.rename(prepared[path], name)
                self._unsynced.add(folder.handle)
        self._unsynced.sync(self.root)
        for path, (_, change) in files.items():
            disk.remove_bytecode(self._names_of(path), path.rpartition("/")[2])
            self._expected(path, digest(change.data))
        self._state.rename(new_manifest, _MANIFEST)
        self._state.sync()

    def _prepare(self, path: str, found: disk.Found, data: bytes, link: str | None) -> str:
        with self._target(path) as (folder, name):
            if link is not None:
                return folder.prepare_link(name, link)
            return folder.prepare(name, data, found.metadata, self._unsynced)

    def _undo(self, cause: BaseException) -> bool:
        """Settle at once what ``commit`` could not end. Whether the change had been made nevertheless."""
        self._unsynced.forget()
        try:
            return self._settle()
        except (IOFailure, RecoveryNeeded) as error:
            why = getattr(cause, "what", None) or "interrupted"
            what = f"the change failed ({why}) and cannot be undone yet: {error.what}"
            with contextlib.suppress(SmPatchError):
                if not self.interrupted():
                    what = f"the change was made, but cannot be made safe against a power loss: {error.what}"
            hint = f"{error.hint or 'see to that'}; {_SETTLE}"
            raise RecoveryNeeded(what, where=error.where, hint=hint) from cause

    # -- after an interruption -----------------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Undo an interrupted change, or finish it when its manifest was reached; whether it was.

        A file that is neither the old nor the new one was changed by something else since: it is left as it is.
        """
        data = self._record(_JOURNAL)
        if data is None:
            self._tidy()
            return False
        journal = decode_journal(data, self.state / _JOURNAL, self.package)
        current = self._record(_MANIFEST)
        reached = journal.reached(current)
        if not reached and (digest(current) if current is not None else None) not in journal.before:
            raise StoreDamaged(
                "a change was interrupted, and the manifest is neither the one before nor the one after it",
                where=str(self.state / _MANIFEST),
                hint=_WAY_OUT,
            )
        foreign = [] if reached else self._put_back(journal)
        for path in journal.moves:
            self._clear(path)
        if foreign:
            self._remember(journal, foreign)
        if reached:
            self._state.sync()
        self._tidy()
        self._state.remove(_JOURNAL)
        self._state.sync()
        if not reached:
            self.notes.append(f"an interrupted change of {', '.join(journal.moves) or 'the manifest'} was undone")
        return reached

    def _put_back(self, journal: Journal) -> list[str]:
        """Give every file of the journal its old bytes again; the paths of those that are foreign now."""
        foreign = []
        failed: IOFailure | RecoveryNeeded | None = None
        for path, move in journal.moves.items():
            try:
                if not self._restore(path, move):
                    foreign.append(path)
            except (IOFailure, RecoveryNeeded) as error:
                failed = failed or error  # put back what can be put back first
        self._unsynced.sync(self.root)
        if failed is not None:
            raise failed
        return foreign

    def _restore(self, path: str, move: Move) -> bool:
        """Put one file back; False when something else changed or removed it, or its folder, meanwhile."""
        if not (self.root / path).parent.is_dir():
            return False
        with self._target(path) as (folder, name):
            found = folder.look(name)
            now = digest(found.data) if found else None
            if now == move.old:
                return True
            if found is None or now != move.new or not self._ours(path, folder, name):
                return False
            data = self.blob(move.old)
            link = move.old_link if self.leads_to(path, move.old_link, data) else None
            prepared = self._prepare(path, found, data, link)
            self._unsynced.sync(folder.path)
            self._expected(path, move.new)
            folder.rename(prepared, name)
            self._unsynced.add(folder.handle)
        return True

    def _ours(self, path: str, folder: disk.Folder, name: str) -> bool:
        """Whether a file with the new bytes is the one that was put there. Only the process that did it can tell."""
        if self._placed is None:
            return True
        there = folder.status(name)
        return there is not None and self._placed.get(path) == (there.st_dev, there.st_ino)

    def _clear(self, path: str) -> None:
        """Remove what an interrupted change may have left beside a file, and its cached bytecode."""
        if not (self.root / path).parent.is_dir():
            return
        with self._target(path) as (folder, name):
            folder.remove(disk.temporary_name(name))
        disk.remove_bytecode(self._names_of(path), path.rpartition("/")[2])

    def _remember(self, journal: Journal, foreign: Sequence[str]) -> None:
        """Keep the originals of files that were changed on top of an interrupted change on record."""
        manifest = self.manifest() or Manifest(self.package, None)
        added = {
            path: FileRecord(journal.moves[path].old, journal.moves[path].new, journal.moves[path].old_link)
            for path in foreign
            if path not in manifest.files and (self.root / path).exists()
        }
        for path in foreign:
            self.notes.append(f"{path} was changed by something else after an interruption; it was left as it is")
        if not added:
            return
        data = encode_manifest(replace(manifest, files={**manifest.files, **added}, serial=manifest.serial + 1))
        if digest(data) not in journal.before:
            self._put(_JOURNAL, encode_journal(replace(journal, before=(*journal.before, digest(data)))))
            self._state.sync()
        self._put(_MANIFEST, data)
        self._state.sync()

    def _tidy(self) -> None:
        """Remove unfinished files of the state folder itself."""
        with self._open(_BLOBS) as blobs:
            for folder in (self._state, *([blobs] if blobs else [])):
                for name in folder.names():
                    if name.startswith(disk.TEMPORARY):
                        folder.remove(name)

    # -- backups that nothing needs --------------------------------------------------------------------------------

    def sweep(self, manifest: Manifest, *, remove: bool = True) -> dict[str, int]:
        """Remove (or only list) every backup that the manifest does not need: digests, and sizes in bytes."""
        unneeded = {sha: size for sha, size in self.blobs().items() if sha not in manifest.originals}
        if remove:
            self._drop(unneeded)
        return unneeded

    def _drop(self, digests: Iterable[str]) -> None:
        with self._open(_BLOBS) as blobs:
            for sha in sorted(digests) if blobs else ():
                assert blobs is not None
                blobs.remove(sha)

    def sweep_package(self, *, remove: bool = True) -> list[str]:
        """Remove (or only list) unfinished files that a power loss may have left in the package; their paths."""
        package = (self.root / self.package).resolve()
        found = []
        for folder, _, names in os.walk(package):
            for name in names:
                if name.startswith(disk.TEMPORARY):
                    found.append(str(Path(folder, name).relative_to(package.parent)))
                    if remove:
                        with disk.Folder.at(package) as top, top.descend(Path(folder).relative_to(package).parts) as at:
                            at.remove(name)
        return sorted(found)


_MOVE = "look at what is in it; move it away if you do not know it, and start anew"
_SETTLE = "the next apply, revert or gc finishes this first"
_WAY_OUT = (
    "'sm-patch verify' says what can still be told; to start anew, reinstall the engine's distribution "
    "and move the state folder away"
)


def _myself() -> str:
    """This process, as others who wait for it are told."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:3]]) if sys.argv else "python"
    return f"process {os.getpid()} on {socket.gethostname()} since {since} ({command[:80]})"
