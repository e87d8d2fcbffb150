"""``sm-patch scan``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command, formats, split

if TYPE_CHECKING:
    from patcher.arch import SM
    from patcher.scan import Comparison, Scan, Sighting


def _kinds(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str]:
    """The kinds that are named. An unknown one is an error: it must not mean "none"."""
    from patcher.scan import Kind

    known = {kind.name.lower(): kind.value for kind in Kind}
    found = [value.lower() for value in split(context, parameter, values)]
    for value in found:
        if value not in known:
            raise click.BadParameter(f"'{value}' is none of {', '.join(known)}")
    return [known[value] for value in found]


@command
@formats("csv", "sarif")
@click.option(
    "--excludes", multiple=True, callback=split, metavar="SM", help="Only gates that never let this SM through."
)
@click.option("--admits", multiple=True, callback=split, metavar="SM", help="Only gates that can let this SM through.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    callback=_kinds,
    help="Only this kind: dispatch, raise, assert, default, tuning, table, literal, constant, predicate.",
)
@click.option("--new", is_flag=True, help="Only gates that no recipe of the catalogue covers.")
@click.option("--decided", is_flag=True, help="Only gates known to treat some SMs differently.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="ROOT",
    help="Show what changed since the engine in this other folder.",
)
def scan(
    options: Options,
    excludes: Sequence[str],
    admits: Sequence[str],
    kinds: Sequence[str],
    new: bool,
    decided: bool,
    against: Path | None,
) -> int:
    """Every architecture gate of an engine, catalogued or not: where, of what kind, and whom it lets through."""
    from patcher.arch import parse_sm
    from patcher.condition import Truth
    from patcher.scan import compare

    out_sms, in_sms = [parse_sm(text) for text in excludes], [parse_sm(text) for text in admits]

    def wanted(sighting: Sighting) -> bool:
        return (
            all(sighting.truth(sm) is Truth.NEVER for sm in out_sms)
            and all(sighting.admits(sm) for sm in in_sms)
            and (not kinds or sighting.kind.value in kinds)
            and not (new and sighting.recipe)
            and not (decided and not sighting.decides)
        )

    documents = []
    environment, places = options.places()
    for engine, root in places:
        result, version = _scanned(options, environment, engine, root)
        for unread in result.unread:
            console.say(f"not read: {unread.path}: {unread.error.what}")
        shown = [sighting for sighting in result.sightings if wanted(sighting)]
        facts = {"engine": engine.name, "version": version, "root": str(root), "files": result.files}
        console.say(
            f"{engine.name} {version} in {root}: {len(shown)} of {len(result.sightings)} gates, {result.files} files"
        )
        if against is not None:
            other, other_version = _scanned(options, None, engine, against)
            comparison = compare([s for s in other.sightings if wanted(s)], shown)
            documents.append({**facts, "against": other_version, **_comparison_data(comparison)})
            if options.format == "table":
                _show_comparison(comparison, other_version, version)
            elif options.format != "json":
                raise click.UsageError("--against shows a table or json")
            continue
        documents.append({**facts, "gates": [sighting_data(sighting) for sighting in shown]})
        if options.format == "table":
            _show(shown)
        elif options.format == "csv":
            _write_csv(shown)
    if options.format == "json":
        console.show_json("scan", {"installations": documents})
    elif options.format == "sarif":
        _write_sarif(documents)
    return 0


def _scanned(options: Options, environment: Any, engine: Any, root: Path) -> tuple[Scan, str | None]:
    from patcher import catalogue
    from patcher.environment import installation_at, of_root
    from patcher.errors import NoEngine
    from patcher.parallel import workers
    from patcher.scan import Scanner

    if not (root / engine.package).is_dir():
        raise NoEngine(
            f"there is no {engine.package}/ in it", where=str(root), hint="--against takes such a folder as --root does"
        )
    environment = environment or of_root(root, [engine.package])
    version = installation_at(environment, engine, root).version
    scanner = Scanner(engine, root, version, catalogue.gates(engine.name).values())
    paths = scanner.paths()
    with _progress(len(paths)) as tick:
        return scanner.scan(paths, workers(), tick), version


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar over files on a terminal's stderr; nothing elsewhere."""
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("scanning"), BarColumn(), MofNCompleteColumn(), TextColumn("files"))
    # Drawn when told to, not by a thread of its own: the workers are forked from this process.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("scan", total=total)

        def tick(count: int) -> None:
            bar.advance(task, count)
            bar.refresh()

        yield tick


def through(sighting: Sighting) -> str:
    """The SMs that a gate lets through; ``120?``: that also depends on something else."""
    from patcher.arch import ALL_SMS
    from patcher.condition import Truth

    if not sighting.decides:
        return {Truth.ALWAYS: "every SM", Truth.NEVER: "no SM"}.get(sighting.truths[0], "SMs not known from source")
    parts: list[tuple[SM, Truth]] = list(zip(ALL_SMS, sighting.truths, strict=True))
    always = [str(sm) for sm, truth in parts if truth is Truth.ALWAYS]
    depends = [f"{sm}?" for sm, truth in parts if truth is Truth.DEPENDS]
    return " ".join([*always, *depends]) or "no SM"


def _show(sightings: Sequence[Sighting]) -> None:
    for sighting in sightings:
        _show_one(sighting, f"lets through {through(sighting)}")


def _show_one(sighting: Sighting, whom: str, change: str = "") -> None:
    """Where it is, so that it can be opened, then what it is."""
    within = f" in {sighting.within}" if sighting.within else ""
    print(console.wrapped(f"{change}{sighting.path}:{sighting.line}{within}", "  ", ""))
    recipe = f" [{sighting.recipe}]" if sighting.recipe else ""
    print(console.wrapped(f"{sighting.kind.value}, {whom}: {_short(sighting.condition)}{recipe}", "  "))


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


def _show_comparison(comparison: Comparison, before: str | None, after: str | None) -> None:
    for s in comparison.added:
        _show_one(s, f"lets through {through(s)}", "added: ")
    for s in comparison.removed:
        _show_one(s, f"let through {through(s)}", "removed: ")
    for old, s in comparison.changed:
        _show_one(s, f"lets through {through(old)} -> {through(s)}", "changed: ")
    for old, s in comparison.moved:
        _show_one(s, f"from {old.path}", "moved: ")
    counts = {
        "added": len(comparison.added),
        "removed": len(comparison.removed),
        "changed": len(comparison.changed),
        "moved": len(comparison.moved),
    }
    console.say(f"{before} -> {after}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def sighting_data(sighting: Sighting) -> dict[str, Any]:
    from patcher.arch import ALL_SMS

    return {
        "path": sighting.path,
        "line": sighting.line,
        "end_line": sighting.end_line,
        "within": sighting.within,
        "kind": sighting.kind.value,
        "condition": sighting.condition,
        "truth": {str(sm): truth.value for sm, truth in zip(ALL_SMS, sighting.truths, strict=True)},
        "recipe": sighting.recipe or None,
    }


def _comparison_data(comparison: Comparison) -> dict[str, Any]:
    def pairs(found: Sequence[tuple[Sighting, Sighting]]) -> list[dict[str, Any]]:
        return [{"before": sighting_data(before), "after": sighting_data(after)} for before, after in found]

    return {
        "added": [sighting_data(s) for s in comparison.added],
        "removed": [sighting_data(s) for s in comparison.removed],
        "changed": pairs(comparison.changed),
        "moved": pairs(comparison.moved),
    }


def _write_csv(sightings: Sequence[Sighting]) -> None:
    import csv

    from patcher.arch import ALL_SMS

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(
        ["path", "line", "end_line", "within", "kind", *(f"sm{sm}" for sm in ALL_SMS), "recipe", "condition"]
    )
    for s in sightings:
        truths = [truth.value for truth in s.truths]
        writer.writerow([s.path, s.line, s.end_line, s.within, s.kind.value, *truths, s.recipe, s.condition])


def _write_sarif(documents: Sequence[dict[str, Any]]) -> None:
    import json

    from patcher import __version__
    from patcher.scan import Kind

    rules = [{"id": f"sm-gate/{kind.name.lower()}", "name": kind.value} for kind in Kind]
    results = []
    for document in documents:
        for gate in document["gates"]:
            through = [f"SM{sm}" for sm, truth in gate["truth"].items() if truth in ("always", "depends")]
            message = f"{gate['kind']}: lets through {', '.join(through) or 'no SM'}: {gate['condition']}"
            region = {"startLine": gate["line"], "endLine": gate["end_line"]}
            location = {"artifactLocation": {"uri": gate["path"], "uriBaseId": "ROOT"}, "region": region}
            properties = {"truth": gate["truth"], "recipe": gate["recipe"], "within": gate["within"]}
            results.append(
                {
                    "ruleId": f"sm-gate/{Kind(gate['kind']).name.lower()}",
                    "level": "note",
                    "message": {"text": message},
                    "locations": [{"physicalLocation": location}],
                    "properties": properties,
                }
            )
    driver = {"name": "sm-patch", "version": __version__, "rules": rules}
    bases = {"ROOT": {"uri": Path(documents[0]["root"]).resolve().as_uri() + "/"}} if documents else {}
    run = {"tool": {"driver": driver}, "originalUriBaseIds": bases, "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    sys.stdout.write(json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n")
