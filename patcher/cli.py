"""The command line's frame: shared options, error reporting, and the commands, each loaded when it is called."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.errors import Defect, IOFailure, NoEngine, SmPatchError

if TYPE_CHECKING:
    from patcher.environment import Environment
    from patcher.gate import Engine, Gate
    from patcher.hardware import Target
    from patcher.operations import Workplace

# Command → the module below patcher.commands that holds it, and its line in the help (so that --help loads none).
COMMANDS: dict[str, tuple[str, str]] = {
    "status": ("status", "Which gates exist here, and what each does for this GPU."),
    "apply": ("change", "Apply recipes: by default the well-founded ones whose requirements are met."),
    "revert": ("change", "Take changes back, byte for byte."),
    "diff": ("change", "What is on disk against the original."),
    "verify": ("verify", "Read everything on record again: files, backups, proofs."),
    "gc": ("gc", "Forget lost gates and remove backups that nothing needs."),
    "explain": ("explain", "What a gate guards, for whom, on what conditions and evidence."),
    "port": ("port", "Where the sites of unrecognised gates may have gone in a new release. Changes nothing."),
    "new-gate": ("new_gate", "The skeleton of a recipe from FILE:LINE of an installed engine."),
    "demo": ("demo", "The whole story on a real release, in a throw-away folder."),
    "where": ("where", "Where a predicate is defined, how to import it, whom it admits, who uses it."),
    "envs": ("envs", "Every engine installation that this machine has."),
    "probe": ("probe", "Call the engine's predicates for real, beside what its source says."),
    "doctor": ("doctor", "Whether this environment can run what the gates open."),
    "scan": ("scan", "Every architecture gate of an engine, catalogued or not."),
}


@dataclass
class Options:
    """The options that every command takes."""

    python: str | None = None
    venv: Path | None = None
    root: Path | None = None
    engine: str | None = None
    sm: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    pack: tuple[str, ...] = ()
    format: str = "table"

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

    def places(self) -> tuple[Environment, list[tuple[Engine, Path]]]:
        """The environment, and the engines in it by the folder that holds each. Raises NoEngine."""
        from patcher import catalogue, environment

        engines = [catalogue.engine_named(self.engine)] if self.engine else list(catalogue.engines().values())
        found = self.environment()
        try:
            return found, environment.require_places(found, engines, self.engine)
        except NoEngine as error:
            from patcher.discovery import advise

            raise advise(error, found, engines, called()) from error

    def workplaces(self) -> list[Workplace]:
        """The installations to work on, opened. Raises NoEngine."""
        from patcher.environment import installation_at
        from patcher.operations import Workplace

        environment, places = self.places()
        assumptions = self.assumptions()
        planned: dict[str, dict[str, bytes]] = {}
        return [Workplace(installation_at(environment, engine, root), assumptions, planned) for engine, root in places]

    def use_packs(self) -> None:
        """Opt in to the named packs, so that one that cannot be used is an error whatever the command."""
        from patcher import catalogue

        catalogue.opt_in(self.pack)
        for name in self.pack:
            catalogue.pack_modules(name)

    def assumptions(self) -> dict[str, str]:
        """``--assume``, read. Raises BadAssumption, also for a distribution that nothing asks about."""
        if not self.assume:
            return {}
        from patcher import catalogue
        from patcher.environment import parse_assumptions

        assumptions = parse_assumptions(self.assume)
        catalogue.require_asked_about(assumptions)
        return assumptions

    def holding(self, names: Sequence[str], *, in_force: bool = False) -> list[Workplace]:
        """The workplaces that know the named gates (all, when none is named). Raises UnknownGate.

        ``in_force``: gates on record count as known also where their recipes are not here.
        """
        from patcher import catalogue

        workplaces = self.workplaces()
        known: dict[str, type[Gate]] = {}
        for workplace in workplaces:
            known |= workplace.gates
        recorded = {name for w in workplaces if in_force for name in w.unknown}
        catalogue.select([name for name in names if name not in recorded], known)
        return [w for w in workplaces if not names or any(name in w.gates or name in w.unknown for name in names)]

    def target(self) -> Target:
        from patcher.hardware import choose_target

        return choose_target(self.sm)


def called() -> str:
    """The command as it was called, without the options that name a place."""
    import shlex

    context = click.get_current_context()
    words = [context.info_name or ""]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not click.core.ParameterSource.COMMANDLINE or parameter.name in ("python", "venv", "root"):
            continue
        value = context.params[parameter.name or ""]
        for each in value if isinstance(value, tuple) else (value,):
            flag = [] if isinstance(parameter, click.Argument) else [parameter.opts[0]]
            words += flag if each is True else [*flag, str(each)]
    return shlex.join(words)


def split(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """Several values, given several times or with commas. Given but empty is an error: it must not mean "all"."""
    parts = tuple(part for text in value for part in text.replace(",", " ").split())
    if value and not parts:
        raise click.BadParameter("is given, but names nothing")
    return parts


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
        callback=split,
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
    click.option(
        "--pack",
        multiple=True,
        callback=split,
        envvar="SM_PATCH_PACKS",
        metavar="NAME",
        help="Use the gates of this third-party pack as well.",
    ),
)


def formats(*more: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Further output formats of a command, beside table and json."""

    def add(function: Callable[..., int]) -> Callable[..., int]:
        function.formats = more  # type: ignore[attr-defined]
        return function

    return add


def _format_option(function: Callable[..., int]) -> Callable[..., Any]:
    choices = ["table", "json", *getattr(function, "formats", ())]
    return click.option("--format", type=click.Choice(choices), default="table", show_default=True)


@contextlib.contextmanager
def shown_errors(as_json: bool) -> Iterator[None]:
    """Show an error as people or programs read it, and exit with its code."""
    try:
        yield
        sys.stdout.flush()
    except SmPatchError as error:
        _tell(error, as_json)
        sys.exit(error.exit_code)
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise  # click's own way of ending
    except BrokenPipeError:
        # Whoever read the output has seen enough; what could not be written is not written at exit either.
        _stop_writing()
        sys.exit(0)
    except OSError as error:
        failure = IOFailure(error.strerror or str(error), where=str(error.filename or ""))
        _tell(failure, as_json)
        sys.exit(failure.exit_code)
    except Exception as error:
        if os.environ.get("SM_PATCH_TRACEBACK"):
            raise
        _tell(Defect.of(error), as_json)
        sys.exit(Defect.exit_code)
    except KeyboardInterrupt:
        console.say("interrupted: 'sm-patch status' says how things are now")
        sys.exit(128 + signal.SIGINT)


def _tell(error: SmPatchError, as_json: bool) -> None:
    """Show an error; where stdout takes nothing (a full disk), on stderr at least."""
    try:
        console.show_error(error, as_json)
        sys.stdout.flush()
    except OSError:
        _stop_writing()
        with contextlib.suppress(OSError):
            console.show_error(error, False)


def _stop_writing() -> None:
    """Let go of stdout, so that what it did not take is not tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command(function: Callable[..., int]) -> click.Command:
    """Makes a command of a function: the shared options go into its first argument, its int is the exit code."""

    @click.pass_context
    def run(context: click.Context, /, **values: Any) -> None:
        _prefer_flags(context, values)
        names = ("python", "venv", "root", "engine", "sm", "assume", "pack", "format")
        options = Options(**{name: values.pop(name) for name in names})
        with shown_errors(options.json):
            options.use_packs()
            code = function(options, **values)
        sys.exit(code)

    for option in (_format_option(function), *reversed(_SHARED)):
        run = option(run)
    run.__doc__ = function.__doc__
    made = click.command(function.__name__.rstrip("_").replace("_", "-"))(run)
    made.params = [*reversed(getattr(function, "__click_params__", [])), *made.params]
    return made


def _prefer_flags(context: click.Context, values: dict[str, Any]) -> None:
    """A place named by a flag wins over one named in the environment."""
    places = ("python", "venv", "root")
    flags = [n for n in places if context.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE]
    for name in places:
        if flags and name not in flags:
            values[name] = None


def gate_option(function: Callable[..., int]) -> Callable[..., int]:
    """``--gate``, several times or with commas."""
    option = click.option("--gate", "gates", multiple=True, callback=split, metavar="GATE", help="Only this gate.")
    return option(function)


class _Commands(click.Group):
    """The commands of COMMANDS, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"patcher.commands.{COMMANDS[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sm-patch")
def main() -> None:
    """Open, and where they are wrong close, the architecture gates of installed inference engines for SM120/SM121.

    Exit codes: 0 done or clean; 1 something pending or drifted (status --check, apply --dry-run); 2 usage;
    3 no engine, or unsupported or refused; 4 conflict or local edits; 5 recovery needed; 6 I/O or permission;
    70 a defect of sm-patch itself.
    """


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def run() -> None:
    """The console script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started it: nobody listens
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no error
    for ending in (signal.SIGTERM, signal.SIGHUP):  # a lost connection, a container being stopped: undo, then end
        signal.signal(ending, _end)
    gc.disable()  # a short run that builds large syntax trees and frees nothing that matters
    main(prog_name="sm-patch")
