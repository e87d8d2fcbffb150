"""The store of one installation: original bytes, manifest, journal and lock.

    <state>/manifest.json     which gates are applied, and each file's original and written digest
    <state>/blobs/<sha256>    the bytes those digests name
    <state>/journal.json      only while files are being replaced, or after that was interrupted
    <state>/lock              held while something is written

Order of every change: blobs, journal, files, manifest, journal removed; each step is on the disk before the next.
After an interruption the next writing command undoes it (or, when the manifest was reached, finishes it).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from patcher import disk
from patcher.errors import Busy, RecoveryNeeded, StoreDamaged
from patcher.source import digest

SCHEMA = 1
_LOCK_SECONDS = 30


@dataclass(frozen=True)
class FileRecord:
    """A file that sm-patch wrote: SHA-256 of the bytes before and after."""

    original: str
    written: str


@dataclass(frozen=True)
class GateRecord:
    """A gate in force: ``direction`` open or close, its files, and under which circumstances it was applied."""

    direction: str
    files: tuple[str, ...]
    targets: tuple[str, ...]
    applied: str
    forced: bool = False
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What is in force. Paths are relative to the folder that holds the package."""

    engine: str
    version: str | None
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    gates: Mapping[str, GateRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class Write:
    """One file to replace: the SHA-256 it must have now, and its new bytes."""

    expected: str
    data: bytes


class Store:
    """Reads need no lock; ``commit`` must be called inside ``locked``."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.state = state

    # -- reading ---------------------------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """What is in force, or None when nothing ever was. Raises StoreDamaged."""
        data = self._json("manifest.json")
        return None if data is None else _manifest_from(data, self.state / "manifest.json")

    def interrupted(self) -> bool:
        """Whether a change was cut off and waits to be undone or finished."""
        return (self.state / "journal.json").exists()

    def blob(self, sha: str) -> bytes:
        """The bytes of a digest. Raises StoreDamaged when they are gone or altered."""
        path = self.state / "blobs" / sha
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StoreDamaged(f"a backup cannot be read: {error.strerror}", where=str(path)) from error
        if digest(data) != sha:
            raise StoreDamaged("a backup does not have the bytes it should have", where=str(path))
        return data

    def _json(self, name: str) -> dict[str, Any] | None:
        path = self.state / name
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        except OSError as error:
            raise StoreDamaged(f"cannot be read: {error.strerror}", where=str(path)) from error
        except ValueError as error:
            raise StoreDamaged(f"is not JSON: {error}", where=str(path)) from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise StoreDamaged("is not of a kind this sm-patch reads", where=str(path))
        return data

    # -- writing ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the installation's lock; first settle what an interrupted change left. Raises Busy."""
        from filelock import FileLock, Timeout

        disk.make_folder(self.state)
        ignore = self.state / ".gitignore"
        if not ignore.exists():
            disk.write(ignore, b"*\n")
        lock = FileLock(self.state / "lock", timeout=_LOCK_SECONDS)
        holder = self.state / "holder"
        try:
            lock.acquire()
        except Timeout as error:
            with contextlib.suppress(OSError):
                raise Busy(
                    f"another sm-patch (process {holder.read_text().strip()}) is changing this installation",
                    where=str(self.root),
                    hint="wait for it to end, then try again",
                ) from error
            raise Busy("another sm-patch is changing this installation", where=str(self.root)) from error
        try:
            holder.write_text(str(os.getpid()))
            self._settle()
            yield
        finally:
            with contextlib.suppress(OSError):
                holder.unlink()
            lock.release()

    def commit(self, writes: Mapping[str, Write], manifest: Manifest) -> None:
        """Replace files and record it, all or nothing. Raises ChangedMeanwhile, IOFailure; then all is as before."""
        for path in writes:
            disk.require_writable((self.root / path).parent)
        before = {}
        for path, change in writes.items():
            data = disk.read(self.root / path)
            before[path] = digest(data)
            self._keep(data)
            self._keep(change.data)
        journal = {
            "schema": SCHEMA,
            "files": {path: [change.expected, digest(change.data)] for path, change in writes.items()},
            "manifest": digest(_encode(manifest)),
        }
        disk.write(self.state / "journal.json", _dump(journal))
        try:
            for path, change in writes.items():
                self._replace(path, change.data, change.expected)
            disk.write(self.state / "manifest.json", _encode(manifest))
        except BaseException:
            self._settle()
            raise
        disk.remove(self.state / "journal.json")
        self._drop_unused(manifest)

    def _replace(self, path: str, data: bytes, expected: str) -> None:
        target = (self.root / path).resolve()
        disk.write(target, data, like=target, expected=expected)
        disk.remove_bytecode(target)

    def _keep(self, data: bytes) -> None:
        folder = self.state / "blobs"
        disk.make_folder(folder)
        path = folder / digest(data)
        if not path.exists() or digest(path.read_bytes()) != path.name:
            disk.write(path, data)

    def _settle(self) -> None:
        """Undo an interrupted change, or finish it when its manifest was already written."""
        journal = self._json("journal.json")
        if journal is None:
            return
        path = self.state / "manifest.json"
        reached = path.exists() and digest(path.read_bytes()) == journal["manifest"]
        for name, (old, new) in journal["files"].items():
            current = digest(disk.read(self.root / name))
            wanted, other = (new, old) if reached else (old, new)
            if current == other:
                self._replace(name, self.blob(wanted), current)
            elif current != wanted:
                raise RecoveryNeeded(
                    "a change was interrupted, and this file has since been altered by something else",
                    where=str(self.root / name),
                    hint=f"put back the bytes of {self.state / 'blobs' / wanted}, then try again",
                )
            disk.remove_bytecode(self.root / name)
        disk.remove(self.state / "journal.json")

    def _drop_unused(self, manifest: Manifest) -> None:
        used = {sha for record in manifest.files.values() for sha in (record.original, record.written)}
        for path in (self.state / "blobs").iterdir():
            if path.name not in used:
                disk.remove(path)


def _dump(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True).encode() + b"\n"


def _encode(manifest: Manifest) -> bytes:
    return _dump({"schema": SCHEMA, **asdict(manifest)})


def _manifest_from(data: Mapping[str, Any], path: Path) -> Manifest:
    try:
        files = {name: FileRecord(**record) for name, record in data["files"].items()}
        gates = {
            name: GateRecord(
                **{**r, "files": tuple(r["files"]), "targets": tuple(r["targets"]), "assumed": tuple(r["assumed"])}
            )
            for name, r in data["gates"].items()
        }
        return Manifest(data["engine"], data["version"], files, gates)
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"does not read as a manifest: {error}", where=str(path)) from error
