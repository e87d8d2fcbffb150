"""``sm-patch doctor``."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, command, formats

if TYPE_CHECKING:
    from patcher.doctor import Check, Diagnosis
    from patcher.hardware import Target


@command
@formats("markdown")
@click.option("--paths", is_flag=True, help="Keep this machine's folders in the markdown.")
def doctor(options: Options, paths: bool) -> int:
    """Whether this environment can run what the gates open. Exits 1 when something is wrong. --format markdown gives
    one block for bug reports, without this machine's folders."""
    from patcher import catalogue
    from patcher.doctor import diagnose

    target = options.target()
    diagnoses = []
    for workplace in options.workplaces():
        engine = workplace.installation.engine.name
        data = catalogue.data(engine, "kernels")
        diagnoses.append(diagnose(workplace.installation, workplace.facts, target.sms, data, workplace.gates))
    if options.json:
        console.show_json(
            "doctor", {"target": console.target_data(target), "installations": [_data(d) for d in diagnoses]}
        )
    elif options.format == "markdown":
        for diagnosis in diagnoses:
            sys.stdout.write(markdown(diagnosis, target, paths))
    else:
        for diagnosis in diagnoses:
            _show(diagnosis, target)
    return 1 if any(diagnosis.problems for diagnosis in diagnoses) else 0


def _show(diagnosis: Diagnosis, target: Target) -> None:
    installation = diagnosis.installation
    console.say(f"{installation.engine.name} {installation.version}, {installation.how}, in {installation.root}")
    console.say(f"target: {', '.join(f'SM{sm}' for sm in target.sms)}, {target.source}")
    for check in diagnosis.checks:
        first = f"{check.verdict.value:8} "
        print(console.wrapped(f"{check.subject}: {check.found}", _INDENT, first))
        if so := _so(check):
            print(console.wrapped(so, _INDENT))
    count = len(diagnosis.problems)
    console.say("no problem found" if not count else f"{count} problem{'s' if count > 1 else ''} found")


_INDENT = " " * 9


def _so(check: Check) -> str:
    """What follows from it."""
    return check.hint or (f"decides {', '.join(check.gates)}" if check.gates else "")


def markdown(diagnosis: Diagnosis, target: Target, paths: bool) -> str:
    """One block to paste into a bug report."""
    from patcher import __version__
    from patcher.doctor import without_private_paths

    installation = diagnosis.installation
    versions = ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items() if version)
    lines = [
        f"### sm-patch doctor {__version__}",
        "",
        f"- {installation.engine.name} {installation.version}, {installation.how}, in `{installation.root}`",
        f"- beside it: {versions or 'none of the packages looked for'}",
        f"- Python {platform.python_version()} runs sm-patch, {platform.system()} {platform.machine()}",
        f"- target: {', '.join(f'SM{sm}' for sm in target.sms)}, {target.source}",
        *(f"- GPU: {gpu.name}, SM{gpu.sm}" for gpu in target.gpus),
        "",
        "| | what | found | so |",
        "|---|---|---|---|",
    ]
    for check in diagnosis.checks:
        cells = (check.verdict.value, f"`{check.subject}`", check.found, _so(check))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    text = "\n".join(lines) + "\n"
    return text if paths else without_private_paths(text, installation)


def _data(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "installation": console.installation_data(diagnosis.installation, diagnosis.versions),
        "checks": [
            {
                "verdict": check.verdict.value,
                "subject": check.subject,
                "found": check.found,
                "hint": check.hint or None,
                "gates": list(check.gates),
            }
            for check in diagnosis.checks
        ],
        "libraries": [
            {
                "library": reading.library.name,
                "path": reading.path,
                "files": reading.files,
                "code": {str(arch): count for arch, count in sorted(reading.contents.code.items())},
                "ptx": {str(arch): count for arch, count in sorted(reading.contents.ptx.items())},
                "error": reading.error.as_dict() if reading.error else None,
            }
            for reading in diagnosis.readings
        ],
    }
