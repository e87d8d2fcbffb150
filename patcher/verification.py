"""``verify``: everything on record is read again and compared. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patcher.errors import SmPatchError, StoreDamaged
from patcher.gate import Direction
from patcher.operations import FileState, Workplace
from patcher.source import digest

_FILES = {
    FileState.OURS: "ok",
    FileState.EDITED: "modified",
    FileState.RESTORED: "lost",
    FileState.REPLACED: "lost",
    FileState.MISSING: "missing",
}


@dataclass(frozen=True)
class Verification:
    """What was found. ``files``: ok, modified, lost or missing; ``backups``: ok or damaged; ``proofs``: ok or why not.

    ``unneeded``: backups in bytes that nothing on record needs; ``unfinished``: files that an interruption left.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    backups: Mapping[str, str] = field(default_factory=dict)
    proofs: Mapping[str, str] = field(default_factory=dict)
    unneeded: Mapping[str, int] = field(default_factory=dict)
    unfinished: Sequence[str] = ()
    unrecorded: Mapping[str, str] = field(default_factory=dict)
    """Gates with edits of sm-patch that there is no record of (moved or copied without it): what is to be said."""
    interrupted: bool = False
    damage: SmPatchError | None = None

    @property
    def exit_code(self) -> int:
        """0 all is well, 1 lost, missing or proven no more, 4 modified, 5 interrupted or damaged."""
        if self.damage is not None:
            return self.damage.exit_code
        if self.interrupted or "damaged" in self.backups.values():
            return 5
        if "modified" in self.files.values() or self.unrecorded:
            return 4
        drifted = {*self.files.values(), *self.proofs.values()} - {"ok"}
        return 1 if drifted else 0


def verify(workplace: Workplace) -> Verification:
    """Read everything again. What is damaged is told, not raised; Untrusted is raised."""
    store = workplace.store
    interrupted, unfinished = store.interrupted(), store.sweep_package(remove=False)
    try:
        manifest = workplace.manifest
    except StoreDamaged as error:
        return Verification(_told_by_distribution(workplace), damage=error, interrupted=interrupted)
    backups = {path: _backup(workplace, record.original) for path, record in manifest.files.items()}
    return Verification(
        {path: _FILES[state] for path, state in workplace.file_states.items()},
        backups,
        _proofs(workplace, backups),
        {sha: size for sha, size in store.blobs().items() if sha not in manifest.originals},
        unfinished,
        workplace.unrecorded,
        interrupted,
    )


def _backup(workplace: Workplace, sha: str) -> str:
    try:
        workplace.store.blob(sha)
    except StoreDamaged:
        return "damaged"
    return "ok"


def _proofs(workplace: Workplace, backups: Mapping[str, str]) -> dict[str, str]:
    """Every gate in force planned and proven again from the originals; it must come to the very bytes on record."""
    manifest = workplace.manifest
    told = {}
    in_force = set()
    wanted = {}
    for name, record in manifest.gates.items():
        bad = next((path for path in record.files if backups[path] != "ok"), None)
        if name not in workplace.gates:
            told[name] = "this sm-patch does not have its recipe"
        elif bad is not None:
            told[name] = f"cannot be proven: the backup of {bad} is damaged"
        else:
            # One that is no longer in force as a whole still has its part in the files it shares.
            wanted[workplace.gates[name]] = Direction(record.direction)
            if workplace.active(name) is None:
                told[name] = "no longer in force as written"
            else:
                in_force.add(name)
    try:
        paths = {path for gate in wanted for path in manifest.gates[gate.id].files}
        originals = {path: workplace.store.blob(manifest.files[path].original) for path in paths}
        plan = workplace.inspector.replaced(originals).plan(wanted)
    except SmPatchError as error:
        return told | dict.fromkeys(in_force, error.what)
    for name in in_force:
        differ = [
            path
            for path in manifest.gates[name].files
            if path not in plan.changes or digest(plan.changes[path].after) != manifest.files[path].written
        ]
        told[name] = f"this sm-patch would write {differ[0]} differently: apply again" if differ else "ok"
    return told


def _told_by_distribution(workplace: Workplace) -> dict[str, str]:
    """Without a manifest: which files of the recipes are as the distribution has them, where it says."""
    said = workplace.distributed
    told = {}
    for gate in workplace.gates.values():
        for path in workplace.paths(gate):
            source = workplace.tree.get(path)
            wanted = said.digest(path)
            if wanted is not None:
                state = "ok" if source is not None and source.digest == wanted else "modified"
                told[path] = "missing" if source is None else state
    return told
