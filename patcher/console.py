"""How results look: tables, diffs and JSON on stdout, prose and errors on stderr."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, TypeVar

from patcher.errors import SmPatchError

if TYPE_CHECKING:
    from patcher.arch import SM
    from patcher.environment import Installation
    from patcher.gate import Finding
    from patcher.hardware import Target
    from patcher.operations import Outcome
    from patcher.plan import FileChange, GateReport, SiteReport

SCHEMA_VERSION = 1


def plain() -> bool:
    """Whether output is free of colour: not a terminal, or NO_COLOR is set."""
    return bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()


def say(text: str = "") -> None:
    """A line of prose, to stderr."""
    print(text, file=sys.stderr)


def show_json(kind: str, data: Mapping[str, Any]) -> None:
    """One JSON document, to stdout."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, "kind": kind, **data}, indent=2))


def show_error(error: SmPatchError, as_json: bool) -> None:
    """An error: JSON on stdout when asked for, prose on stderr always."""
    changes = getattr(error, "changes", ())
    if as_json:
        diffs = {"diff": [unified_diff(change) for change in changes]} if changes else {}
        show_json("error", {"error": {**error.as_dict(), **diffs}})
    else:
        show_diffs(changes)
    say(f"error[{error.id}]: {error.what}")
    for label, text in (("where", error.where), ("hint", error.hint), ("link", error.link)):
        if text:
            say(f"  {label}: {text}")


def width() -> int:
    """How many columns prose is wrapped to: the terminal's, within what can be read."""
    return max(_NARROW, min(shutil.get_terminal_size((80, 24)).columns, _WIDE))


_NARROW, _WIDE = 30, 100


def wrapped(text: str, indent: str = "", first: str | None = None) -> str:
    """Text in lines of the terminal's width, at spaces only: names and paths stay whole."""
    import textwrap

    return textwrap.fill(
        " ".join(text.split()),
        width(),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def paragraphs(text: str, indent: str = "") -> str:
    """A docstring with its paragraphs wrapped."""
    return "\n\n".join(wrapped(part, indent) for part in cleandoc(text).split("\n\n"))


# -- status --------------------------------------------------------------------------------------------------


def show_installation(document: Mapping[str, Any], target: Target) -> None:
    """What was looked at, as prose on stderr."""
    installation = document["installation"]
    version = installation["version"] or "version not known"
    named = f"{installation['engine']} {version}{_unverified(installation)}"
    _say_wrapped(f"{named}, {installation['how']}, in {installation['root']}")
    if installation["repackaged"]:
        _say_wrapped(f"provided by the distribution {installation['distribution']}")
    if installation["shadows"]:
        _say_wrapped(f"it comes before the one in {', '.join(installation['shadows'])}, which is not used")
    related = installation["related"]
    beside = ", ".join(f"{name} {version}" for name, version in related.items() if version)
    _say_wrapped(f"beside it: {beside or 'none of ' + ', '.join(related)}")
    gpus = "; ".join(f"{gpu.name} (SM{gpu.sm})" for gpu in target.gpus)
    _say_wrapped(f"target: {', '.join(f'SM{sm}' for sm in target.sms)}, {target.source}{': ' + gpus if gpus else ''}")


def _say_wrapped(text: str) -> None:
    say(wrapped(text, "  ", ""))


def _unverified(installation: Mapping[str, Any]) -> str:
    """That a version is only what the installation says of itself, and what its source looks like."""
    if installation["verified"]:
        return ""
    shown = installation["source_shows"]
    return (
        f" (unverified; its source looks like {shown})" if shown else " (unverified; its source looks like no release)"
    )


def show_advice(document: Mapping[str, Any]) -> None:
    """What to do next, as prose on stderr."""
    if document["interrupted"] and document["changing"]:
        say(f"being changed right now by {document['changing']}: what is shown may be half of it")
    elif document["interrupted"]:
        say("an earlier change was interrupted; the next apply, revert or gc undoes it first")
    for name in document["unknown"]:
        say(f"in force, but not known to this sm-patch: {name} ('sm-patch revert --gate {name}' takes it back)")
    for path in document["unclaimed"]:
        say(f"{path} was changed by something else after an interruption; its original is kept ('sm-patch revert')")
    show_running(document.get("running", ()))


def report_data(report: GateReport) -> dict[str, Any]:
    """A gate report as JSON-ready data."""
    gate = report.gate
    return {
        "gate": gate.id,
        "title": gate.title,
        "family": gate.family,
        "sm": str(report.sm),
        "state": report.state.value,
        "reason": report.reason,
        "link": report.link,
        "action": gate.action.value,
        "level": gate.level.value,
        "opt_in": gate.opt_in,
        "would": report.direction.value if report.direction else None,
        "sites": {"found": report.found, "expected": len(report.sites)},
        "places": [_site_data(site) for site in report.sites],
        "requirements": [_finding_data(finding) for finding in report.findings],
    }


def _site_data(site: SiteReport) -> dict[str, Any]:
    place = site.place
    return {
        "path": place.path if place else site.site.path,
        "within": site.site.within,
        "line": place.line if place else None,
        "admits": site.admits,
        "error": site.error.as_dict() if site.error else None,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    return {
        "met": finding.met,
        "requirement": finding.requirement,
        "found": finding.found,
        "where": finding.where,
        "needs": finding.needs,
        "because": finding.because,
        "link": finding.link,
    }


def installation_data(
    installation: Installation, related: Mapping[str, str | None], source_shows: str = ""
) -> dict[str, Any]:
    """An installation as JSON-ready data. ``source_shows``: the releases that unverified source looks like."""
    interpreter = installation.environment.interpreter
    return {
        "engine": installation.engine.name,
        "version": installation.version,
        "verified": installation.verified,
        "source_shows": source_shows,
        "distribution": installation.distribution,
        "repackaged": installation.repackaged,
        "how": installation.how,
        "root": str(installation.root),
        "shadows": [str(folder) for folder in installation.shadowed],
        "interpreter": str(interpreter) if interpreter else None,
        "state_folder": str(installation.state_folder),
        "related": dict(related),
    }


def target_data(target: Target) -> dict[str, Any]:
    gpus = [{"name": gpu.name, "sm": str(gpu.sm)} for gpu in target.gpus]
    return {"sms": [str(sm) for sm in target.sms], "source": target.source, "assumed": target.assumed, "gpus": gpus}


# -- apply, revert, diff ---------------------------------------------------------------------------------------


def outcome_data(outcome: Outcome, *, diff: bool = False) -> dict[str, Any]:
    """An outcome as JSON-ready data; ``diff``: with what was (or would be) written as unified diffs."""
    diffs = [{"path": change.path, "diff": unified_diff(change)} for change in outcome.written]
    return {
        **({"diff": diffs} if diff else {}),
        "dry_run": outcome.dry_run,
        "changed": [change.path for change in outcome.written],
        "steps": [
            {
                "gate": step.gate.id,
                "direction": step.direction.value,
                "sites": step.sites,
                "edited": step.edited,
                "files": list(step.paths),
                "proof": list(step.checks),
            }
            for step in outcome.steps
        ],
        "already": [report_data(report) for report in outcome.already],
        "skipped": [report_data(report) for report in outcome.skipped],
        "forced": [report_data(report) for report in outcome.forced],
        "errors": [error.as_dict() for error in outcome.errors],
        "reverted": list(outcome.reverted),
        "forgotten": dict(outcome.forgotten),
        "notes": list(outcome.notes),
    }


_FEW = 3


def show_applied(outcome: Outcome) -> None:
    """What apply did or would do, as prose."""
    show_notes(outcome)
    would = "would " if outcome.dry_run else ""
    for report in _by_gate(r for r in outcome.forced if r.direction is None):
        _tell(f"forced: {report.gate.id} although it is {report.state.value}: {report.reason}")
        say(wrapped(f"risk: {report.gate.risk}", "    ", "  "))
    for step in outcome.steps:
        if not step.edited:
            _tell(f"{step.gate.id}: nothing to do, all {step.sites} sites are as wanted")
            continue
        verb = step.direction.value if would else step.direction.done
        _tell(
            f"{would}{verb} {step.gate.id}: {step.edited} of {step.sites} sites edited, "
            f"proven ({', '.join(step.checks)})"
        )
    other = {report.gate.id for report in outcome.skipped}  # for another SM there would be
    already = _by_gate(r for r in outcome.already if r.gate.id not in other)
    if len(already) > _FEW:
        _tell(f"nothing to do for {', '.join(report.gate.id for report in already)}")
    for report in already if len(already) <= _FEW else ():
        _tell(f"{report.gate.id}: nothing to do ({report.state.value}: {report.reason})")
    for report in _by_gate(r for r in outcome.skipped if not _out_of_the_question(r)):
        experimental = report.direction is not None and report.gate.level.value == "experimental"
        reason = f"experimental, only with --gate {report.gate.id}" if experimental else report.reason
        _tell(f"{report.gate.id}: left alone ({report.state.value}: {reason})")
    if outcome.written:
        files = ", ".join(change.path for change in outcome.written)
        _tell(f"{'would write' if outcome.dry_run else 'wrote'} {files}")
    else:
        _tell("nothing was changed" if not outcome.dry_run else "nothing would change")


def _tell(text: str) -> None:
    """Say it in lines of the terminal's width."""
    say(wrapped(text, "  ", ""))


def _out_of_the_question(report: GateReport) -> bool:
    """Whether nobody expects apply to do it: the release has no such gate, or it is never opened."""
    state, level = report.state.value, report.gate.level.value
    return state == "absent" or (state == "refused" and level == "refused")


def show_running(running: Sequence[Mapping[str, Any]] | None) -> None:
    """Processes that run the code from before a change (None: cannot be told), as prose."""
    if running is None:
        _tell("engines that are running keep the old code until they are restarted (with psutil they would be named)")
    for process in running or ():
        started = f"process {process['pid']} ({process['command']}), started {process['started']}"
        say(f"{started}: it runs the code from before the change until it is restarted")


def show_notes(outcome: Outcome) -> None:
    for note in outcome.notes:
        say(f"note: {note}")


def show_stale_modules(stale: Sequence[Sequence[str]], cleared: bool) -> None:
    """What is left in JIT caches of the code as it was, as prose."""
    paths = [path for paths in stale for path in paths]
    for path in paths:
        say(f"{'removed' if cleared else 'built by the code as it was:'} {path}")
    if paths and not cleared:
        say("--clear-jit-cache removes these and nothing else; they are built again on their first use")


def _by_gate(reports: Iterable[GateReport]) -> list[GateReport]:
    return list({report.gate.id: report for report in reports}.values())


def show_reverted(outcome: Outcome) -> None:
    """What revert did, as prose."""
    show_notes(outcome)
    for path, why in outcome.forgotten.items():
        say(f"{path}: not written, it is {why}; its record was dropped")
    if not outcome.reverted:
        say("nothing is applied; nothing was changed")
        return
    files = ", ".join(change.path for change in outcome.written)
    say(f"reverted {', '.join(outcome.reverted)}: {f'wrote {files}' if files else 'no file needed writing'}")


def unified_diff(change: FileChange) -> str:
    """A unified diff of one file; bytes that are not UTF-8 and lone carriage returns survive in it."""
    before, after = (_lines(data) for data in (change.before, change.after))
    lines = difflib.unified_diff(before, after, f"a/{change.path}", f"b/{change.path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", "surrogateescape")
    return [f"{line}\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.split("\n")[-1]) else [])


def show_diffs(changes: Iterable[FileChange]) -> None:
    for change in changes:
        sys.stdout.write(unified_diff(change).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


# -- explain -----------------------------------------------------------------------------------------------------


def show_explanation(
    reports: Sequence[GateReport],
    code: Sequence[tuple[str, int, int, Sequence[str]]],
    now: Mapping[str, Any],
    then: Mapping[str, Any],
) -> None:
    """Everything about one gate: what, where, for whom, on what conditions, on what evidence, and what then."""
    gate = reports[0].gate
    out = sys.stdout.write
    out(f"{wrapped(f'{gate.id}: {gate.title}', '  ', '')}\n")
    out(f"{gate.action.value}, {gate.level.value}, for SM {'/'.join(str(sm) for sm in sorted(gate.targets))}\n")
    for sms, (state, reason) in _alike((report.sm, (report.state.value, report.reason)) for report in reports):
        out(f"{wrapped(f'state for {sms}: {state}: {reason}', '  ', '')}\n")
    out(f"\n{paragraphs(gate.__doc__ or '')}\n")
    out("\nThe code as installed\n")
    for path, first, marked, lines in code:
        out(f"  {path}:{marked}\n")
        for number, line in enumerate(lines, first):
            out(f"  {'>' if number == marked else ' '} {number:5} {line}\n")
    out("\nWho gets through (before -> with the gate applied)\n")
    for world, truth in now.items():
        after = then.get(world)
        out(f"  {world:12} {truth.value:8} -> {after.value if after else 'cannot be told'}\n")
    out("\nRequirements\n")
    findings = list(_alike((report.sm, finding) for report in reports for finding in report.findings))
    for sms, finding in findings:
        for_whom = f" (for {sms})" if len(reports) > 1 and sms != _named(report.sm for report in reports) else ""
        head = f"{finding.requirement}: found {finding.found}{for_whom}"
        out(f"{wrapped(head, ' ' * 8, '  met   ' if finding.met else '  UNMET ')}\n")
        link = f" ({finding.link})" if finding.link else ""
        out(f"{wrapped(f'{finding.where}: ' * bool(finding.where) + finding.because + link, ' ' * 8)}\n")
    if not findings:
        out("  none\n")
    out("\nEvidence\n")
    for item in gate.evidence:
        out(f"  {item.link}\n{wrapped(item.says, '    ')}\n")
        if item.measured:
            out(f"{wrapped(f'measured: {item.measured}', '    ')}\n")
    labelled = (("Use it", gate.usage), ("Measure it", gate.measure), ("Risk", gate.risk))
    for label, text in (*labelled, ("Not in the default set", gate.opt_in)):
        if text:
            out(f"\n{label}\n{wrapped(text, '  ')}\n")


_T = TypeVar("_T")


def _alike(told: Iterable[tuple[SM, _T]]) -> list[tuple[str, _T]]:
    """Things told of several SMs, each once, with the SMs that it is told of."""
    by_thing: dict[_T, list[SM]] = {}
    for sm, thing in told:
        by_thing.setdefault(thing, []).append(sm)
    return [(_named(sms), thing) for thing, sms in by_thing.items()]


def _named(sms: Iterable[SM]) -> str:
    return f"SM{'/'.join(str(sm) for sm in dict.fromkeys(sms))}"
