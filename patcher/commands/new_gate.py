"""``sm-patch new-gate``: the skeleton of a recipe from a line of an installed engine. Reads only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patcher import console
from patcher.cli import Options, command

if TYPE_CHECKING:
    from patcher.operations import Workplace


@command
@click.argument("place", metavar="FILE:LINE")
@click.option("--id", "name", default="", metavar="ID", help="The gate's id. Default: made from the definition's name.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write it to this file, which must not exist.")
def new_gate(options: Options, place: str, name: str, output: Path | None) -> int:
    """The skeleton of a recipe from FILE:LINE of an installed engine, with who gets through filled in."""
    from packaging.version import InvalidVersion, Version

    from patcher.errors import UsageError
    from patcher.skeleton import recipe_line, sketch

    file, colon, number = place.rpartition(":")
    if not colon or not number.isdigit() or int(number) < 1:
        raise UsageError(f"'{place}' does not read as FILE:LINE")
    workplace, path = _find(options.workplaces(), file)
    try:
        since = Version(workplace.inspector.version or "0").public
    except InvalidVersion:
        since = "0"
    made = sketch(workplace.inspector, path, int(number), name, f">={since}")
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as target:
                target.write(made.text)
        except FileExistsError as error:
            raise UsageError("the file exists already", where=str(output)) from error
    if options.json:
        data = {
            "path": made.path,
            "line": made.line,
            "condition": made.condition,
            "truth": {world: truth.value for world, truth in made.truths.items()},
            "site": recipe_line(made.site),
            "text": made.text,
        }
        console.show_json("new-gate", data)
        return 0
    if output is None:
        sys.stdout.write(made.text)
    console.say(f"{made.path}:{made.line}: {made.condition}")
    console.say(
        f"{'wrote ' + str(output) if output else 'above: a skeleton'}; see docs/writing-recipes.md for the rest"
    )
    return 0


def _find(workplaces: list[Workplace], file: str) -> tuple[Workplace, str]:
    """The installation that a file belongs to, and its path below the package. Raises UsageError."""
    from patcher.errors import UsageError

    for workplace in workplaces:
        folder = workplace.installation.package_folder
        package = workplace.installation.engine.package
        if Path(file).is_absolute():
            if folder.resolve() in Path(file).resolve().parents:
                return workplace, Path(file).resolve().relative_to(folder.resolve()).as_posix()
            continue
        for relative in (file.removeprefix(f"{package}/"), file):
            if (folder / relative).is_file():
                return workplace, Path(relative).as_posix()
    looked = ", ".join(str(w.installation.package_folder) for w in workplaces)
    raise UsageError(f"'{file}' is no file of an installed engine", hint=f"looked below {looked}")
