"""``sm-patch status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.plan import GateReport


@command
@click.option("--check", is_flag=True, help="Exit 1 when apply has something to do or something has drifted.")
def status(options: Options, check: bool) -> int:
    """Which gates exist here, and what each does for this GPU."""
    from patcher.gate import State
    from patcher.plan import default_gates

    target = options.target()
    documents = []
    pending = False
    for workplace in options.workplaces():
        installation = workplace.installation
        related = {name: workplace.facts.version(name) for name in installation.engine.related}
        reports = [report for sm in target.sms for report in workplace.reports(sm)]
        drifted = [r for r in reports if r.state in (State.MODIFIED, State.LOST, State.PARTIAL, State.UNRECOGNISED)]
        pending = pending or bool(default_gates(reports) or drifted) or workplace.store.interrupted()
        documents.append(
            {
                "installation": console.installation_data(installation, related),
                "interrupted": workplace.store.interrupted(),
                "gates": [console.report_data(report) for report in reports],
            }
        )
        if not options.json:
            console.show_installation(installation, related, target)
            if workplace.store.interrupted():
                console.say("an earlier change was interrupted; the next apply or revert undoes it first")
            console.show_reports(reports)
            _advise(default_gates(reports), reports)
    if options.json:
        console.show_json("status", {"target": console.target_data(target), "installations": documents})
    return 1 if check and pending else 0


def _advise(default: Sequence[GateReport], reports: Sequence[GateReport]) -> None:
    from patcher.gate import State

    if default:
        console.say(f"next: 'sm-patch apply' would change {', '.join(dict.fromkeys(r.gate.id for r in default))}")
    for report in reports:
        if report.state is State.TOO_OPEN and report not in default:
            console.say(
                f"next: 'sm-patch apply --gate {report.gate.id}' closes it; see 'sm-patch explain {report.gate.id}'"
            )
        elif report.state is State.REFUSED:
            console.say(f"see: 'sm-patch explain {report.gate.id}' for what would satisfy it ({report.link})")
