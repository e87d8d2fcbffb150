"""The command line. Each command gathers, calls an operation, and shows the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.errors import SmPatchError

if TYPE_CHECKING:
    from patcher.environment import Environment
    from patcher.gate import Gate
    from patcher.hardware import Target
    from patcher.operations import Workplace


@dataclass
class Options:
    """The options that every command takes."""

    python: str | None = None
    venv: Path | None = None
    root: Path | None = None
    engine: str | None = None
    sm: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    format: str = "table"
    _cache: dict[str, Any] = field(default_factory=dict)

    @property
    def json(self) -> bool:
        return self.format == "json"

    def environment(self) -> Environment:
        from patcher import catalogue, environment

        packages = [engine.package for engine in catalogue.engines().values()]
        named = [option for option in (self.python, self.venv, self.root) if option is not None]
        if len(named) > 1:
            raise click.UsageError("--python, --venv and --root exclude each other")
        if self.python is not None:
            return environment.of_interpreter(self.python, packages)
        if self.venv is not None:
            return environment.of_venv(self.venv, packages)
        if self.root is not None:
            return environment.of_root(self.root, packages)
        return environment.current(packages)

    def workplaces(self) -> list[Workplace]:
        """The installations to work on, opened. Raises NoEngine."""
        from patcher import catalogue, environment
        from patcher.operations import Workplace

        engines = [catalogue.engine_named(self.engine)] if self.engine else list(catalogue.engines().values())
        assumptions = environment.parse_assumptions(self.assume)
        found = environment.require_installations(self.environment(), engines, self.engine)
        return [Workplace(installation, assumptions) for installation in found]

    def target(self) -> Target:
        from patcher.hardware import choose_target

        return choose_target(self.sm)


def _split(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for text in value for part in text.replace(",", " ").split())


_SHARED = (
    click.option("--python", metavar="PATH", envvar="SM_PATCH_PYTHON", help="The engine's interpreter."),
    click.option("--venv", type=click.Path(path_type=Path), envvar="SM_PATCH_VENV", help="The engine's environment."),
    click.option(
        "--root",
        type=click.Path(path_type=Path),
        envvar="SM_PATCH_ROOT",
        help="A folder that holds the engine's package: a site-packages, an unpacked wheel, a checkout's python/.",
    ),
    click.option("--engine", metavar="NAME", help="Only this engine."),
    click.option(
        "--sm",
        multiple=True,
        callback=_split,
        envvar="SM_PATCH_SM",
        metavar="SM",
        help="The target, e.g. 120, 12.0, sm_121a. Default: the visible GPUs; none visible: 120.",
    ),
    click.option(
        "--assume",
        multiple=True,
        metavar="NAME==VERSION",
        help="Evaluate as if this distribution were installed (for images built in layers).",
    ),
    click.option("--format", type=click.Choice(["table", "json"]), default="table", show_default=True),
)


def _command(function: Callable[..., int]) -> click.Command:
    """A command with the shared options; its int is the exit code."""

    def run(**values: Any) -> None:
        names = ("python", "venv", "root", "engine", "sm", "assume", "format")
        options = Options(**{name: values.pop(name) for name in names})
        try:
            sys.exit(function(options, **values))
        except SmPatchError as error:
            console.show_error(error, options.json)
            sys.exit(error.exit_code)

    for option in reversed(_SHARED):
        run = option(run)
    run.__doc__ = function.__doc__
    parameters = getattr(function, "__click_params__", [])
    command = click.command(function.__name__.rstrip("_"))(run)
    command.params = [*reversed(parameters), *command.params]
    main.add_command(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sm-patch")
def main() -> None:
    """Open, and where they are wrong close, the architecture gates of installed inference engines for SM120/SM121.

    Exit codes: 0 done or clean; 1 something pending or drifted (status --check, apply --dry-run); 2 usage;
    3 no engine, or unsupported or refused; 4 conflict or local edits; 5 recovery needed; 6 I/O or permission.
    """


@_command
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
            _advise(workplace, default_gates(reports), reports)
    if options.json:
        console.show_json("status", {"target": console.target_data(target), "installations": documents})
    return 1 if check and pending else 0


def _advise(workplace: Workplace, default: Sequence[Any], reports: Sequence[Any]) -> None:
    from patcher.gate import State

    if default:
        console.say(f"next: 'sm-patch apply' would change {', '.join(dict.fromkeys(r.gate.id for r in default))}")
    for report in reports:
        if report.state is State.TOO_OPEN and report not in default:
            console.say(f"next: 'sm-patch apply --gate {report.gate.id}' closes it; see 'sm-patch explain {report.gate.id}'")
        elif report.state is State.REFUSED:
            console.say(f"see: 'sm-patch explain {report.gate.id}' for what would satisfy it ({report.link})")


def _gate_options(command: Callable[..., int]) -> Callable[..., int]:
    gate = click.option("--gate", "gates", multiple=True, callback=_split, metavar="GATE", help="Only this gate.")
    return gate(command)


@_command
@_gate_options
@click.option("--force", multiple=True, callback=_split, metavar="GATE", help="Go ahead although it is refused.")
@click.option("--dry-run", is_flag=True, help="Write nothing; exit 1 when something would change.")
@click.option("--diff", "show_diff", is_flag=True, help="Print the change as a diff.")
def apply(options: Options, gates: Sequence[str], force: Sequence[str], dry_run: bool, show_diff: bool) -> int:
    """Apply recipes: by default the well-founded ones whose requirements are met."""
    target = options.target()
    outcomes = []
    for workplace in _holding(options, [*gates, *force]):
        run = workplace.dry_run if dry_run else workplace.apply
        mine = [name for name in gates if name in workplace.gates]
        outcomes.append(run(target.sms, mine, [name for name in force if name in workplace.gates]))
    if options.json:
        data = [{**console.outcome_data(o), "installation": str(o.installation.root)} for o in outcomes]
        console.show_json("apply", {"target": console.target_data(target), "outcomes": data})
    else:
        console.say(f"target: {', '.join(f'SM{sm}' for sm in target.sms)} ({target.source})")
        for outcome in outcomes:
            if show_diff:
                console.show_diffs(outcome.written)
            console.show_applied(outcome)
    return 1 if dry_run and any(outcome.written for outcome in outcomes) else 0


def _holding(options: Options, names: Sequence[str]) -> list[Workplace]:
    """The workplaces that know the named gates (all, when none is named). Raises UnknownGate."""
    from patcher import catalogue

    workplaces = options.workplaces()
    known: dict[str, type[Gate]] = {}
    for workplace in workplaces:
        known |= workplace.gates
    catalogue.select(names, known)
    return [w for w in workplaces if not names or any(name in w.gates for name in names)]


@_command
@_gate_options
def revert(options: Options, gates: Sequence[str]) -> int:
    """Take changes back, byte for byte: all of them, or those of the named gates."""
    outcomes = [w.revert([g for g in gates if g in w.gates]) for w in _holding(options, gates)]
    if options.json:
        data = [{**console.outcome_data(o), "installation": str(o.installation.root)} for o in outcomes]
        console.show_json("revert", {"outcomes": data})
    else:
        for outcome in outcomes:
            console.show_reverted(outcome)
    return 0


@_command
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


@_command
@click.argument("gate")
def explain(options: Options, gate: str) -> int:
    """What a gate guards, the code as installed, for whom it opens, on what conditions and evidence."""
    target = options.target()
    for workplace in _holding(options, [gate]):
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


def run() -> None:
    """The console script: unexpected errors are reported as such, never as a bare traceback alone."""
    try:
        main(prog_name="sm-patch")
    except SmPatchError as error:
        console.show_error(error, False)
        sys.exit(error.exit_code)
