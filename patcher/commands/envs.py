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
    "--below",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Walk below this folder, not the usual ones.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=4.0, show_default=True, help="Stop searching after this long."
)
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
    for sighted in found:
        _show(sighted)
    if search.incomplete:
        console.say(f"stopped after {seconds:g} s; there may be more (--seconds, --below)")
    return 0


def _show(sighted: Sighted) -> None:
    out = sys.stdout.write
    out(f"{sighted.engine} {sighted.version or '(version not known)'}, {sighted.how}, in {sighted.root}\n")
    site = sighted.site
    if site.interpreter is not None:
        out(f"  python   {site.interpreter}{f' ({site.python})' if site.python else ''}, {site.kind}\n")
    if sighted.usable:
        out(f"{console.wrapped(', '.join(sighted.patched) or 'no', ' ' * 11, '  patched  ')}\n")
    for remark in sighted.remarks:
        out(f"{console.wrapped(remark, ' ' * 11, '  note     ')}\n")
    out(f"  use      {sighted.command('status') or 'nothing to work on here'}\n\n")


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
