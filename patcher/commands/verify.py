"""``sm-patch verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.verification import Verification


@command
def verify(options: Options) -> int:
    """Read everything on record again: files, backups and proofs. Exit 0, 1 lost, 4 modified, 5 damaged."""
    from patcher.verification import verify as look

    found = [(workplace, look(workplace)) for workplace in options.workplaces()]
    if options.json:
        documents = [{"installation": str(w.installation.root), "engine": w.installation.engine.name, **_data(v)}
                     for w, v in found]  # fmt: skip
        console.show_json("verify", {"installations": documents})
    else:
        for workplace, verification in found:
            console.say(f"{workplace.installation.engine.name} in {workplace.installation.root}")
            _show(verification)
    return max((verification.exit_code for _, verification in found), default=0)


def _data(verification: Verification) -> dict[str, Any]:
    damage = verification.damage
    return {
        "exit_code": verification.exit_code,
        "files": dict(verification.files),
        "backups": dict(verification.backups),
        "proofs": dict(verification.proofs),
        "unneeded_backups": dict(verification.unneeded),
        "unfinished_files": list(verification.unfinished),
        "unrecorded": dict(verification.unrecorded),
        "interrupted": verification.interrupted,
        "damage": damage.as_dict() if damage else None,
    }


def _show(verification: Verification) -> None:
    if verification.damage is not None:
        console.show_error(verification.damage, as_json=False)
        console.say("against the distribution's own record (no manifest to go by):")
    for path, state in verification.files.items():
        backup = verification.backups.get(path)
        print(f"{state:9} {path}{f' (backup {backup})' if backup else ''}")
    for gate, state in verification.proofs.items():
        print(f"{'proven' if state == 'ok' else 'unproven':9} {gate}{'' if state == 'ok' else f': {state}'}")
    for gate, why in verification.unrecorded.items():
        print(console.wrapped(f"{gate}: {why}", " " * 10, "unknown   "))
    if verification.interrupted:
        console.say("a change was interrupted; the next apply, revert or gc settles it first")
    if verification.unneeded or verification.unfinished:
        size = sum(verification.unneeded.values())
        left = f" and {len(verification.unfinished)} unfinished files" if verification.unfinished else ""
        console.say(f"{len(verification.unneeded)} backups ({size} bytes){left} are not needed: 'sm-patch gc'")
    if not verification.files and verification.exit_code == 0:
        console.say("nothing is applied")
