"""``sm-patch port``: where the sites of unrecognised gates may have gone. Reads only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command, gate_option

if TYPE_CHECKING:
    from patcher.gate import Gate
    from patcher.operations import Workplace
    from patcher.plan import Inspector
    from patcher.port import Candidate, Lost


@command
@gate_option
@click.option(
    "--from",
    "origin",
    metavar="DIR|VERSION",
    help="A release that the recipes know: a folder that holds its package, or a version to download. "
    "Default: the one that the source looks most like.",
)
def port(options: Options, gates: Sequence[str], origin: str | None) -> int:
    """Where the sites of unrecognised gates may have gone in a new release. Changes nothing."""
    from patcher.gate import State

    target = options.target()
    found: list[tuple[Workplace, list[Lost]]] = []
    for workplace in options.holding(gates):
        named = [workplace.gates[name] for name in gates if name in workplace.gates]
        chosen = named or [
            gate
            for gate in workplace.gates.values()
            if any(workplace.inspector.report(gate, sm).state is State.UNRECOGNISED for sm in target.sms)
        ]
        missing = [gate for gate in chosen if not _all_found(workplace.inspector, gate)]
        found.append((workplace, _lost(workplace, missing, origin) if missing else []))
    if options.json:
        data = [{"installation": str(w.installation.root), "lost": [_data(x) for x in lost]} for w, lost in found]
        console.show_json("port", {"installations": data})
    else:
        for workplace, lost in found:
            _show(workplace, lost)
    return 1 if any(lost for _, lost in found) else 0


def _all_found(inspector: Inspector, gate: type[Gate]) -> bool:
    sites = inspector.sites(gate)
    return bool(sites) and all(inspector.find(site).place for site in sites)


def _lost(workplace: Workplace, gates: Sequence[type[Gate]], origin: str | None) -> list[Lost]:
    from packaging.version import InvalidVersion, Version

    from patcher.haystack import Haystack
    from patcher.port import port as search

    before, hay = Haystack(_known(workplace, origin)), Haystack(workplace.inspector)
    stated = workplace.installation.version or workplace.inspector.version or "0"
    try:
        since = Version(stated).public
    except InvalidVersion:
        since = workplace.inspector.version or "0"
    return [lost for gate in gates for lost in search(gate, hay, before, since)]


def _known(workplace: Workplace, origin: str | None) -> Inspector:
    """The release to compare with. Raises UsageError where none is named and none is known."""
    from packaging.version import InvalidVersion, Version

    from patcher import wheels
    from patcher.environment import installation_at, of_root
    from patcher.errors import UsageError
    from patcher.plan import Inspector
    from patcher.source import SourceTree

    engine = workplace.installation.engine
    origin = origin or _nearest(workplace.inspector)
    if not origin:
        raise UsageError("no release to compare with is known", hint="name one: --from DIR or --from VERSION")
    if Path(origin).is_dir():
        root = Path(origin)
        if not (root / engine.package).is_dir():
            raise UsageError(f"there is no {engine.package}/ in that folder", where=str(root))
    else:
        try:
            Version(origin)
        except InvalidVersion as error:
            raise UsageError(f"'{origin}' is neither a folder nor a version") from error
        console.say(f"comparing with {engine.distributions[0]} {origin}, fetched by name into {wheels.cache_folder()}")
        root = wheels.source(engine.distributions[0], origin)
    installation = installation_at(of_root(root, [engine.package]), engine, root)
    return Inspector(engine, SourceTree(root), installation.version, workplace.facts, installation.verified)


def _nearest(inspector: Inspector) -> str:
    """The release that the source looks most like, as far as its version is not verified."""
    if inspector.verified:
        return inspector.stated or ""
    best, borders = inspector.eras.best, inspector.eras.borders
    return inspector.engine.newest if not best or best[-1] == borders[-1] else str(best[-1])


def _show(workplace: Workplace, lost: Sequence[Lost]) -> None:
    from patcher.skeleton import recipe_line

    name = f"{workplace.installation.engine.called} {workplace.installation.version or '(version not known)'}"
    if not lost:
        console.say(f"{name}: every site is found; nothing to port")
        return
    out = sys.stdout.write
    for item in lost:
        out(f"{item.gate.id}: {item.site.path} {item.site.within or '(module)'}, {item.site.versions}: {item.why}\n")
        if not item.candidates:
            out("  nothing like it was found\n")
        for number, candidate in enumerate(item.candidates, 1):
            word = f"{item.confidence}, " if number == 1 else ""
            where = f"{candidate.path}:{candidate.line} in {candidate.within or '(module)'}"
            out(f"  {number}. {word}{candidate.score:.0%}  {where}\n")
            out(f"     {candidate.text}\n")
            if candidate.closed_to:
                out(f"     never on {', '.join(candidate.closed_to)}\n")
            if candidate.site is not None:
                out(f"     {recipe_line(candidate.site, item.site)}\n")
            else:
                out("     no site made of the old one finds exactly this place\n")
    console.say(f"{name}: {len(lost)} sites are not where the recipes know them; nothing was changed")
    console.say("try a line in the recipe's sites, end the range of the old one there, add an example, run the tests")


def _data(lost: Lost) -> dict[str, Any]:
    return {
        "gate": lost.gate.id,
        "site": {"path": lost.site.path, "within": lost.site.within, "versions": lost.site.versions},
        "why": lost.why,
        "confidence": lost.confidence,
        "candidates": [_candidate(lost, candidate) for candidate in lost.candidates],
    }


def _candidate(lost: Lost, candidate: Candidate) -> dict[str, Any]:
    from patcher.skeleton import recipe_line

    return {
        "path": candidate.path,
        "line": candidate.line,
        "within": candidate.within,
        "text": candidate.text,
        "score": round(candidate.score, 3),
        "never_on": list(candidate.closed_to),
        "recipe_line": recipe_line(candidate.site, lost.site) if candidate.site else None,
    }
