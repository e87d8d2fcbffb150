"""From installed source to what is there (reports) and what would change (a plan), all in memory.

The bytes that a file should have follow from its original bytes and the set of gates to be in force, applied in
the order of their ids. So recipes compose in any order, each reverts alone, and planning twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from patcher.arch import SM
from patcher.condition import Truth
from patcher.errors import SmPatchError, Unparsable, Unrecognised
from patcher.gate import Action, Direction, Engine, Facts, Finding, Gate, Level, Requirement, State
from patcher.predicate import Predicates, World, cuda_world
from patcher.proof import Claim, failed, prove
from patcher.sites import Place, Site, Target, View, splice, view_of
from patcher.source import SourceTree
from patcher.versions import in_range

if TYPE_CHECKING:
    from patcher.eras import Eras

Gates = Mapping[type[Gate], Direction]


@dataclass(frozen=True)
class SiteReport:
    """One site as found: where, its text, and whether it lets the SM through (None when it was not found)."""

    site: Site
    place: Place | None
    admits: bool | None
    error: SmPatchError | None = None

    @property
    def where(self) -> str:
        return f"{self.place.path}:{self.place.line}" if self.place else self.site.path


@dataclass(frozen=True)
class GateReport:
    """A gate on an installation for one SM: its state, why, and what decides."""

    gate: type[Gate]
    sm: SM
    state: State
    reason: str
    sites: Sequence[SiteReport] = ()
    findings: Sequence[Finding] = ()
    direction: Direction | None = None
    """What applying it would do; None when there is nothing to do."""
    link: str = ""

    @property
    def found(self) -> int:
        return sum(1 for site in self.sites if site.place is not None)

    @property
    def met(self) -> bool:
        return all(finding.met for finding in self.findings)


@dataclass(frozen=True)
class FileChange:
    """One file of a plan: bytes before and after. ``path`` is relative to the folder that holds the package."""

    path: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class GateStep:
    """One gate's part of a plan, proven."""

    gate: type[Gate]
    direction: Direction
    paths: tuple[str, ...]
    sites: int
    edited: int
    checks: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What a set of gates makes of the original files. ``changes`` holds only files that differ."""

    steps: Sequence[GateStep] = ()
    changes: Mapping[str, FileChange] = field(default_factory=dict)


class Inspector:
    """Looks at one engine's source for one version. Reads files through ``tree`` and keeps what it has parsed.

    ``stated``: the version that the installation says it has. Where it is not ``verified`` (a fork, a nightly, a
    checkout, or none at all), it is a hint, and the source decides.
    """

    def __init__(
        self, engine: Engine, tree: SourceTree, stated: str | None, facts: Facts, verified: bool = True
    ) -> None:
        self.engine = engine
        self.stated = stated
        self.verified = verified and stated is not None
        self.facts = facts
        self.predicates = Predicates(tree, engine.package, engine.objects)

    def replaced(self, overlay: Mapping[str, bytes]) -> Inspector:
        """The same look at the tree with some files replaced."""
        other = Inspector(self.engine, self.predicates.tree, self.stated, self.facts, self.verified)
        other.predicates = self.predicates.replaced(overlay)
        if not self.verified:
            other.eras = self.eras  # what sm-patch writes does not make it another release
        return other

    # -- finding ---------------------------------------------------------------------------------------------

    @property
    def version(self) -> str | None:
        """The version whose sites are looked for: the stated one, or one that the source looks like."""
        return self.stated if self.verified else self.eras.version

    @property
    def shown(self) -> str:
        """The releases that the source looks like, where the stated version is not verified."""
        return "" if self.verified else self.eras.shown

    @cached_property
    def eras(self) -> Eras:
        """What the source shows of itself, where the stated version is not verified."""
        from patcher import catalogue
        from patcher.eras import Eras

        return Eras(self.stated, catalogue.gates(self.engine.name).values(), self.find, self._edited_alike)

    def sites(self, gate: type[Gate]) -> Sequence[Site]:
        """The gate's sites in this release; where the version is not verified, those that the source shows."""
        return gate.sites_for(self.version) if self.verified else self.eras.choose(gate).sites

    def _problem(self, gate: type[Gate]) -> SmPatchError | None:
        """Why it cannot be told which sites are the gate's in this source."""
        return None if self.verified else self.eras.choose(gate).problem

    def _edited_alike(self, left: Site, right: Site, gate: type[Gate]) -> bool:
        """Whether two sites found at one place would make the same of it."""
        try:
            edits = [self._edit(site, gate, gate.direction(), gate.targets) for site in (left, right)]
        except SmPatchError:
            return False
        return edits[0] == edits[1]

    def find(self, site: Site, worlds: Sequence[World] = ()) -> SiteReport:
        """Look for one site. Errors are kept in the report: one broken file must not hide the others."""
        try:
            view = self.view(site)
            place = site.find(view)[0]
            admits = all(place.admits(world) in (Truth.ALWAYS, Truth.DEPENDS) for world in worlds)
            return SiteReport(site, place, admits)
        except SmPatchError as error:
            return SiteReport(site, None, None, error)

    def view(self, site: Site) -> View:
        view = view_of(self.engine, site.path, self.predicates)
        if view is None:
            raise Unrecognised("the file does not exist", where=f"{self.engine.package}/{site.path}")
        return view

    def edited_view(self, site: Site) -> View:
        """``view`` of a file that sm-patch edited: that it reads is the first thing to prove."""
        try:
            return self.view(site)
        except Unparsable as error:
            raise failed("compiles", error.what, error.where) from error

    # -- reports ---------------------------------------------------------------------------------------------

    def report(self, gate: type[Gate], sm: SM, active: Direction | None = None) -> GateReport:
        """The gate's state for ``sm``. ``active``: the direction in which sm-patch has it applied, if it has."""
        problem = self._problem(gate)
        if problem is not None:
            return GateReport(gate, sm, State.UNRECOGNISED, problem.what)
        sites = [self.find(site, [cuda_world(sm)]) for site in self.sites(gate)]
        if not sites:
            return GateReport(gate, sm, State.ABSENT, self._why_absent(gate))
        findings = [*self._release(gate, sm), *(self._check(requirement, sm) for requirement in gate.requires)]
        state, reason, direction = self._judge(gate, sm, sites, findings, active)
        link = next((f.link for f in findings if not f.met), "") or next((e.link for e in gate.evidence), "")
        return GateReport(gate, sm, state, reason, sites, findings, direction, link)

    def _check(self, requirement: Requirement, sm: SM) -> Finding:
        """A requirement's finding; one that cannot be told, because a file cannot be read, is not met."""
        try:
            return requirement.check(self.facts, sm)
        except SmPatchError as error:
            return Finding(False, "a file that decides can be read", error.what, error.where, "a readable file")

    def _has_code(self, gate: type[Gate], sm: SM) -> bool:
        """Whether this release has the code behind the gate for ``sm``."""
        needs = gate.releases(sm)
        return not needs or (self.version is not None and in_range(needs, self.version))

    def _release(self, gate: type[Gate], sm: SM) -> list[Finding]:
        if not gate.releases(sm):
            return []
        needs = f"{self.engine.called} {gate.releases(sm)}"
        found = f"{self.engine.called} {self.version or '(version not known)'}"
        link = next((e.link for e in gate.evidence), "")
        return [Finding(self._has_code(gate, sm), needs, found, needs=needs, because=gate.needs_because, link=link)]

    def _why_absent(self, gate: type[Gate]) -> str:
        releases = gate.releases(min(gate.targets))
        needs = f"; needs {self.engine.called} {releases}" if releases else ""
        version = self.version or "(version not known)"
        return f"{self.engine.called} {version} has no such gate (it is in {_span(gate)}){needs}"

    def _judge(
        self,
        gate: type[Gate],
        sm: SM,
        sites: Sequence[SiteReport],
        findings: Sequence[Finding],
        active: Direction | None,
    ) -> tuple[State, str, Direction | None]:
        lost = next((site for site in sites if site.error is not None), None)
        if lost is not None and lost.error is not None:
            where = f" ({lost.error.where})" if lost.error.where else ""
            return State.UNRECOGNISED, f"{lost.error.what}{where}", None
        admitting = sum(1 for site in sites if site.admits)
        unmet = [finding for finding in findings if not finding.met]
        is_open = admitting == len(sites)
        is_closed = admitting == 0
        if sm not in gate.targets:
            side = State.OPEN if is_open else State.PARTIAL if admitting else State.CLOSED
            return side, f"as upstream has it; the recipe is for SM{_listed(gate.targets)} only", None
        if active is not None and (is_open if active.admits else is_closed):
            warning = f"; but {_refusal(unmet)}" if unmet and active.admits else ""
            if gate.closes_when_unmet and not active.admits and not unmet:
                warning = "; what it needs is here now, so it need not stay closed"
            return State.PATCHED, f"{active.done} by sm-patch at {_count(len(sites), 'site')}{warning}", None
        checks = [self._check(requirement, sm) for requirement in gate.upstream_checks]
        failing = [finding for finding in checks if not finding.met]
        if is_open and failing and self._has_code(gate, sm):
            return State.CLOSED, f"upstream checks for itself, and keeps it out: {_refusal(failing)}", None
        if gate.action is Action.CLOSE:
            return self._judge_closing(gate, sm, is_closed, unmet)
        if not is_open and not is_closed:
            reason = f"{admitting} of {len(sites)} sites let SM{sm} through: the feature does not work as a whole"
            return State.PARTIAL, reason, None if unmet or gate.level is Level.REFUSED else gate.direction()
        return self._judge_opening(gate, sm, is_open, unmet)

    def _judge_closing(
        self, gate: type[Gate], sm: SM, is_closed: bool, unmet: Sequence[Finding]
    ) -> tuple[State, str, Direction | None]:
        if is_closed:
            return State.CLOSED, f"upstream keeps it out{_since(gate, sm, self.version)}", None
        if not gate.closes_when_unmet:
            if unmet:
                return State.REFUSED, _refusal(unmet), None
            return State.TOO_OPEN, "upstream lets it in where it breaks", Direction.CLOSE
        if unmet:
            return State.TOO_OPEN, f"upstream lets it in, but {_refusal(unmet)}", Direction.CLOSE
        releases = gate.releases(sm)
        since = f" since {releases.removeprefix('>=')}" if releases.startswith(">=") else ""
        return State.OPEN, f"upstream lets it in{since}, and what it needs is here", None

    def _judge_opening(
        self, gate: type[Gate], sm: SM, is_open: bool, unmet: Sequence[Finding]
    ) -> tuple[State, str, Direction | None]:
        if is_open and unmet and gate.closes_when_unmet:
            return State.TOO_OPEN, f"upstream lets it in, but {_refusal(unmet)}", Direction.CLOSE
        fixes = gate.action is Action.FIX
        if is_open:
            right = "upstream has the right values" if fixes else "upstream lets it in"
            return State.OPEN, f"{right}{_since(gate, sm, self.version)}", None
        if gate.level is Level.REFUSED:
            where = next((f" ({f.where} says {f.found})" for f in unmet if f.where), "")
            return State.REFUSED, f"{gate.risk.rstrip('.')}{where}", None
        if unmet:
            return State.REFUSED, _refusal(unmet), None
        does = "upstream's values are wrong for it" if fixes else "upstream keeps it out; the recipe opens it"
        return State.CLOSED, gate.opt_in or does, gate.direction()

    # -- plans -----------------------------------------------------------------------------------------------

    def plan(self, wanted: Gates) -> Plan:
        """Apply the wanted gates to the tree's files, in memory, each proven. Raises what stands in the way."""
        inspector: Inspector = self
        overlay: dict[str, bytes] = {}
        steps = []
        for gate, direction in sorted(wanted.items(), key=lambda item: item[0].id):
            step, inspector = inspector._step(gate, direction, overlay)
            steps.append(step)
        changes = {}
        for path, after in overlay.items():
            source = self.predicates.tree.get(path)
            assert source is not None
            if source.data != after:
                changes[path] = FileChange(path, source.data, after)
        return Plan(steps, changes)

    def _step(self, gate: type[Gate], direction: Direction, overlay: dict[str, bytes]) -> tuple[GateStep, Inspector]:
        try:
            return self._reading_whole(gate)._planned(gate, direction, overlay)
        except SmPatchError as error:
            error.gate = gate.id
            raise

    def _reading_whole(self, gate: type[Gate]) -> Inspector:
        """The same with the gate's files parsed from end to end: what is edited must be right where nobody looks."""
        paths = dict.fromkeys(f"{self.engine.package}/{site.path}" for site in self.sites(gate))
        sources = [source for path in paths if (source := self.predicates.tree.get(path)) and not source.whole]
        return self.replaced({source.name: source.data for source in sources}) if sources else self

    def _planned(self, gate: type[Gate], direction: Direction, overlay: dict[str, bytes]) -> tuple[GateStep, Inspector]:
        problem = self._problem(gate)
        if problem is not None:
            raise problem
        sites = self.sites(gate)
        if not sites:
            raise Unrecognised(f"{gate.id}: {self._why_absent(gate)}")
        sms = self._due(gate, direction)
        after: Inspector = self
        edited = []
        try:
            for site in sites:
                changed = after._edit(site, gate, direction, sms)
                if changed is None:
                    continue
                path, data = changed
                overlay[path] = data
                edited.append(path)
                after = after.replaced({path: data})
                after.edited_view(site)
            checks = self._prove(after, direction, sites, sms)
            after._settled(gate, direction, sites, sms)
        except SmPatchError as error:
            error.what = f"{gate.id}: {error.what}"
            raise
        paths = tuple(dict.fromkeys(f"{self.engine.package}/{site.path}" for site in sites))
        return GateStep(gate, direction, paths, len(sites), len(edited), checks), after

    def _edit(self, site: Site, gate: type[Gate], direction: Direction, sms: frozenset[SM]) -> tuple[str, bytes] | None:
        """One site's file with the site changed; None when it already is as wanted."""
        view = self.view(site)
        place = site.find(view)[0]
        worlds = [cuda_world(sm) for sm in sorted(sms)]
        admitted = [place.admits(world) in (Truth.ALWAYS, Truth.DEPENDS) for world in worlds]
        wanted = direction.admits
        if all(side is wanted for side in admitted):
            return None
        missing = frozenset(w.sm for w, side in zip(worlds, admitted, strict=True) if side is not wanted and w.sm)
        target = Target(missing, self.engine.spellings_for(missing), f"sm-patch: {gate.id}")
        return view.path, splice(view.source.data, site.change(place, view, direction, target))

    def _due(self, gate: type[Gate], direction: Direction) -> frozenset[SM]:
        """The targets that an edit is for: a release that has the code for one of them is not closed to that one."""
        if direction is Direction.CLOSE and gate.closes_when_unmet and gate.needs_release:
            return frozenset(sm for sm in gate.targets if not self._has_code(gate, sm))
        return gate.targets

    def _prove(
        self, after: Inspector, direction: Direction, sites: Sequence[Site], sms: frozenset[SM]
    ) -> tuple[str, ...]:
        checks: dict[str, None] = {}
        for path in dict.fromkeys(site.path for site in sites):
            here = [site for site in sites if site.path == path]
            claim = self.claim(here, direction, sms)
            checks |= dict.fromkeys(prove(self.view(here[0]), after.edited_view(here[0]), claim))
        return tuple(checks)

    def claim(self, sites: Sequence[Site], direction: Direction, sms: frozenset[SM]) -> Claim:
        """What an edit of these sites of one file has to prove: the targets, or some of them, written in our ways."""
        spellings = [s.text for named, ways in self.engine.spellings.items() if named <= sms for s in ways]
        return Claim(sites, direction, sms, tuple(spellings))

    def _settled(self, gate: type[Gate], direction: Direction, sites: Sequence[Site], sms: frozenset[SM]) -> None:
        """Plan again on the result: nothing may be left to do."""
        for site in sites:
            if self._edit(site, gate, direction, sms) is not None:
                raise failed("settled", "planning again would edit it again", self.view(site).path)


def default_gates(reports: Iterable[GateReport]) -> list[GateReport]:
    """The reports that ``apply`` acts on by itself: well founded, requirements met, not opt-in, something to do.

    A gate that was in force and is lost comes back, also one that was opted in then.
    """
    return [
        report
        for report in reports
        if report.gate.level in (Level.BACKPORT, Level.REPORTED)
        and (not report.gate.opt_in or report.state is State.LOST)
        and report.direction is not None
        and report.state in (State.CLOSED, State.TOO_OPEN, State.PARTIAL, State.LOST)
    ]


def _span(gate: type[Gate]) -> str:
    """From which release to which a gate has sites."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    bounds: dict[str, list[str]] = {">=": [], "<": []}
    for site in gate.sites:
        found = {s.operator: s.version for s in SpecifierSet(site.versions)}
        for operator, versions in bounds.items():
            versions.append(found.get(operator, ""))
    first = "" if "" in bounds[">="] else min(bounds[">="], key=Version)
    end = "" if "" in bounds["<"] else max(bounds["<"], key=Version)
    return ", ".join(f"{operator}{version}" for operator, version in ((">=", first), ("<", end)) if version) or "all"


def _since(gate: type[Gate], sm: SM, version: str | None) -> str:
    """ " since 0.5.13", where the recipe knows since when and this release is not older."""
    from packaging.version import Version

    since = gate.since(sm)
    return f" since {since}" if since and version and Version(version) >= Version(since) else ""


def _refusal(unmet: Sequence[Finding]) -> str:
    first = unmet[0]
    where = next((finding.where for finding in unmet if finding.where), "")
    at = f" [{where}]" if where else ""
    because = f": {first.because}" if first.because else ""
    return f"it needs {first.needs}, found {first.found}{at}{because}"


def _listed(sms: Iterable[SM]) -> str:
    return "/".join(str(sm) for sm in sorted(sms))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
