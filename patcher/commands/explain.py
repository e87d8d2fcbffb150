"""``sm-patch explain``."""

from __future__ import annotations

import click

from patcher import console
from patcher.cli import Options, command


@command
@click.argument("gate")
def explain(options: Options, gate: str) -> int:
    """What a gate guards, the code as installed, for whom it opens, on what conditions and evidence."""
    target = options.target()
    for workplace in options.holding([gate]):
        recipe = workplace.gates[gate]
        report = workplace.report(recipe, target.sms[0])
        now, then = workplace.truth_table(recipe)
        code = workplace.code(report)
        if options.json:
            table = {w: {"before": t.value, "after": then[w].value if w in then else None} for w, t in now.items()}
            data = {**console.report_data(report), "text": recipe.__doc__, "truth": table, "code": code}
            evidence = [{"link": e.link, "says": e.says, "measured": e.measured} for e in recipe.evidence]
            more = {"usage": recipe.usage, "measure": recipe.measure, "risk": recipe.risk, "evidence": evidence}
            console.show_json("explain", {**data, **more})
        else:
            console.show_explanation(report, code, now, then)
    return 0
