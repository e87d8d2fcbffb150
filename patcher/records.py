"""What the store writes down: manifest and journal, and reading them without trusting them.

Both are JSON with a digest of themselves. Reading checks everything that later code relies on: kinds, digests, paths
below the package, names without control characters. What does not pass is StoreDamaged, never half-used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from patcher.errors import StoreDamaged
from patcher.gate import Direction
from patcher.source import digest

SCHEMA = 1

_DIGEST = re.compile(r"[0-9a-f]{64}")
_GATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DIRECTIONS = tuple(direction.value for direction in Direction)
_T = TypeVar("_T")


@dataclass(frozen=True)
class FileRecord:
    """A file that sm-patch wrote: SHA-256 of the bytes before and after.

    ``link``: what the symbolic link said that the file stands in the place of. ``version``: the engine's, then.
    """

    original: str
    written: str
    link: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class GateRecord:
    """A gate in force: the value of its ``Direction``, its files, and under which circumstances it was applied."""

    direction: str
    files: tuple[str, ...]
    targets: tuple[str, ...]
    applied: str
    forced: bool = False
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What is in force. Paths are relative to the folder that holds the package. ``serial`` counts the changes."""

    engine: str
    version: str | None
    files: Mapping[str, FileRecord] = field(default_factory=dict)
    gates: Mapping[str, GateRecord] = field(default_factory=dict)
    serial: int = field(default=0, compare=False)

    def differs(self, other: Manifest) -> bool:
        """Whether anything else is in force there."""
        return (self.files, self.gates) != (other.files, other.gates)

    @property
    def originals(self) -> set[str]:
        """The digests of the backups that it needs."""
        return {record.original for record in self.files.values()}


@dataclass(frozen=True)
class Move:
    """A file of a journal: digests of its bytes before and after, and the symbolic links it was and will be."""

    old: str
    new: str
    old_link: str | None = None
    new_link: str | None = None


@dataclass(frozen=True)
class Journal:
    """A change being made: the manifests it may start from (None: none yet), the one it ends with, the files."""

    before: tuple[str | None, ...]
    after: str
    moves: Mapping[str, Move]

    def reached(self, manifest: bytes | None) -> bool:
        """Whether the change was made: its manifest, written last, is there."""
        return manifest is not None and digest(manifest) == self.after


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def parts_below(path: str, package: str) -> tuple[str, ...] | None:
    """The components of a relative path below the package, None when it is anything else."""
    parts = tuple(path.split("/"))
    plain = path.isprintable() and "\\" not in path and not any(p in ("", ".", "..") or len(p) > 255 for p in parts)
    return parts if plain and len(parts) > 1 and parts[0] == package else None


# -- writing -------------------------------------------------------------------------------------------------------


def encode_manifest(manifest: Manifest) -> bytes:
    return seal({"schema": SCHEMA, **asdict(manifest)})


def encode_journal(journal: Journal) -> bytes:
    return seal({"schema": SCHEMA, **asdict(journal)})


def seal(data: Mapping[str, Any]) -> bytes:
    """JSON with a digest of itself, so that damage shows."""
    return _dump({**data, "digest": digest(_dump(data))})


def _dump(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True).encode() + b"\n"


# -- reading -------------------------------------------------------------------------------------------------------


class _Bad(Exception):
    """Why something does not read as what it should be."""


def decode_manifest(data: bytes, where: Path, package: str) -> Manifest:
    """Read a manifest. Raises StoreDamaged."""
    return _decoded(data, where, lambda found: _manifest(found, package))


def decode_journal(data: bytes, where: Path, package: str) -> Journal:
    """Read a journal. Raises StoreDamaged."""
    return _decoded(data, where, lambda found: _journal(found, package))


def _decoded(data: bytes, where: Path, read: Callable[[dict[str, Any]], _T]) -> _T:
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise _Bad("not an object")
        if found.get("schema") != SCHEMA:
            raise _Bad("of a kind this sm-patch does not read")
        if found.pop("digest", None) != digest(_dump(found)):
            raise _Bad("altered or cut off")
        return read(found)
    except (_Bad, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _Bad) else "not JSON"
        hint = "put back the file as sm-patch wrote it; or reinstall the engine's distribution and move the folder away"
        raise StoreDamaged(f"sm-patch's own record is damaged: {reason}", where=str(where), hint=hint) from error


def _manifest(data: dict[str, Any], package: str) -> Manifest:
    _fields(data, Manifest, "schema")
    files = {_path(path, package): _file(record) for path, record in _object(data["files"]).items()}
    gates = {_gate_id(name): _gate(record, package) for name, record in _object(data["gates"]).items()}
    for name, record in gates.items():
        if not files.keys() >= set(record.files):
            raise _Bad(f"gate {name} names files that are not recorded")
    serial = data["serial"]
    if type(serial) is not int or not 0 <= serial < 1 << 53:
        raise _Bad("no serial number")
    return Manifest(_text(data["engine"]), _optional(data["version"]), files, gates, serial)


def _file(data: object) -> FileRecord:
    record = _fields(_object(data), FileRecord)
    return FileRecord(
        _digest(record["original"]), _digest(record["written"]), _optional(record["link"]), _optional(record["version"])
    )


def _gate(data: object, package: str) -> GateRecord:
    record = _fields(_object(data), GateRecord)
    if record["direction"] not in _DIRECTIONS:
        raise _Bad("a direction that is none")
    if type(record["forced"]) is not bool:
        raise _Bad("'forced' is neither true nor false")
    return GateRecord(
        record["direction"],
        tuple(_path(path, package) for path in _list(record["files"])),
        tuple(map(_text, _list(record["targets"]))),
        _text(record["applied"]),
        record["forced"],
        tuple(map(_text, _list(record["assumed"]))),
    )


def _journal(data: dict[str, Any], package: str) -> Journal:
    _fields(data, Journal, "schema")
    before = tuple(None if sha is None else _digest(sha) for sha in _list(data["before"]))
    moves = {_path(path, package): _move(move) for path, move in _object(data["moves"]).items()}
    return Journal(before, _digest(data["after"]), moves)


def _move(data: object) -> Move:
    move = _fields(_object(data), Move)
    return Move(_digest(move["old"]), _digest(move["new"]), _optional(move["old_link"]), _optional(move["new_link"]))


def _fields(data: dict[str, Any], kind: type, *more: str) -> dict[str, Any]:
    wanted = {*kind.__dataclass_fields__, *more}  # type: ignore[attr-defined]
    if data.keys() != wanted:
        raise _Bad(f"unexpected or missing fields: {', '.join(sorted(wanted ^ data.keys()))[:200]!r}")
    return data


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Bad("a list or a value where an object should be")
    return value


def _list(value: object) -> Iterable[Any]:
    if not isinstance(value, list):
        raise _Bad("something else where a list should be")
    return value


def _text(value: object) -> str:
    """A text that may be shown: no control characters, nothing that cannot be encoded."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise _Bad("a text that sm-patch would not have written")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _digest(value: object) -> str:
    if not isinstance(value, str) or not is_digest(value):
        raise _Bad("a digest that is none")
    return value


def _gate_id(value: str) -> str:
    if not _GATE.fullmatch(value):
        raise _Bad("a gate's name that sm-patch would not have written")
    return value


def _path(value: object, package: str) -> str:
    if not isinstance(value, str) or parts_below(value, package) is None:
        raise _Bad(f"a path that is not below the package: {str(value)[:200]!a}")
    return value
