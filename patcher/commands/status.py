"""``sm-patch status``: read-only, and kept between calls while nothing it rests on changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.environment import Environment
    from patcher.gate import Engine
    from patcher.hardware import Target


@command
@click.option("--check", is_flag=True, help="Exit 1 when apply has something to do or something has drifted.")
@click.option("--all", "everything", is_flag=True, help="Also the gates that need nothing, or are never opened.")
def status(options: Options, check: bool, everything: bool) -> int:
    """Which gates exist here, and what each does for this GPU."""
    from patcher import cache, overview, wheels

    target = options.target()
    environment, places = options.places()
    assumptions = options.assumptions()
    documents = []
    for engine, root in places:
        seen = [str(p) for p in (environment.interpreter, *environment.paths)]
        key = json.dumps([str(root), engine.name, seen, target.sms, assumptions])

        def look(engine: Engine = engine, root: Path = root) -> tuple[dict[str, Any], list[str]]:
            return _look(environment, engine, root, target, assumptions)

        documents.append(cache.remembered(wheels.cache_folder() / "status", key, look))
    if options.json:
        console.show_json("status", {"target": console.target_data(target), "installations": documents})
    else:
        for document in documents:
            console.show_installation(document, target)
            overview.show_gates(document["gates"], everything)
            console.show_advice(document)
            overview.show_next(document)
    pending = any(d["pending"] or d["drifted"] or d["interrupted"] for d in documents)
    return 1 if check and pending else 0


def _look(
    environment: Environment, engine: Engine, root: Path, target: Target, assumptions: dict[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The status of one installation as JSON-ready data, and the paths it rests on."""
    from patcher.environment import installation_at
    from patcher.gate import State
    from patcher.operations import Workplace
    from patcher.plan import default_gates

    workplace = Workplace(installation_at(environment, engine, root), assumptions)
    related = {name: workplace.facts.version(name) for name in engine.related}
    reports = [report for sm in target.sms for report in workplace.reports(sm)]
    drifted = (State.MODIFIED, State.LOST, State.PARTIAL, State.UNRECOGNISED)
    unfounded = [report.gate.id for report in reports if workplace.unfounded(report)]
    document = {
        "installation": console.installation_data(workplace.installation, related),
        "interrupted": workplace.store.interrupted(),
        "pending": sorted({report.gate.id for report in default_gates(reports)}),
        "drifted": sorted({report.gate.id for report in reports if report.state in drifted} | set(unfounded)),
        "unfounded": sorted(set(unfounded)),
        "gates": [console.report_data(report) for report in reports],
    }
    return document, workplace.depends()
