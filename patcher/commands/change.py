"""``sm-patch apply``, ``revert`` and ``diff``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command, gate_option, split

if TYPE_CHECKING:
    from patcher.operations import Outcome
    from patcher.running import Running


_clear_option = click.option(
    "--clear-jit-cache",
    "clear_jit",
    is_flag=True,
    help="Remove the modules in the engine's JIT cache that the changed code had built; nothing else of it.",
)


def _stale_modules(outcomes: Sequence[Outcome], clear: bool) -> list[list[str]]:
    """For each outcome the kept modules that the changed code had built; removed when asked for."""
    from patcher import jit_cache

    found = [jit_cache.stale(outcome) for outcome in outcomes]
    if clear:
        jit_cache.clear(path for paths in found for path in paths)
    return [[str(path) for path in paths] for paths in found]


@command
@gate_option
@click.option("--force", multiple=True, callback=split, metavar="GATE", help="Go ahead although it is refused.")
@click.option("--dry-run", is_flag=True, help="Write nothing; exit 1 when something would change.")
@click.option("--diff", "show_diff", is_flag=True, help="Print the change as a diff.")
@_clear_option
def apply(
    options: Options, gates: Sequence[str], force: Sequence[str], dry_run: bool, show_diff: bool, clear_jit: bool
) -> int:
    """Apply recipes: by default the well-founded ones whose requirements are met."""
    target = options.target()
    workplaces = options.holding([*gates, *force])
    # With several engines all is planned before anything is written: what stands in the way of one stops them all.
    rounds = [True] if dry_run else [True, False] if len(workplaces) > 1 else [False]
    outcomes: list[Outcome] = []
    for only_plan in rounds:
        outcomes = []
        for workplace in workplaces:
            run = workplace.dry_run if only_plan else workplace.apply
            mine = [name for name in gates if name in workplace.gates]
            outcomes.append(run(target.sms, mine, [name for name in force if name in workplace.gates]))
    stale = _stale_modules(outcomes, clear_jit and not dry_run)
    if options.json:
        data = [
            {**console.outcome_data(o, diff=show_diff), **_where(o), "stale_jit_modules": modules}
            for o, modules in zip(outcomes, stale, strict=True)
        ]
        console.show_json("apply", {"target": console.target_data(target), "outcomes": data})
    else:
        console.say(f"target: {', '.join(f'SM{sm}' for sm in target.sms)} ({target.source})")
        for outcome in outcomes:
            if show_diff:
                console.show_diffs(outcome.written)
            console.show_applied(outcome)
            _show_running(outcome)
            for error in outcome.errors:
                console.show_error(error, as_json=False)
        console.show_stale_modules(stale, clear_jit and not dry_run)
    failed = max((error.exit_code for outcome in outcomes for error in outcome.errors), default=0)
    return failed or (1 if dry_run and any(outcome.written for outcome in outcomes) else 0)


@command
@gate_option
@_clear_option
@click.option("--keep-mine", "edited", flag_value="keep-mine", help="Leave files that were edited since as they are.")
@click.option("--theirs", "edited", flag_value="theirs", help="Give back their originals too; the edits are kept.")
def revert(options: Options, gates: Sequence[str], edited: str | None, clear_jit: bool) -> int:
    """Take changes back, byte for byte: all of them, or those of the named gates."""
    from patcher.operations import Edited

    choice = Edited(edited or "refuse")
    outcomes = []
    for workplace in options.holding(gates, in_force=True):
        mine = [name for name in gates if name in workplace.gates or name in workplace.unknown]
        outcomes.append(workplace.revert(mine, choice))
    stale = _stale_modules(outcomes, clear_jit)
    if options.json:
        data = [
            {**console.outcome_data(o), **_where(o), "stale_jit_modules": modules}
            for o, modules in zip(outcomes, stale, strict=True)
        ]
        console.show_json("revert", {"outcomes": data})
    else:
        for outcome in outcomes:
            console.show_reverted(outcome)
            _show_running(outcome)
        console.show_stale_modules(stale, clear_jit)
    return 0


def _where(outcome: Outcome) -> dict[str, Any]:
    """Where it was changed, and who still runs what was there before (None: cannot be told)."""
    running = _running(outcome)
    told = None if running is None else [process.as_dict() for process in running]
    return {"installation": str(outcome.installation.root), "running": told}


def _running(outcome: Outcome) -> list[Running] | None:
    from patcher.running import processes

    if outcome.dry_run or not outcome.written:
        return []
    installation = outcome.installation
    return processes(installation.engine.package, installation.root, installation.environment.prefix)


def _show_running(outcome: Outcome) -> None:
    running = _running(outcome)
    console.show_running(None if running is None else [process.as_dict() for process in running])


@command
def diff(options: Options) -> int:
    """What is on disk against the original."""
    changes = [change for workplace in options.workplaces() for change in workplace.differences()]
    if options.json:
        data = [{"path": change.path, "diff": console.unified_diff(change)} for change in changes]
        console.show_json("diff", {"files": data})
    else:
        console.show_diffs(changes)
        if not changes:
            console.say("every file is as the engine's distribution has it; nothing is applied")
    return 0
