"""``sm-patch probe``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.errors import SmPatchError
    from patcher.probe import Report, Row


@command
@click.option("--seconds", type=float, default=180.0, show_default=True, help="Stop the interpreter after this long.")
@click.option("--fill-in", is_flag=True, help="Put stand-ins in the place of missing packages (torch stays real).")
def probe(options: Options, seconds: float, fill_in: bool) -> int:
    """Call the engine's predicates in its own interpreter, beside what its source says. With --sm torch is made to
    report that GPU; without, the machine's own are asked."""
    from patcher import catalogue
    from patcher.arch import parse_sm
    from patcher.probe import ProbeDisagrees, ProbeFailed, default_interpreter, questions
    from patcher.probe import probe as ask
    from patcher.where import Finder

    environment, places = options.places()
    simulate = tuple(dict.fromkeys(parse_sm(text) for text in options.sm))
    documents: list[dict[str, Any]] = []
    failures: list[SmPatchError] = []
    for engine, root in places:
        finder = Finder(engine, root)
        symbols, data = catalogue.data(engine.name, "symbols"), catalogue.data(engine.name, "kernels")
        asked = questions(finder, getattr(symbols, "PREDICATES", ()))
        interpreter = environment.interpreter or default_interpreter()
        extra = () if environment.interpreter else (root.absolute(),)
        report = ask(
            finder,
            asked,
            interpreter=interpreter,
            paths=extra,
            simulate=simulate,
            stand_ins=getattr(data, "STAND_INS", ()),
            absent=getattr(data, "OTHER_VENDORS", ()),
            fill_in=fill_in,
            seconds=seconds,
        )
        documents.append({"engine": engine.name, "root": str(root), **_data(report)})
        if not options.json:
            if not environment.interpreter:
                console.say(f"--root names no interpreter: {interpreter} is used, with {root} first on its path")
            _show(report)
        if report.crash:
            failures.append(ProbeFailed(f"the probe did not come to its end at {report.crash}", where=str(interpreter)))
        if report.disagreeing or report.hardware_disagrees:
            what = "; ".join([*(_difference(row) for row in report.disagreeing[:3]), *report.hardware_disagrees])
            hint = "do not patch on this basis: please report it with the output of 'sm-patch probe --format json'"
            failures.append(ProbeDisagrees(f"{len(report.disagreeing)} differ: {what}", where=str(root), hint=hint))
    if options.json:
        errors = [failure.as_dict() for failure in failures]
        console.show_json("probe", {"installations": documents, "errors": errors})
        return failures[0].exit_code if failures else 0
    if failures:
        raise failures[0]
    return 0


def _difference(row: Row) -> str:
    return f"{row.predicate} on SM{row.sm} says {row.real!r}, its source {row.static!r}"


def _show(report: Report) -> None:
    out = sys.stdout.write
    out(f"interpreter  {report.interpreter.get('executable', '?')} (Python {report.interpreter.get('version', '?')})\n")
    torch = report.torch
    if torch.get("error"):
        out(f"torch        does not import: {_cause(torch['error'])}\n")
    elif torch.get("stand_in"):
        out("torch        not installed; a stand-in was used\n")
    elif torch:
        built = (
            f"CUDA {torch['cuda']}" if torch.get("cuda") else f"HIP {torch['hip']}" if torch.get("hip") else "no GPU"
        )
        out(f"torch        {torch['version']}, built for {built}\n")
    if report.simulated:
        out(f"simulated    {', '.join(f'SM{sm}' for sm in report.simulated)} (CUDA 12.9), asked for with --sm\n")
    if report.stand_ins:
        out(f"stand-ins    {', '.join(report.stand_ins)}\n")
    if not report.simulated and not report.gpus and not torch.get("error"):
        out("GPUs         torch sees none; --sm 120 simulates one\n")
    for gpu in report.gpus:
        major, minor = gpu["capability"]
        shared = gpu.get("shared_memory_per_block_optin_bytes")
        memory = f"{gpu['memory_bytes'] / 2**30:.1f} GiB"
        limit = f", {shared} B shared memory per block" if shared else ""
        peers = f", P2P with {', '.join(map(str, gpu['p2p']))}" if gpu["p2p"] else ""
        out(f"GPU {gpu['index']}        {gpu['name']}, capability {major}.{minor}, {memory}{limit}{peers}\n")
    nvml = report.nvml
    if nvml.get("error"):
        out(f"NVML         {_cause(nvml['error'])}\n")
    elif nvml:
        out(f"NVML         driver {nvml['driver']} (CUDA up to {nvml['cuda_driver']})\n")
        for gpu in nvml["gpus"]:
            major, minor = gpu["capability"]
            others = [f"GPU {n}: {'P2P' if v['p2p'] else 'no P2P'}, {v['path']}" for n, v in gpu["others"].items()]
            links = f"{gpu['nvlinks']} NVLinks" if gpu["nvlinks"] else "no NVLink"
            rest = "; ".join([links, *others])
            out(f"  GPU {gpu['index']}      {gpu['name']}, capability {major}.{minor}; {rest}\n")
    compiler = report.nvcc
    if compiler:
        place = f" at {compiler['path']}" if compiler.get("path") else ""
        out(f"nvcc         {compiler.get('version') or 'none'}{place}\n")
    _show_rows(report)
    for statement, error in report.failed_imports.items():
        out(f"not imported: {statement}: {_cause(error)}\n")


def _show_rows(report: Report) -> None:
    if not report.rows:
        return
    for row in report.rows:
        real = _cause(row.error) if row.error else repr(row.real)
        verdict = {True: "agrees", False: "DIFFERS", None: "unknown"}[row.agrees]
        on = f" on SM{row.sm}" if row.sm else ""
        both = (
            f"the engine and its source say {real}"
            if row.agrees
            else f"the engine says {real}, its source {row.static!r}"
        )
        print(console.wrapped(f"{row.predicate}{on}: {both}", " " * 8, f"{verdict:8}"))
    known = [row for row in report.rows if row.agrees is not None]
    console.say(f"{sum(bool(row.agrees) for row in known)} of {len(known)} agree")


def _cause(error: Mapping[str, Any]) -> str:
    where = f" ({error['where']})" if error.get("where") else ""
    return f"{error['type']}: {error['message']}{where}"


def _data(report: Report) -> dict[str, Any]:
    from patcher.predicate import UNKNOWN

    return {
        "interpreter": dict(report.interpreter),
        "torch": dict(report.torch),
        "gpus": list(report.gpus),
        "nvml": dict(report.nvml),
        "nvcc": dict(report.nvcc),
        "simulated": [str(sm) for sm in report.simulated],
        "stand_ins": list(report.stand_ins),
        "predicates": [
            {
                "predicate": row.predicate,
                "sm": str(row.sm) if row.sm else None,
                "real": row.real,
                "static": None if row.static is UNKNOWN else row.static,
                "error": dict(row.error) if row.error else None,
                "agrees": row.agrees,
            }
            for row in report.rows
        ],
        "failed_imports": {statement: dict(error) for statement, error in report.failed_imports.items()},
        "crash": report.crash or None,
    }
