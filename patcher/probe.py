"""What torch, NVML and the engine's own predicates really say, next to what their source says.

The engine runs in its own interpreter, in a process of its own, with a time-out; see ``inside``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patcher.arch import SM
from patcher.errors import SmPatchError
from patcher.predicate import UNKNOWN, Raises, Scope, World
from patcher.where import Finder

SIMULATED_CUDA = "12.9"


class ProbeFailed(SmPatchError):
    """The other interpreter did not come to an end."""

    id = "probe-failed"


class ProbeDisagrees(SmPatchError):
    """The engine says something else than its source as sm-patch reads it."""

    id = "probe-disagrees"


@dataclass(frozen=True)
class Question:
    """One predicate to be called: how it is imported, the expression, and what its source says in a world."""

    id: str
    statement: str
    expression: str


@dataclass
class Row:
    """One predicate on one SM: what the engine said, and what its source says."""

    predicate: str
    sm: SM | None
    real: Any = None
    static: Any = None
    error: Mapping[str, Any] | None = None

    @property
    def agrees(self) -> bool | None:
        """None when one of the two is not known."""
        if self.error is not None or self.static is UNKNOWN:
            return None
        return bool(_plain(self.real) == _plain(self.static))


@dataclass
class Report:
    """What a probe found. ``crash``: what was under way when the process died, and how it died."""

    interpreter: Mapping[str, Any] = field(default_factory=dict)
    torch: Mapping[str, Any] = field(default_factory=dict)
    gpus: Sequence[Mapping[str, Any]] = ()
    nvml: Mapping[str, Any] = field(default_factory=dict)
    nvcc: Mapping[str, Any] = field(default_factory=dict)
    simulated: tuple[SM, ...] = ()
    stand_ins: Sequence[str] = ()
    rows: list[Row] = field(default_factory=list)
    failed_imports: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    crash: str = ""

    @property
    def disagreeing(self) -> list[Row]:
        return [row for row in self.rows if row.agrees is False]

    @property
    def hardware_disagrees(self) -> list[str]:
        """Where torch and NVML name other GPUs (only told when both see as many)."""
        theirs = self.nvml.get("gpus", ())
        if len(theirs) != len(self.gpus):
            return []
        ours = sorted(tuple(gpu["capability"]) for gpu in self.gpus)
        return (
            [] if ours == sorted(tuple(g["capability"]) for g in theirs) else ["torch and NVML see other capabilities"]
        )


def questions(finder: Finder, names: Sequence[str]) -> list[Question]:
    """How the named predicates are reached here, by every way there is. Absent ones are left out."""
    found: list[Question] = []
    for name in names:
        for statement, expression in finder.reached(name):
            found.append(Question(f"{name} #{len(found)}", statement, expression))
    return found


def probe(
    finder: Finder,
    asked: Sequence[Question],
    *,
    interpreter: Path,
    paths: Sequence[Path] = (),
    simulate: Sequence[SM] = (),
    stand_ins: Sequence[str] = (),
    absent: Sequence[str] = (),
    fill_in: bool = False,
    seconds: float = 180,
) -> Report:
    """Ask the interpreter. In a simulation ``stand_ins`` are replaced, ``absent`` packages are left missing.

    ``fill_in``: packages that are missing are replaced although nothing is simulated.
    Raises ProbeFailed when the interpreter cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="sm-patch-probe-") as folder:
        out = Path(folder) / "out.jsonl"
        request = {
            "out": str(out),
            "package": finder.engine.package,
            "paths": [str(path) for path in paths],
            "simulate": [list(sm) for sm in simulate],
            "cuda": SIMULATED_CUDA,
            "stand_ins": list(stand_ins),
            "absent": list(absent),
            "fill_in": fill_in,
            "questions": [{"id": q.id, "import": q.statement, "expression": q.expression} for q in asked],
        }
        ended, said = _run(interpreter, request, folder, seconds)
        events = _events(out)
    report = _report(events, finder, asked, tuple(simulate))
    if not any(event["event"] == "done" for event in events):
        under_way = next((e["what"] for e in reversed(events) if e["event"] == "starting"), "the start")
        report.crash = f"{under_way}: {ended}" + (f" ({said})" if said else "")
    return report


def _run(interpreter: Path, request: Mapping[str, Any], folder: str, seconds: float) -> tuple[str, str]:
    """How the process ended, and the last line it said."""
    code = Path(__file__).with_name("inside.py").read_text("utf-8")
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    try:
        process = subprocess.Popen(
            [str(interpreter), "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise ProbeFailed(f"the interpreter does not start: {error.strerror}", where=str(interpreter)) from error
    try:
        _, said = process.communicate(json.dumps(request), timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"no end after {seconds:g} s, stopped", ""
    lines = [line for line in said.strip().splitlines() if line and not line.startswith(" ")]
    if process.returncode < 0:
        return f"the process died of {signal.Signals(-process.returncode).name}", lines[0] if lines else ""
    return f"the process ended with code {process.returncode}", lines[-1] if lines else ""


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process and what it started (it leads a session of its own)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.communicate()


def _events(out: Path) -> list[dict[str, Any]]:
    try:
        lines = out.read_text("utf-8").splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            break  # the process died while writing it
    return events


def _report(
    events: Sequence[Mapping[str, Any]], finder: Finder, asked: Sequence[Question], simulated: tuple[SM, ...]
) -> Report:
    report = Report(simulated=simulated)
    by_id = {question.id: question for question in asked}
    for event in events:
        facts = {key: value for key, value in event.items() if key != "event"}
        kind = event["event"]
        if kind in ("interpreter", "torch", "nvml", "nvcc"):
            setattr(report, kind, facts)
        elif kind == "gpus":
            report.gpus = facts["gpus"]
        elif kind == "import-failed":
            report.failed_imports[facts["statement"]] = facts["error"]
        elif kind == "stand-ins":
            report.stand_ins = facts["names"]
        elif kind == "value":
            question = by_id[facts["id"]]
            world = _world(report, facts["sm"])
            row = Row(_label(question), world.sm, facts.get("value"), error=facts.get("error"))
            row.static = _static(finder, question, world)
            report.rows.append(row)
    return report


def _label(question: Question) -> str:
    module = question.statement.split()[1]
    return f"{module}: {question.expression}"


def _world(report: Report, simulated: Sequence[int]) -> World:
    """The world that the engine saw: simulated, or as torch reported it (its first GPU)."""
    if simulated:
        return World("cuda", (simulated[0], simulated[1]), SIMULATED_CUDA)
    if not report.gpus:
        return World("cpu", None)
    major, minor = report.gpus[0]["capability"]
    if report.torch.get("hip"):
        return World("hip", (major, minor))
    return World("cuda", (major, minor), report.torch.get("cuda"))


def _static(finder: Finder, question: Question, world: World) -> Any:
    """What the source says: a plain value, "raises X", or UNKNOWN."""
    import ast

    module = finder.predicates.module(question.statement.split()[1])
    if module is None:
        return UNKNOWN
    try:
        value = finder.predicates.value(ast.parse(question.expression, mode="eval").body, Scope(module), world)
    except Raises as raised:
        return f"raises {raised.kind}"
    return value if isinstance(value, bool | int | float | str | tuple | list | type(None)) else UNKNOWN


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def default_interpreter() -> Path:
    return Path(sys.executable)
