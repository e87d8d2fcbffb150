"""``sm-patch status``: read-only, and kept between calls while nothing it rests on changes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.environment import Environment
    from patcher.gate import Engine, Gate
    from patcher.hardware import Target
    from patcher.operations import Workplace


_LOOKS = 20
_PAUSE_SECONDS = 0.05
_CHECK = "Exit 1 when apply has something to do or something has drifted, 5 when a change was interrupted."


@command
@click.option("--check", is_flag=True, help=_CHECK)
@click.option("--all", "everything", is_flag=True, help="Also the gates that need nothing, or are never opened.")
def status(options: Options, check: bool, everything: bool) -> int:
    """Which gates exist here, and what each does for this GPU."""
    from patcher import cache, catalogue, overview, wheels

    target = options.target()
    environment, places = options.places()
    assumptions = options.assumptions()
    documents = []
    for engine, root in places:
        seen = [str(p) for p in (environment.interpreter, *environment.paths)]
        key = json.dumps([str(root), engine.name, seen, target.sms, assumptions, catalogue.opted_in()])

        def look(engine: Engine = engine, root: Path = root) -> tuple[dict[str, Any], list[str]]:
            return _look(environment, engine, root, target, assumptions)

        document = cache.remembered(wheels.cache_folder() / "status", key, look)
        documents.append({**document, "running": _running(engine, root, environment, document)})
    if options.json:
        console.show_json("status", {"target": console.target_data(target), "installations": documents})
    else:
        for document in documents:
            console.show_installation(document, target)
            overview.show_gates(document["gates"], everything)
            console.show_advice(document)
            overview.show_next(document)
    if check and any(d["interrupted"] for d in documents):
        return 5
    pending = any(d["pending"] or d["drifted"] or d["unclaimed"] for d in documents)
    return 1 if check and pending else 0


def _running(engine: Engine, root: Path, environment: Environment, document: dict[str, Any]) -> list[Any] | None:
    """Processes that started before the last change here; None where it cannot be told."""
    changed = document["changed"]
    if changed is None:
        return []
    from patcher.running import processes

    found = processes(engine.package, root, environment.prefix, before=changed)
    return None if found is None else [process.as_dict() for process in found]


def _look(
    environment: Environment, engine: Engine, root: Path, target: Target, assumptions: dict[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The status of one installation as JSON-ready data, and the paths it rests on."""
    from patcher import catalogue
    from patcher.environment import installation_at
    from patcher.operations import Workplace

    for _ in range(_LOOKS):  # a look during which something was written would be of two states at once
        workplace = Workplace(installation_at(environment, engine, root), assumptions)
        mark = workplace.store.mark()
        seen = _seen(workplace, target)
        interrupted = workplace.store.interrupted()
        changing = workplace.store.holder() if interrupted else None
        if workplace.store.mark() == mark and not changing:
            break
        time.sleep(_PAUSE_SECONDS)
    related = {name: workplace.facts.version(name) for name in engine.related}
    document = {
        "installation": console.installation_data(workplace.installation, related, workplace.inspector.shown),
        "interrupted": interrupted,
        "changing": changing,
        "changed": workplace.store.changed(),
        "unknown": workplace.unknown,
        "unclaimed": workplace.unclaimed,
        "pending": sorted(seen.pending),
        "drifted": sorted(seen.drifted | seen.unfounded),
        "unfounded": sorted(seen.unfounded),
        "gates": seen.gates,
    }
    return document, [*seen.depends, *workplace.depends(), *catalogue.pack_files()]


@dataclass
class _Seen:
    """What was seen of some gates: their reports, which of them want something done, and the paths that rests on."""

    gates: list[dict[str, Any]] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    drifted: set[str] = field(default_factory=set)
    unfounded: set[str] = field(default_factory=set)
    depends: set[str] = field(default_factory=set)


def _seen(workplace: Workplace, target: Target) -> _Seen:
    """What is seen of all gates, in the order of the catalogue; the cores share the looking."""
    from patcher import parallel

    workers = parallel.workers()
    whole = _Seen()
    for part in parallel.each(partial(_seen_of, workplace, target), workplace.shares(workers), workers):
        whole.gates += part.gates
        whole.pending |= part.pending
        whole.drifted |= part.drifted
        whole.unfounded |= part.unfounded
        whole.depends |= part.depends
    order = {name: position for position, name in enumerate(workplace.gates)}
    sms = {str(sm): position for position, sm in enumerate(target.sms)}
    whole.gates.sort(key=lambda row: (sms[row["sm"]], order[row["gate"]]))
    return whole


def _seen_of(workplace: Workplace, target: Target, gates: Sequence[type[Gate]]) -> _Seen:
    from patcher.gate import State
    from patcher.plan import default_gates

    reports = [workplace.report(gate, sm) for sm in target.sms for gate in gates]
    drifted = (State.MODIFIED, State.LOST, State.PARTIAL, State.UNRECOGNISED)
    return _Seen(
        gates=[console.report_data(report) for report in reports],
        pending={report.gate.id for report in default_gates(reports)},
        # Beside the targets a gate in pieces is upstream's own doing.
        drifted={
            report.gate.id
            for report in reports
            if report.state in drifted and (report.sm in report.gate.targets or report.state is not State.PARTIAL)
        },
        unfounded={report.gate.id for report in reports if workplace.unfounded(report)},
        depends=set(workplace.depends()),
    )
