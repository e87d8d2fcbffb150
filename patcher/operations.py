"""What the commands do, on one installation: look, apply, revert, compare, explain. Results are data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property

from patcher import catalogue
from patcher.arch import SM
from patcher.condition import Truth
from patcher.environment import Installation, Surroundings
from patcher.errors import LocalEdits, Refused, SmPatchError, Unrecognised
from patcher.gate import Direction, Gate, Level, State
from patcher.plan import FileChange, GateReport, GateStep, Inspector, Plan, default_gates
from patcher.predicate import ALL_WORLDS
from patcher.source import SourceTree, digest
from patcher.store import FileRecord, GateRecord, Manifest, Store, Write


class FileState(str, Enum):
    """A recorded file as it is now: as written, back to its original bytes, replaced, edited, or gone."""

    OURS = "as written"
    RESTORED = "original again"
    REPLACED = "from another version"
    EDITED = "edited since"
    MISSING = "missing"


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
    dry_run: bool = False


class Workplace:
    """One installation with its store, opened for reading. Every look at the disk is made once."""

    def __init__(self, installation: Installation, assumptions: Mapping[str, str] | None = None) -> None:
        self.installation = installation
        self.assumptions = dict(assumptions or {})
        self.facts = Surroundings(installation, assumptions)
        self.store = Store(installation.root, installation.state_folder)

    @property
    def gates(self) -> dict[str, type[Gate]]:
        return catalogue.gates(self.installation.engine.name)

    @cached_property
    def manifest(self) -> Manifest:
        return self.store.manifest() or Manifest(self.installation.engine.name, self.installation.version)

    @cached_property
    def tree(self) -> SourceTree:
        return SourceTree(self.installation.root)

    @cached_property
    def inspector(self) -> Inspector:
        """Looks at the files as they are."""
        return Inspector(self.installation.engine, self.tree, self.installation.version, self.facts)

    # -- recorded files --------------------------------------------------------------------------------------

    @cached_property
    def file_states(self) -> dict[str, FileState]:
        states = {}
        for path, record in self.manifest.files.items():
            source = self.tree.get(path)
            if source is None:
                states[path] = FileState.MISSING
            elif source.digest == record.written:
                states[path] = FileState.OURS
            elif source.digest == record.original:
                states[path] = FileState.RESTORED
            elif self.manifest.version != self.installation.version:
                states[path] = FileState.REPLACED
            else:
                states[path] = FileState.EDITED
        return states

    def _states_of(self, gate_id: str) -> dict[str, FileState]:
        return {path: self.file_states[path] for path in self.manifest.gates[gate_id].files}

    def active(self, gate_id: str) -> Direction | None:
        """The direction in which a gate is in force, all its files as written; None when it is not."""
        record = self.manifest.gates.get(gate_id)
        if record is None or any(state is not FileState.OURS for state in self._states_of(gate_id).values()):
            return None
        return Direction(record.direction)

    # -- status ----------------------------------------------------------------------------------------------

    def report(self, gate: type[Gate], sm: SM) -> GateReport:
        """The gate's state for ``sm``, what is recorded about it included."""
        report = self.inspector.report(gate, sm, self.active(gate.id))
        if gate.id not in self.manifest.gates:
            return report
        states = self._states_of(gate.id)
        if FileState.EDITED in states.values():
            path = next(p for p, s in states.items() if s is FileState.EDITED)
            reason = f"{path} was edited since sm-patch wrote it"
            return replace(report, state=State.MODIFIED, reason=reason, direction=None)
        gone = [p for p, s in states.items() if s is not FileState.OURS]
        if gone and report.state is not State.OPEN:
            was, now = self.manifest.version, self.installation.version
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

    def reports(self, sm: SM) -> list[GateReport]:
        return [self.report(gate, sm) for gate in self.gates.values()]

    def depends(self) -> list[str]:
        """Every path that a report of this installation rests on."""
        root, state = self.installation.root, self.installation.state_folder
        versions = [f"{self.installation.engine.package}/{name}" for name in self.installation.engine.version_files]
        paths = [str(root / path) for path in (*self.tree.seen, *versions)]
        return [*paths, *self.facts.depends(), str(state / "manifest.json"), str(state / "journal.json")]

    # -- apply and revert --------------------------------------------------------------------------------------

    def apply(self, sms: Sequence[SM], named: Sequence[str] = (), forced: Sequence[str] = ()) -> Outcome:
        """Bring gates in force: the named ones, else the default set. Raises what stands in the way of a named one."""
        with self.store.locked():
            fresh = Workplace(self.installation, self.assumptions)
            outcome, manifest, writes = fresh.planned(sms, named, forced)
            if writes or manifest != fresh.manifest:
                fresh.store.commit(writes, manifest)
                _verify(fresh, outcome.written)
            return outcome

    def dry_run(self, sms: Sequence[SM], named: Sequence[str] = (), forced: Sequence[str] = ()) -> Outcome:
        """What apply would do. Takes no lock and writes nothing."""
        outcome, _, _ = self.planned(sms, named, forced)
        return replace(outcome, dry_run=True)

    def planned(
        self, sms: Sequence[SM], named: Sequence[str], forced: Sequence[str]
    ) -> tuple[Outcome, Manifest, dict[str, Write]]:
        chosen, skipped, already, by_force = self._choose(sms, named, forced)
        wanted = {self.gates[name]: direction for name in self.manifest.gates if (direction := self.active(name))}
        wanted |= chosen
        self._refuse_edited([path for gate in chosen for path in self._paths(gate)])
        plan = self._plan(wanted)
        records = self._records(plan, chosen, forced)
        steps = [step for step in plan.steps if step.gate in chosen]
        manifest, writes, written = self._target(plan, records)
        outcome = Outcome(self.installation, steps, written, skipped, already, by_force)
        return outcome, manifest, writes

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

    def _paths(self, gate: type[Gate]) -> list[str]:
        package = self.installation.engine.package
        return [f"{package}/{site.path}" for site in self.inspector.sites(gate)]

    def _refuse_edited(self, paths: Iterable[str]) -> None:
        edited = [p for p in dict.fromkeys(paths) if self.file_states.get(p) is FileState.EDITED]
        if edited:
            raise LocalEdits(
                f"{', '.join(edited)} was edited since sm-patch wrote it",
                where=str(self.installation.root / edited[0]),
                hint="see the edits with 'sm-patch diff'; take them out, or save them, then try again",
            )

    def _plan(self, wanted: Mapping[type[Gate], Direction]) -> Plan:
        """Plan from the original bytes of every file that is as sm-patch wrote it."""
        originals = {
            path: self.store.blob(record.original)
            for path, record in self.manifest.files.items()
            if self.file_states[path] is FileState.OURS
        }
        base = self.inspector.replaced(originals) if originals else self.inspector
        return base.plan(wanted)

    def _records(
        self, plan: Plan, chosen: Mapping[type[Gate], Direction], forced: Sequence[str]
    ) -> dict[str, GateRecord]:
        records = {}
        for step in plan.steps:
            kept = self.manifest.gates.get(step.gate.id)
            if step.gate not in chosen and kept is not None:
                records[step.gate.id] = kept
            elif step.edited:
                assumed = tuple(f"{name}=={version}" for name, version in sorted(self.assumptions.items()))
                records[step.gate.id] = GateRecord(
                    step.direction.value,
                    tuple(path for path in step.paths if path in plan.changes),
                    tuple(str(sm) for sm in sorted(step.gate.targets)),
                    datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    step.gate.id in forced,
                    assumed,
                )
        return records

    def _target(
        self, plan: Plan, records: Mapping[str, GateRecord]
    ) -> tuple[Manifest, dict[str, Write], list[FileChange]]:
        """The manifest and the writes that lead from what is on disk to the plan."""
        files: dict[str, FileRecord] = {}
        writes: dict[str, Write] = {}
        written: list[FileChange] = []
        ours = [path for path, state in self.file_states.items() if state is FileState.OURS]
        for path in dict.fromkeys((*plan.changes, *ours)):
            change = plan.changes.get(path)
            source = self.tree.get(path)
            assert source is not None
            wanted = change.after if change else self.store.blob(self.manifest.files[path].original)
            if change:
                files[path] = FileRecord(digest(change.before), digest(change.after))
            if wanted != source.data:
                writes[path] = Write(source.digest, wanted)
                written.append(FileChange(path, source.data, wanted))
        # Files that were edited or cannot be told stay on record, so that nothing about them is lost.
        for path, state in self.file_states.items():
            if state is FileState.EDITED and path not in files:
                files[path] = self.manifest.files[path]
        kept = {
            name: record
            for name, record in self.manifest.gates.items()
            if name not in records and any(self.file_states[p] is FileState.EDITED for p in record.files)
        }
        version = self.installation.version
        return Manifest(self.installation.engine.name, version, files, {**kept, **records}), writes, written

    def revert(self, named: Sequence[str] = ()) -> Outcome:
        """Take gates out of force (all by default); the others stay. Raises LocalEdits before anything is written."""
        with self.store.locked():
            fresh = Workplace(self.installation, self.assumptions)
            outcome, manifest, writes = fresh.planned_revert(named)
            if writes or manifest != fresh.manifest:
                fresh.store.commit(writes, manifest)
                _verify(fresh, outcome.written)
            return outcome

    def planned_revert(self, named: Sequence[str]) -> tuple[Outcome, Manifest, dict[str, Write]]:
        for name in named:
            if name not in self.manifest.gates:
                catalogue.select([name], self.gates)
        leaving = [name for name in self.manifest.gates if not named or name in named]
        self._refuse_edited([path for name in leaving for path in self.manifest.gates[name].files])
        staying = {
            self.gates[name]: direction
            for name in self.manifest.gates
            if name not in leaving and (direction := self.active(name))
        }
        plan = self._plan(staying) if staying else Plan()
        records = {name: self.manifest.gates[name] for name in self.manifest.gates if name not in leaving}
        manifest, writes, written = self._target(plan, records)
        forgotten = {
            path: state.value
            for name in leaving
            for path in self.manifest.gates[name].files
            if (state := self.file_states[path]) is not FileState.OURS
        }
        return Outcome(self.installation, written=written, reverted=leaving, forgotten=forgotten), manifest, writes

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
        originals = {
            path: self.store.blob(record.original)
            for path, record in self.manifest.files.items()
            if self.file_states[path] is FileState.OURS
        }
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


def _verify(workplace: Workplace, written: Sequence[FileChange]) -> None:
    """Read back what was written: a success word is for what is on the disk."""
    for change in written:
        path = workplace.installation.root / change.path
        if path.read_bytes() != change.after:
            raise SmPatchError("the file does not have the bytes that were written", where=str(path))


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
    if report.state is State.REFUSED:
        return Refused(what, link=report.link)
    return Unrecognised(what, link=report.link)
