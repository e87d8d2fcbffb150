"""What a disk may hold after the power failed: everything that was synced, and any part of what was not.

The model is weaker than real file systems: of the entries of a folder that were made, renamed or removed since its
last fsync, any selection may have happened, in whatever order; of a file's bytes since its last fsync, all, half or
none are there. A folder's fsync says nothing about the files in it, nor the other way round.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.store.faults import Steps


@dataclass(eq=False)
class File:
    """Bytes as they are, and as they were when they were last synced."""

    data: bytes = b""
    durable: bytes = b""


@dataclass(eq=False)
class Folder:
    """Entries as they were when last synced, and what happened to them since: name → entry, or None: gone."""

    durable: dict[str, Any] = field(default_factory=dict)
    since: list[dict[str, Any]] = field(default_factory=list)
    now: dict[str, Any] = field(default_factory=dict)

    def happen(self, what: dict[str, Any]) -> None:
        self.since.append(what)
        _update(self.now, what)

    def sync(self) -> None:
        self.durable, self.since = dict(self.now), []


def _update(entries: dict[str, Any], what: dict[str, Any]) -> None:
    for name, entry in what.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry


class Disk(Steps):
    """Records every step in the model, doing it for real as well; ``look`` is called after each."""

    def __init__(self, folder: Path, look: Callable[[Disk], None]) -> None:
        super().__init__()
        self.root = Folder()
        self._known: dict[int, File | Folder] = {}
        self._read(folder, self.root)
        self._look = look

    def _read(self, path: Path, folder: Folder) -> None:
        self._known[path.stat().st_ino] = folder
        for child in path.iterdir():
            entry: Any
            if child.is_symlink():
                entry = str(child.readlink())
            elif child.is_dir():
                entry = Folder()
                self._read(child, entry)
            else:
                data = child.read_bytes()
                entry = File(data, data)
                self._known[child.stat().st_ino] = entry
            folder.now[child.name] = entry
        folder.sync()

    def step(self, do: Callable[..., Any], name: str, *arguments: Any) -> Any:
        before = self._before(name, arguments)
        result = do(*arguments)
        getattr(self, f"_{name}", lambda *_: None)(before, result, *arguments)
        self._look(self)
        return result

    def _before(self, name: str, arguments: Sequence[Any]) -> Any:
        return self._known.get(os.fstat(arguments[0]).st_ino)

    def _mkdir(self, at: Folder, result: object, folder: int, name: str) -> None:
        made = Folder()
        self._known[os.stat(name, dir_fd=folder).st_ino] = made
        at.happen({name: made})

    def _create(self, at: Folder, handle: int, folder: int, name: str) -> None:
        made = File()
        self._known[os.fstat(handle).st_ino] = made
        at.happen({name: made})

    def _open_lock(self, at: Folder, handle: int, folder: int, name: str) -> None:
        if name not in at.now:
            self._create(at, handle, folder, name)

    def _write(self, file: File | None, written: int, handle: int, data: bytes | memoryview) -> None:
        if file is not None:
            file.data += bytes(data[:written])

    def _sync(self, what: File | Folder, result: object, handle: int) -> None:
        if isinstance(what, Folder):
            what.sync()
        else:
            what.durable = what.data

    def _symlink(self, at: Folder, result: object, folder: int, name: str, target: str) -> None:
        at.happen({name: target})

    def _rename(self, at: Folder, result: object, folder: int, old: str, new: str) -> None:
        at.happen({new: at.now[old], old: None})

    def _unlink(self, at: Folder, result: object, folder: int, name: str) -> None:
        at.happen({name: None})

    def _rmdir(self, at: Folder, result: object, folder: int, name: str) -> None:
        at.happen({name: None})


def selections(number: int) -> Iterator[tuple[int, ...]]:
    """Which of a folder's pending entries happened: any of few; of many, prefixes, and all but or only up to two."""
    if number <= 5:
        for size in range(number + 1):
            yield from combinations(range(number), size)
        return
    seen: set[tuple[int, ...]] = set()
    for size in (0, 1, 2, number - 2, number - 1, number):
        seen.update(combinations(range(number), size))
    seen.update(tuple(range(size)) for size in range(number + 1))
    yield from sorted(seen)


def crashes(disk: Disk, chance: random.Random) -> Iterator[dict[str, bytes | str | None]]:
    """Trees (path → bytes, link, or None for a folder) that may be found when the power fails now."""
    folders = [folder for folder in _folders(disk.root) if folder.since]
    whole = {id(folder): tuple(range(len(folder.since))) for folder in folders}
    chosen: list[dict[int, tuple[int, ...]]] = [whole, {id(folder): () for folder in folders}]
    for folder in folders:
        for others in (whole, chosen[1]):
            chosen += [{**others, id(folder): selection} for selection in selections(len(folder.since))]
    for _ in range(20):
        chosen.append({id(f): tuple(i for i in range(len(f.since)) if chance.random() < 0.5) for f in folders})
    for selection in chosen:
        for part in (1.0, 0.5, 0.0):
            yield dict(_seen(disk.root, "", selection, part))


def _folders(folder: Folder) -> Iterator[Folder]:
    yield folder
    for entry in {id(e): e for e in (*folder.durable.values(), *folder.now.values())}.values():
        if isinstance(entry, Folder):
            yield from _folders(entry)


def _seen(
    folder: Folder, path: str, selection: dict[int, tuple[int, ...]], part: float
) -> Iterator[tuple[str, bytes | str | None]]:
    entries = dict(folder.durable)
    for index in selection.get(id(folder), ()):
        _update(entries, folder.since[index])
    for name, entry in entries.items():
        if isinstance(entry, Folder):
            yield path + name, None
            yield from _seen(entry, f"{path}{name}/", selection, part)
        elif isinstance(entry, File):
            fresh = entry.data if entry.data != entry.durable else entry.durable
            kept = max(len(entry.durable), int(len(fresh) * part)) if fresh != entry.durable else len(fresh)
            yield path + name, fresh[:kept]
        else:
            yield path + name, entry


def materialise(tree: dict[str, bytes | str | None], folder: Path) -> None:
    """Make a tree real."""
    folder.mkdir(parents=True)
    for name, entry in tree.items():
        path = folder / name
        if entry is None:
            path.mkdir(exist_ok=True)
        elif isinstance(entry, str):
            path.symlink_to(entry)
        else:
            path.write_bytes(entry)
