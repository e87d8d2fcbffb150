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
        reports = [workplace.report(recipe, sm) for sm in (sorted(recipe.targets) if target.assumed else target.sms)]
        now, then = workplace.truth_table(recipe)
        code = workplace.code(reports[0])
        if options.json:
            table = {w: {"before": t.value, "after": then[w].value if w in then else None} for w, t in now.items()}
            data = {**console.report_data(reports[0]), "text": recipe.__doc__, "truth": table, "code": code}
            evidence = [{"link": e.link, "says": e.says, "measured": e.measured} for e in recipe.evidence]
            more = {"usage": recipe.usage, "measure": recipe.measure, "risk": recipe.risk, "evidence": evidence}
            by_sm = {str(report.sm): console.report_data(report) for report in reports}
            console.show_json("explain", {**data, **more, "by_sm": by_sm})
        else:
            console.show_explanation(reports, code, now, then)
    return 0
