"""What the commands do, on one installation: look, apply, revert, compare, explain. Results are data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property
from pathlib import Path

from patcher import catalogue
from patcher.arch import SM
from patcher.checkout import local_changes
from patcher.condition import Truth
from patcher.environment import Installation, Recorded, Surroundings, strays
from patcher.errors import IOFailure, LocalEdits, NothingToForce, Refused, SmPatchError, Unrecognised
from patcher.gate import Direction, Gate, Level, State
from patcher.plan import FileChange, GateReport, GateStep, Inspector, Plan, default_gates
from patcher.predicate import ALL_WORLDS
from patcher.source import SourceTree, digest
from patcher.store import FileRecord, GateRecord, Manifest, Store, Write


class FileState(str, Enum):
    """A recorded file as it is now: as written, back to its original bytes, replaced, edited, or gone."""

    OURS = "as written"
    RESTORED = "original again"
    REPLACED = "as another installation wrote it"
    EDITED = "edited since"
    MISSING = "missing"


class Edited(str, Enum):
    """What revert does with a file that was edited since: give up before anything is written, leave it, replace it."""

    REFUSE = "refuse"
    KEEP = "keep-mine"
    RESTORE = "theirs"


@dataclass(frozen=True)
class Outcome:
    """What apply or revert did, or would do."""

    installation: Installation
    steps: Sequence[GateStep] = ()
    written: Sequence[FileChange] = ()
    skipped: Sequence[GateReport] = ()
    """Gates left alone, with the reason."""
    already: Sequence[GateReport] = ()
    """Gates in which nothing was left to do."""
    forced: Sequence[GateReport] = ()
    reverted: Sequence[str] = ()
    forgotten: Mapping[str, str] = field(default_factory=dict)
    """Recorded files that were left as they are, with the reason."""
    notes: Sequence[str] = ()
    """What else there is to know about this change."""
    errors: Sequence[SmPatchError] = ()
    """Why gates of the default set could not be brought in force, where that is no matter of requirements."""
    dry_run: bool = False


@dataclass(frozen=True)
class Cleaning:
    """What gc removed, or would: gates forgotten, backups by digest with their size in bytes, unfinished files."""

    installation: Installation
    forgotten: Sequence[str]
    backups: Mapping[str, int]
    unfinished: Sequence[str]
    notes: Sequence[str] = ()


Planned = tuple[Outcome, Manifest, dict[str, Write]]
"""What a change would come to: for people, for the record, for the disk."""

_MARK = b"# sm-patch: "
"""How the comments begin that mark inserted lines."""


class Workplace:
    """One installation with its store, opened for reading. Every look at the disk is made once."""

    def __init__(
        self,
        installation: Installation,
        assumptions: Mapping[str, str] | None = None,
        planned: dict[str, dict[str, bytes]] | None = None,
    ) -> None:
        self.installation = installation
        self.assumptions = dict(assumptions or {})
        self.planned_files = planned if planned is not None else {}
        self.facts = Surroundings(installation, assumptions, self.planned_files)
        self.store = Store(installation.root, installation.state_folder, installation.engine.package)

    @property
    def gates(self) -> dict[str, type[Gate]]:
        return catalogue.gates(self.installation.engine.name)

    @cached_property
    def manifest(self) -> Manifest:
        return self.store.manifest() or Manifest(self.installation.engine.name, self.installation.version)

    @property
    def unknown(self) -> list[str]:
        """Gates in force whose recipes this sm-patch does not have (an older sm-patch, a pack not opted in)."""
        return [name for name in self.manifest.gates if name not in self.gates]

    @property
    def unclaimed(self) -> list[str]:
        """Files on record without a gate: changed by something else after an interruption."""
        claimed = {path for record in self.manifest.gates.values() for path in record.files}
        return [path for path in self.manifest.files if path not in claimed]

    @cached_property
    def tree(self) -> SourceTree:
        return SourceTree(self.installation.root)

    @cached_property
    def inspector(self) -> Inspector:
        """Looks at the files as they are."""
        there = self.installation
        return Inspector(there.engine, self.tree, there.version, self.facts, there.verified)

    # -- recorded files --------------------------------------------------------------------------------------

    @cached_property
    def file_states(self) -> dict[str, FileState]:
        return {path: self._file_state(path, record) for path, record in self.manifest.files.items()}

    def _file_state(self, path: str, record: FileRecord) -> FileState:
        source = self.tree.get(path)
        if source is None:
            return FileState.MISSING
        if source.digest == record.written:
            return FileState.OURS
        if source.digest == record.original:
            return FileState.RESTORED
        if source.digest == self.distributed.digest(path):
            return FileState.REPLACED
        if record.version != self.installation.version and _MARK not in source.data:
            return FileState.REPLACED
        return FileState.EDITED

    @cached_property
    def distributed(self) -> Recorded:
        """What the engine's distribution says of its files."""
        return self.installation.recorded()

    def _states_of(self, gate_id: str) -> dict[str, FileState]:
        return {path: self.file_states[path] for path in self.manifest.gates[gate_id].files}

    def active(self, gate_id: str) -> Direction | None:
        """The direction in which a gate is in force, all its files as written; None when it is not."""
        record = self.manifest.gates.get(gate_id)
        if (
            record is None
            or gate_id not in self.gates
            or any(state is not FileState.OURS for state in self._states_of(gate_id).values())
        ):
            return None
        return Direction(record.direction)

    # -- status ----------------------------------------------------------------------------------------------

    def report(self, gate: type[Gate], sm: SM) -> GateReport:
        """The gate's state for ``sm``, what is recorded about it included."""
        report = self.inspector.report(gate, sm, self.active(gate.id))
        if gate.id not in self.manifest.gates:
            return self._unrecorded(report)
        states = self._states_of(gate.id)
        if FileState.EDITED in states.values():
            path = next(p for p, s in states.items() if s is FileState.EDITED)
            reason = f"{path} was edited since sm-patch wrote it"
            return replace(report, state=State.MODIFIED, reason=reason, direction=None)
        gone = [p for p, s in states.items() if s is not FileState.OURS]
        if gone and report.state is not State.OPEN:
            was, now = self.manifest.files[gone[0]].version, self.installation.version
            how = f"{was} was replaced by {now}" if was != now else "its files were put back (reinstalled?)"
            reason = f"no longer in force: {how}; {report.reason}"
            return replace(report, state=State.LOST, reason=reason)
        return report

    def unfounded(self, report: GateReport) -> bool:
        """Whether a gate that sm-patch opened lacks by now what it needs (forced and assumed ones never had it)."""
        record = self.manifest.gates.get(report.gate.id)
        if record is None or record.forced or record.assumed or report.state is not State.PATCHED:
            return False
        return Direction(record.direction).admits and not report.met

    def _unrecorded(self, report: GateReport) -> GateReport:
        """A report that does not take local edits, or sm-patch's own without their record, for upstream's."""
        if report.state not in (State.OPEN, State.CLOSED) or report.sm not in report.gate.targets:
            return report
        marked = self._marked(report.gate)
        if marked is not None:
            return replace(report, state=State.MODIFIED, reason=self._without_record(marked), direction=None)
        for path in self.paths(report.gate):
            source = self.tree.get(path)
            changed = source is not None and (self.distributed.digest(path) or source.digest) != source.digest
            if report.state is State.OPEN and changed:
                return replace(report, reason=f"let in by {path}, which is not as the distribution has it")
        return report

    def _marked(self, gate: type[Gate]) -> str | None:
        """The first file that holds an edit of the gate's recipe."""
        mark = re.compile(re.escape(_MARK + gate.id.encode()) + rb"[ \t]*(?:[\r\n]|$)")
        sources = ((path, self.tree.get(path)) for path in self.paths(gate))
        return next((path for path, source in sources if source is not None and mark.search(source.data)), None)

    @property
    def unrecorded(self) -> dict[str, str]:
        """Edits of sm-patch that there is no record of: for each gate what is to be said of it."""
        gates = [gate for name, gate in self.gates.items() if name not in self.manifest.gates]
        return {gate.id: self._without_record(path) for gate in gates if (path := self._marked(gate)) is not None}

    def _without_record(self, path: str) -> str:
        state = self.installation.state_folder
        return f"{path} holds an edit of sm-patch, but {state} has no record of it {self._whereabouts}"

    @cached_property
    def strays(self) -> list[tuple[Path, Path]]:
        """Records in the same place of packages that are no longer where they were: each with that folder."""
        engine = self.installation.engine
        return strays(self.installation.root, engine.package, engine.name)

    @property
    def _whereabouts(self) -> str:
        """Where a record that is missing may be."""
        if len(self.strays) == 1:
            ((state, was),) = self.strays
            return f"(moved here from {was}? its record is still {state}: move that there)"
        return "(copied or moved here without it?)"

    def reports(self, sm: SM) -> list[GateReport]:
        return [self.report(gate, sm) for gate in self.gates.values()]

    def shares(self, count: int) -> list[list[type[Gate]]]:
        """The gates in ``count`` groups with about as much source to read; gates of one file stay together."""
        shares: list[list[type[Gate]]] = [[] for _ in range(count)]
        sizes = [0] * count
        by_file: dict[str, list[type[Gate]]] = {}
        for gate in self.gates.values():
            by_file.setdefault(next(iter(self.paths(gate)), ""), []).append(gate)
        found = [(self._size(path), gates) for path, gates in by_file.items()]
        for size, gates in sorted(found, key=lambda item: -item[0]):
            lightest = sizes.index(min(sizes))
            sizes[lightest] += size
            shares[lightest] += gates
        return shares

    def _size(self, path: str) -> int:
        try:
            source = self.tree.get(path)
        except SmPatchError:
            return 0  # the reports of its gates say why
        return len(source.data) if source else 0

    def depends(self) -> list[str]:
        """Every path that a report of this installation rests on."""
        root, state = self.installation.root, self.installation.state_folder
        versions = [f"{self.installation.engine.package}/{name}" for name in self.installation.engine.version_files]
        paths = [str(root / path) for path in (*self.tree.seen, *versions)]
        own = (state.parent.parent, state, state / "manifest.json", state / "journal.json")
        return [*paths, *self.facts.depends(), *map(str, own)]

    # -- apply and revert --------------------------------------------------------------------------------------

    def apply(self, sms: Sequence[SM], named: Sequence[str] = (), forced: Sequence[str] = ()) -> Outcome:
        """Bring gates in force: the named ones, else the default set. Raises what stands in the way of a named one."""
        return self._change(lambda workplace: workplace.planned(sms, named, forced))

    def _change(self, planned: Callable[[Workplace], Planned]) -> Outcome:
        """Plan without the lock, so that a refusal writes nothing at all; plan anew when somebody was faster."""
        notes: list[str] = []
        workplace = self
        if self.store.interrupted():
            with self.store.locked():
                notes += self.store.notes
            workplace = Workplace(self.installation, self.assumptions)
        outcome, manifest, writes = planned(workplace)
        if writes or workplace.manifest.differs(manifest):
            store = workplace.store
            store.check(writes)
            with store.locked():
                if (store.manifest() or Manifest(manifest.engine, manifest.version)) != workplace.manifest:
                    workplace = Workplace(self.installation, self.assumptions)
                    outcome, manifest, writes = planned(workplace)
                if writes or workplace.manifest.differs(manifest):
                    store.commit(writes, manifest)
            notes += store.notes
        return replace(outcome, notes=[*notes, *outcome.notes])

    def dry_run(self, sms: Sequence[SM], named: Sequence[str] = (), forced: Sequence[str] = ()) -> Outcome:
        """What apply would do. Takes no lock and writes nothing."""
        outcome, _, writes = self.planned(sms, named, forced)
        # The engines that are planned after this one see what it is going to be.
        files = self.planned_files.setdefault(self.installation.engine.package, {})
        files.update({change.path: change.after for change in outcome.written})
        notes = list(outcome.notes)
        if self.store.interrupted():
            notes.append("an earlier change was interrupted: apply undoes it first")
        try:
            self.store.check(writes)
        except IOFailure as error:
            notes.append(f"apply could not do it: {error.what} ({error.where})")
        return replace(outcome, notes=notes, dry_run=True)

    def planned(self, sms: Sequence[SM], named: Sequence[str], forced: Sequence[str]) -> Planned:
        chosen, skipped, already, by_force = self._choose(sms, named, forced)
        explicit = bool(named or forced)
        errors = [] if explicit else [_refused(report) for report in skipped if _should_have_been(report)]
        while True:
            try:
                plan, ours, idle, notes = self._combined(chosen)
                break
            except SmPatchError as error:
                failing = next((gate for gate in chosen if gate.id == error.gate), None)
                if explicit or failing is None:
                    raise
                errors.append(error)  # of the default set, one that cannot be does not hold up the others
                del chosen[failing]
        manifest, writes, written = self._target(plan, ours, {**idle, **self._records(plan, chosen, forced)})
        steps = [step for step in plan.steps if step.gate in chosen]
        notes += self._told(written)
        outcome = Outcome(
            self.installation, steps, written, skipped, already, by_force, notes=notes, errors=_once(errors)
        )
        return outcome, manifest, writes

    def _combined(
        self, chosen: Mapping[type[Gate], Direction]
    ) -> tuple[Plan, list[str], dict[str, GateRecord], list[str]]:
        """The plan of the chosen gates with those in force; its files so far, the gates left alone, notes."""
        wanted = {self.gates[name]: direction for name in self.gates if (direction := self.active(name))}
        wanted.update(chosen)
        for gate in chosen:
            try:
                self._refuse_edited(self.paths(gate))
            except SmPatchError as error:
                error.gate = gate.id
                raise
        touched = list(dict.fromkeys(path for gate in chosen for path in self.paths(gate)))
        idle, notes = self._idle({gate.id for gate in wanted}, touched)
        ours = self._ours(idle)
        return self._plan(wanted, ours), ours, idle, notes

    def _idle(self, busy: Collection[str], touched: Collection[str]) -> tuple[dict[str, GateRecord], list[str]]:
        """Gates on record that a change leaves alone with all their files: lost, edited or unknown ones.

        One that is lost gives way to a change that touches its files; the notes say so. Raises LocalEdits, Refused
        where one of the others is in the way.
        """
        idle, notes = {}, []
        for name, record in self.manifest.gates.items():
            if name in busy:
                continue
            shared = [path for path in record.files if path in touched]
            if not shared:
                idle[name] = record
                continue
            self._refuse_edited(record.files)
            if name not in self.gates:
                raise Refused(
                    f"{name}, a gate that this sm-patch does not know, is in force in the same file",
                    where=str(self.installation.root / shared[0]),
                    hint=f"revert it first (sm-patch revert --gate {name}), or use the sm-patch that has it",
                )
            notes.append(f"{name} was no longer in force and is off the record")
        return idle, notes

    def _told(self, written: Sequence[FileChange]) -> list[str]:
        """What is to be known about the files that a change replaces for the first time."""
        notes = []
        installation = self.installation
        package = installation.package_folder
        if written and (installation.how != "wheel" or package.resolve() != package.absolute()):
            notes.append(
                f"{installation.engine.name} is used from {package.resolve()} ({installation.how}): written there"
            )
        first = [change for change in written if self.file_states.get(change.path) is not FileState.OURS]
        local = local_changes(package, [installation.root / change.path for change in first])
        notes += [
            f"{path} has changes that are not committed: they are kept, and revert gives them back" for path in local
        ]
        for change in first:
            said = self.distributed.digest(change.path)
            if said is not None and said != digest(change.before):
                notes.append(
                    f"{change.path} had been edited before: revert gives back that version, not the distribution's"
                )
            link = self.store.link(change.path)
            if link is not None:
                notes.append(
                    f"{change.path} was a link to {link}, which stays as it is: a file stands in its place now"
                )
        return notes

    def _choose(
        self, sms: Sequence[SM], named: Sequence[str], forced: Sequence[str]
    ) -> tuple[dict[type[Gate], Direction], list[GateReport], list[GateReport], list[GateReport]]:
        """What to bring in force, and the reports of what is left alone, done already, or forced."""
        explicit = catalogue.select([*named, *forced], self.gates)
        reports = [self.report(gate, sm) for gate in explicit or self.gates.values() for sm in sms]
        acting = reports if explicit else default_gates(reports)
        chosen: dict[type[Gate], Direction] = {}
        skipped: list[GateReport] = []
        already: list[GateReport] = []
        by_force: list[GateReport] = []
        for report in reports:
            if report.state in (State.PATCHED, State.OPEN) or (report.state is State.CLOSED and not report.direction):
                already.append(report)
            elif report.gate.id in forced:
                if report.state is State.ABSENT:
                    raise NothingToForce(f"{report.gate.id}: {report.reason}", hint="use a release that has it")
                by_force.append(report)
                chosen[report.gate] = report.gate.direction()
            elif report not in acting or report.direction is None:
                if explicit:
                    raise _refused(report)
                skipped.append(report)
            else:
                chosen.setdefault(report.gate, report.direction)
        skipped = [r for r in skipped if r.gate not in chosen]
        return chosen, skipped, [r for r in already if r.gate not in chosen], by_force

    def paths(self, gate: type[Gate]) -> list[str]:
        """The files that a gate's sites lie in, in this version."""
        package = self.installation.engine.package
        return [f"{package}/{site.path}" for site in self.inspector.sites(gate)]

    def _refuse_edited(self, paths: Iterable[str]) -> None:
        edited = [p for p in dict.fromkeys(paths) if self.file_states.get(p) is FileState.EDITED]
        if edited:
            hint = "'sm-patch revert --keep-mine' leaves such files as they are, '--theirs' gives back the original"
            raise LocalEdits(
                f"{', '.join(edited)} was edited since sm-patch wrote it",
                where=str(self.installation.root / edited[0]),
                hint=hint,
                changes=[self._edits(path) for path in edited],
            )

    def _edits(self, path: str) -> FileChange:
        """A file that was edited since: what sm-patch had written (where it can be told), and what is there now."""
        record, source = self.manifest.files[path], self.tree.get(path)
        now = source.data if source else b""
        before = b""
        with contextlib.suppress(SmPatchError):
            before = self.store.blob(record.original)
            gates = {self.gates[n]: Direction(r.direction) for n, r in self.manifest.gates.items() if n in self.gates}
            bases = {p: self.store.blob(r.original) for p, r in self.manifest.files.items()}
            change = self.inspector.replaced(bases).plan(gates).changes.get(path)
            if change is not None and digest(change.after) == record.written:
                before = change.after
        return FileChange(path, before, now)

    def _ours(self, idle: Mapping[str, GateRecord]) -> list[str]:
        """The files that are as sm-patch wrote them, those of idle gates left out."""
        frozen = {path for record in idle.values() for path in record.files}
        return [p for p, state in self.file_states.items() if state is FileState.OURS and p not in frozen]

    def _plan(self, wanted: Mapping[type[Gate], Direction], ours: Iterable[str]) -> Plan:
        """Plan from the original bytes of the files that are as sm-patch wrote them."""
        originals = {path: self.store.blob(self.manifest.files[path].original) for path in ours}
        base = self.inspector.replaced(originals) if originals else self.inspector
        return base.plan(wanted)

    def _records(
        self, plan: Plan, chosen: Mapping[type[Gate], Direction] | None = None, forced: Sequence[str] = ()
    ) -> dict[str, GateRecord]:
        """The plan's gates for the record: the chosen ones new, the others as they were."""
        records = {}
        for step in plan.steps:
            if not step.edited:
                continue
            files = tuple(path for path in step.paths if path in plan.changes)
            kept = self.manifest.gates.get(step.gate.id)
            if kept is not None and step.gate not in (chosen or {}):
                records[step.gate.id] = replace(kept, files=files)
                continue
            records[step.gate.id] = GateRecord(
                step.direction.value,
                files,
                tuple(str(sm) for sm in sorted(step.gate.targets)),
                datetime.now(timezone.utc).isoformat(timespec="seconds"),
                step.gate.id in forced,
                tuple(f"{name}=={version}" for name, version in sorted(self.assumptions.items())),
            )
        return records

    def _target(
        self, plan: Plan, ours: Collection[str], gates: Mapping[str, GateRecord], left: Collection[str] = ()
    ) -> tuple[Manifest, dict[str, Write], list[FileChange]]:
        """The manifest and the writes that lead from what is on disk to the plan.

        ``ours`` are the files to bring back to their originals where the plan does not change them; ``left`` those
        that are let alone and forgotten.
        """
        files: dict[str, FileRecord] = {}
        writes: dict[str, Write] = {}
        written: list[FileChange] = []
        for path in dict.fromkeys((*plan.changes, *ours)):
            source = self.tree.get(path)
            assert source is not None
            link = self.store.link(path)
            if change := plan.changes.get(path):
                write = Write(source.digest, change.after)
                was = self.manifest.files[path] if path in ours else None
                origin = (was.link, was.version) if was else (link, self.installation.version)
                files[path] = FileRecord(digest(change.before), digest(change.after), *origin)
            else:
                write = self._original(path, source.digest)
            if write.data != source.data or write.link != link:
                writes[path] = write
                written.append(FileChange(path, source.data, write.data))
        on_record = {path for record in gates.values() for path in record.files}
        edited = {path for path, state in self.file_states.items() if state is FileState.EDITED} - {*left}
        files |= {path: self.manifest.files[path] for path in sorted((on_record | edited) - files.keys())}
        return Manifest(self.installation.engine.name, self.installation.version, files, gates), writes, written

    def _original(self, path: str, expected: str) -> Write:
        """The write that gives a file back as it was: its bytes, or the link to them while it still leads there."""
        record = self.manifest.files[path]
        data = self.store.blob(record.original)
        return Write(expected, data, record.link if self.store.leads_to(path, record.link, data) else None)

    def revert(self, named: Sequence[str] = (), edited: Edited = Edited.REFUSE) -> Outcome:
        """Take gates out of force (all by default); the others stay. Raises LocalEdits before anything is written."""
        return self._change(lambda workplace: workplace.planned_revert(named, edited))

    def planned_revert(self, named: Sequence[str], edited: Edited = Edited.REFUSE) -> Planned:
        catalogue.select([name for name in named if name not in self.manifest.gates], self.gates)
        leaving = [name for name in self.manifest.gates if not named or name in named]
        paths = [path for name in leaving for path in self.manifest.gates[name].files]
        # With the last gate also the files go that are on record without one (edited after an interruption).
        paths = list(dict.fromkeys([*paths, *(() if named else self.manifest.files)]))
        if edited is Edited.REFUSE:
            self._refuse_edited(paths)
        before = dict(self.file_states)
        touched = [path for path in paths if before[path] is not FileState.EDITED or edited is Edited.RESTORE]
        notes = [self._take_back(path) for path in touched if before[path] is FileState.EDITED]
        staying = {
            self.gates[name]: direction
            for name in self.manifest.gates
            if name not in leaving and (direction := self.active(name))
        }
        idle, more = self._idle({*leaving, *(gate.id for gate in staying)}, touched)
        ours = self._ours(idle)
        plan = self._plan(staying, ours) if staying else Plan()
        manifest, writes, written = self._target(plan, ours, {**idle, **self._records(plan)}, paths)
        forgotten = {path: state.value for path in paths if (state := self.file_states[path]) is not FileState.OURS}
        outcome = Outcome(self.installation, written=written, reverted=leaving, forgotten=forgotten)
        return replace(outcome, notes=[*notes, *more]), manifest, writes

    def _take_back(self, path: str) -> str:
        """Treat a file that was edited as if it were as sm-patch wrote it. What to say of it: the edits are kept."""
        self.file_states[path] = FileState.OURS
        source = self.tree.get(path)
        assert source is not None
        return f"your version of {path} is kept in {self.store.state}/blobs/{source.digest} until 'sm-patch gc'"

    def clean(self, *, dry_run: bool = False) -> Cleaning:
        """Settle what was interrupted, forget gates that are lost, drop backups that nothing on record needs."""
        nothing = not self.store.state.exists() and not self.store.sweep_package(remove=False)
        if dry_run or nothing:
            return self._cleaned(self.store, remove=False)
        with self.store.locked():
            cleaning = Workplace(self.installation, self.assumptions)._cleaned(self.store, remove=True)
        return replace(cleaning, notes=[*self.store.notes, *cleaning.notes])

    def _cleaned(self, store: Store, *, remove: bool) -> Cleaning:
        gone = (FileState.RESTORED, FileState.REPLACED, FileState.MISSING)
        lost = [n for n in self.manifest.gates if all(state in gone for state in self._states_of(n).values())]
        gates = {name: record for name, record in self.manifest.gates.items() if name not in lost}
        used = {path for record in gates.values() for path in record.files}
        files = {p: r for p, r in self.manifest.files.items() if p in used or self.file_states[p] not in gone}
        manifest = replace(self.manifest, gates=gates, files=files)
        if remove and self.manifest.differs(manifest):
            store.commit({}, manifest)
        unneeded = store.sweep(manifest, remove=remove)
        notes = self._departed(unneeded)
        return Cleaning(self.installation, lost, unneeded, store.sweep_package(remove=remove), notes)

    def _departed(self, unneeded: Collection[str]) -> list[str]:
        """What is to be known about backups of files that may have been moved away."""
        elsewhere = [
            path
            for path, record in self.manifest.files.items()
            if record.original in unneeded and self.file_states[path] in (FileState.REPLACED, FileState.MISSING)
        ]
        notes = []
        if elsewhere:
            files = ", ".join(elsewhere)
            notes.append(
                f"if the package as sm-patch wrote it was moved elsewhere, {files} cannot be reverted there now"
            )
        for state, was in self.strays:
            notes.append(f"{state} keeps the originals of a package that is no longer in {was} (moved?): left as it is")
        return [*notes, *self.unrecorded.values()]

    # -- diff and explain --------------------------------------------------------------------------------------

    def differences(self) -> list[FileChange]:
        """Every recorded file that is not its original: original and current bytes."""
        found = []
        for path, record in self.manifest.files.items():
            source = self.tree.get(path)
            if self.file_states[path] in (FileState.OURS, FileState.EDITED) and source is not None:
                found.append(FileChange(path, self.store.blob(record.original), source.data))
        return found

    def truth_table(self, gate: type[Gate]) -> tuple[dict[str, Truth], dict[str, Truth]]:
        """Per world: whether all sites let it through, as it is now, and as it is with the gate applied."""
        report = self.report(gate, min(gate.targets))
        before = self._original_inspector() if self.active(gate.id) else self.inspector
        direction = self.active(gate.id) or report.direction or gate.direction()
        now = _through(before, gate)
        try:
            plan = before.plan({gate: direction})
        except SmPatchError:
            return now, {}
        after = before.replaced({path: change.after for path, change in plan.changes.items()})
        return now, _through(after, gate)

    def code(self, report: GateReport) -> list[tuple[str, int, int, list[str]]]:
        """The installed code around each site: path, first line's number, the site's line, the lines."""
        shown = []
        for site in report.sites:
            source = self.tree.get(site.place.path) if site.place else None
            if site.place is None or source is None:
                continue
            first = max(1, site.place.line - 3)
            last = min(source.line_count, max(site.place.end_line, site.place.line) + 3)
            lines = [source.line(n).decode("utf-8", "replace") for n in range(first, last + 1)]
            shown.append((site.place.path, first, site.place.line, lines))
        return shown

    def _original_inspector(self) -> Inspector:
        files = self.manifest.files.items()
        originals = {p: self.store.blob(r.original) for p, r in files if self.file_states[p] is FileState.OURS}
        return self.inspector.replaced(originals)


def _through(inspector: Inspector, gate: type[Gate]) -> dict[str, Truth]:
    """For each world the weakest truth over the gate's sites."""
    order = [Truth.NEVER, Truth.RAISES, Truth.DEPENDS, Truth.ALWAYS]
    places = [report.place for site in inspector.sites(gate) if (report := inspector.find(site)).place]
    table = {}
    for world in ALL_WORLDS:
        truths = [place.admits(world) for place in places if place]
        if truths:
            table[str(world)] = min(truths, key=order.index)
    return table


def _should_have_been(report: GateReport) -> bool:
    """Whether a gate that apply left alone is one of the default set, with a file in its way.

    Not so one that the release has in another shape: it is told with the others that are left alone.
    """
    founded = report.gate.level in (Level.BACKPORT, Level.REPORTED) and not report.gate.opt_in
    broken = any(site.error is not None and not isinstance(site.error, Unrecognised) for site in report.sites)
    return founded and (broken or report.state is State.MODIFIED)


def _once(errors: Iterable[SmPatchError]) -> list[SmPatchError]:
    """Errors without repetition (several SMs, several gates in one broken file)."""
    return list({(error.what, error.where): error for error in errors}.values())


def _refused(report: GateReport) -> SmPatchError:
    """The error for a named gate that cannot be brought in force."""
    gate = report.gate
    error = next((site.error for site in report.sites if site.error is not None), None)
    if error is not None:
        error.what = f"{gate.id}: {error.what}"
        return error
    what = f"{gate.id} is {report.state.value} for SM{report.sm}: {report.reason}"
    if report.state is State.MODIFIED:
        return LocalEdits(what, hint="see the edits with 'sm-patch diff'", link=report.link)
    unmet = [finding for finding in report.findings if not finding.met]
    where = next((finding.where for finding in unmet if finding.where), "")
    if gate.level is Level.REFUSED and report.state is State.REFUSED:
        hint = f"apply never opens it; see 'sm-patch explain {gate.id}'"
        return Refused(what, where=where, hint=hint, link=report.link)
    if unmet:
        hint = f"get {unmet[0].needs}; --force {gate.id} goes ahead: {gate.risk}"
        return Refused(what, where=where, hint=hint, link=report.link)
    if report.state in (State.REFUSED, State.ABSENT):
        return Refused(what, link=report.link)
    return Unrecognised(what, link=report.link)
