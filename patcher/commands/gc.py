"""``sm-patch gc``."""

from __future__ import annotations

import click

from patcher import console
from patcher.cli import Options, command


@command
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def gc(options: Options, dry_run: bool) -> int:
    """Settle what was interrupted; forget lost gates; remove backups that nothing on record needs."""
    cleanings = [workplace.clean(dry_run=dry_run) for workplace in options.workplaces()]
    if options.json:
        documents = [
            {
                "installation": str(c.installation.root),
                "forgotten": list(c.forgotten),
                "backups": dict(c.backups),
                "unfinished_files": list(c.unfinished),
                "notes": list(c.notes),
            }
            for c in cleanings
        ]
        console.show_json("gc", {"dry_run": dry_run, "installations": documents})
        return 0
    would = "would " if dry_run else ""
    for cleaning in cleanings:
        for note in cleaning.notes:
            console.say(f"note: {note}")
        for name in cleaning.forgotten:
            console.say(f"{would}forget {name}: it is no longer in force" if dry_run else f"forgot {name}")
        size = sum(cleaning.backups.values())
        verb = "would remove" if dry_run else "removed"
        console.say(
            f"{verb} {len(cleaning.backups)} backups ({size} bytes), {len(cleaning.unfinished)} unfinished files"
        )
    return 0
