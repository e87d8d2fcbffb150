"""``sm-patch envs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.discovery import Sighted


@command
@click.option(
    "--below", multiple=True, type=click.Path(path_type=Path), help="Walk below this folder, not the usual ones."
)
@click.option("--seconds", type=float, default=4.0, show_default=True, help="Stop searching after this long.")
def envs(options: Options, below: tuple[Path, ...], seconds: float) -> int:
    """Every engine installation that this machine has, told from files alone."""
    from patcher import catalogue
    from patcher.discovery import Discovery

    engines = [catalogue.engine_named(options.engine)] if options.engine else list(catalogue.engines().values())
    search = Discovery(engines, seconds)
    found = search.search(below or None)
    own = [s for s in found if s.site.kind == "running python"]
    if options.json:
        data = {"interpreter": sys.executable, "complete": not search.incomplete}
        console.show_json("envs", {**data, "installations": [_data(s) for s in found]})
        return 0
    python = ".".join(map(str, sys.version_info[:3]))
    has = ", ".join(f"{s.engine} {s.version}" for s in own) or f"no {' and no '.join(e.name for e in engines)}"
    console.say(f"this interpreter: {sys.executable} (Python {python}): {has}")
    table = console.table("Engine", "Version", "Installed", "Where", "Python", "Patched", "Use it with")
    for sighted in found:
        interpreter = f"{sighted.site.interpreter or '-'}"
        patched = ", ".join(sighted.patched) or ("no" if sighted.usable else "-")
        use = sighted.command("status") or "cannot be used"
        row = [sighted.engine, sighted.version or "?", sighted.how, str(sighted.root), interpreter, patched, use]
        table.add_row(*(console.cell(text) for text in row))
    if found:
        console.show_table(table)
    for sighted in found:
        for remark in sighted.remarks:
            console.say(f"{sighted.root}: {remark}")
    if search.incomplete:
        console.say(f"stopped after {seconds:g} s; there may be more (--seconds, --below)")
    return 0


def _data(sighted: Sighted) -> dict[str, Any]:
    return {
        "engine": sighted.engine,
        "version": sighted.version,
        "how": sighted.how,
        "root": str(sighted.root),
        "kind": sighted.site.kind,
        "environment": str(sighted.site.home),
        "interpreter": str(sighted.site.interpreter) if sighted.site.interpreter else None,
        "python": sighted.site.python or None,
        "distributions": list(sighted.distributions),
        "patched": list(sighted.patched),
        "found": sighted.site.because,
        "remarks": sighted.remarks,
        "command": sighted.command("status") or None,
    }
