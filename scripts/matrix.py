"""The matrix: every gate on every release for every target, computed on real wheels.

    python -m scripts.matrix                              all pinned SGLang releases, to scripts/matrix.json
    python -m scripts.matrix 0.5.8.post1 0.5.23 -o -      a subset, to stdout
    python -m scripts.matrix --gate allreduce-fusion      one gate
    python -m scripts.matrix --engine vllm                another engine, to scripts/matrix-vllm.json
    python -m scripts.matrix --update 0.5.23              only these rows and round trips of the committed matrix
    python -m scripts.matrix --update --gate moe-mxfp8    only this gate's rows, on every release

A row is one gate on one release for one SM: its state before, what applying it edits and proves, its state after,
and whether applying again changes nothing. A round trip is one release on disk: apply the default set and the
gate options, apply again, revert, and compare every byte, mode and owner. A matrix holds under the stated
assumption about the packages beside the engine, so that it shows the recipes and not one environment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from patcher import catalogue
from patcher.arch import SM, SM120, SM121
from patcher.environment import Surroundings, installation_at, of_root
from patcher.errors import SmPatchError
from patcher.gate import Gate, Level
from patcher.operations import Workplace
from patcher.plan import Inspector
from patcher.source import SourceTree, digest
from scripts import releases

OUTPUT = Path(__file__).with_name("matrix.json")
ASSUMED = {"flashinfer-python": "0.7.2"}
TARGETS = (SM120, SM121)
ENGINE = "sglang"
_NEVER_EDITED = {"flashinfer": ("data",)}  # thousands of kernel sources


def distribution_of(name: str) -> str:
    """The distribution under which an engine's releases are pinned."""
    return catalogue.engine_named(name).distributions[0]


def output_of(name: str) -> Path:
    """The committed matrix of an engine."""
    return OUTPUT if name == ENGINE else OUTPUT.with_name(f"matrix-{name}.json")


def inspector_of(release: str, name: str = ENGINE) -> Inspector:
    """An inspector of a pinned release under the matrix's assumption."""
    root = releases.unpacked(distribution_of(name), release)
    engine = catalogue.engine_named(name)
    installation = installation_at(of_root(root, [engine.package]), engine, root)
    return Inspector(engine, SourceTree(root), release, Surroundings(installation, ASSUMED))


def rows(
    release: str, gates: Iterable[type[Gate]], sms: Sequence[SM] = TARGETS, engine: str = ENGINE
) -> list[dict[str, Any]]:
    """One release's rows, in memory."""
    inspector = inspector_of(release, engine)
    return [_row(inspector, gate, sm) for gate in gates for sm in sms]


def _row(inspector: Inspector, gate: type[Gate], sm: SM) -> dict[str, Any]:
    before = inspector.report(gate, sm)
    row: dict[str, Any] = {
        "release": inspector.version,
        "gate": gate.id,
        "sm": str(sm),
        "before": before.state.value,
        "sites": f"{before.found}/{len(before.sites)}",
    }
    if before.direction is None or gate.level is Level.REFUSED:
        return row
    try:
        plan = inspector.plan({gate: before.direction})
    except SmPatchError as error:
        return {**row, "error": f"{error.id}: {error.what}"}
    after = inspector.replaced({path: change.after for path, change in plan.changes.items()})
    return {
        **row,
        "direction": before.direction.value,
        "edited": sum(step.edited for step in plan.steps),
        "proof": list(plan.steps[0].checks),
        "after": after.report(gate, sm, before.direction).state.value,
        "settled": not after.plan({gate: before.direction}).changes,
        "files": {path: digest(change.after)[:16] for path, change in plan.changes.items()},
    }


def round_trip(release: str, gates: Sequence[str] = (), sm: SM = SM120, name: str = ENGINE) -> dict[str, Any]:
    """Apply, apply again and revert on a copy of the release on disk; ``gates``: named ones, else the default set."""
    with tempfile.TemporaryDirectory(prefix="sm-patch-matrix-") as scratch:
        engine = catalogue.engine_named(name)
        original, root = Path(scratch) / "original", Path(scratch) / "root"
        for copy in (original, root):
            wheel = releases.unpacked(distribution_of(name), release)
            linked_copy(wheel / engine.package, copy / engine.package, without=_NEVER_EDITED.get(name, ()))
        installation = installation_at(of_root(root, [engine.package]), engine, root)
        installation = replace(installation, version=release)
        result: dict[str, Any] = {"release": release, "sm": str(sm)}
        try:
            first = Workplace(installation, ASSUMED).apply([sm], gates)
            second = Workplace(installation, ASSUMED).apply([sm], gates)
            changed = compare(original / name, root / name)
            Workplace(installation).revert()
        except SmPatchError as error:
            return {**result, "error": f"{error.id}: {error.what}"}
        return {
            **result,
            "applied": sorted(step.gate.id for step in first.steps),
            "written": sorted(change.path for change in first.written),
            "only_written_changed": sorted(f"{name}/{path}" for path in changed)
            == sorted(change.path for change in first.written),
            "second_changed": [change.path for change in second.written],
            "left_after_revert": compare(original / name, root / name),
        }


def linked_copy(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """Copy a folder with hard links, as uv installs wheels: whoever writes in place would harm the original."""
    shutil.copytree(
        source,
        target,
        copy_function=os.link,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", *without),
    )


def compare(left: Path, right: Path) -> list[str]:
    """Every path whose presence, bytes, mode or owner differs. Files that are one inode need no reading."""
    names = {p.relative_to(left) for p in left.rglob("*")} | {p.relative_to(right) for p in right.rglob("*")}
    found = []
    for name in sorted(n for n in names if "__pycache__" not in n.parts):
        a, b = left / name, right / name
        if not (a.exists() and b.exists()):
            found.append(str(name))
            continue
        x, y = a.stat(), b.stat()
        if a.is_dir() or x.st_ino == y.st_ino:
            continue
        if (x.st_mode, x.st_uid, x.st_gid) != (y.st_mode, y.st_uid, y.st_gid) or a.read_bytes() != b.read_bytes():
            found.append(str(name))
    return found


def matrix(
    chosen: Sequence[str], gate_ids: Sequence[str] = (), engine: str = ENGINE, trips: bool = True
) -> dict[str, Any]:
    """The matrix of the chosen releases of an engine as JSON-ready data, with or without round trips."""
    known = catalogue.gates(engine)
    gates = catalogue.select(gate_ids, known) if gate_ids else list(known.values())
    data: dict[str, Any] = {"schema_version": 1, "assumed": ASSUMED, "rows": [], "round_trips": []}
    for release in chosen:
        data["rows"] += rows(release, gates, engine=engine)
        if trips:
            data["round_trips"].append(round_trip(release, gate_ids, name=engine))
        print(release, file=sys.stderr, flush=True)
    return data


def updated(kept: dict[str, Any], new: dict[str, Any], engine: str) -> dict[str, Any]:
    """A matrix with the rows and round trips of another put in, in the order of releases and gates."""
    pinned, known = releases.versions(distribution_of(engine)), list(catalogue.gates(engine))
    rows = {(row["release"], row["gate"], row["sm"]): row for row in [*kept["rows"], *new["rows"]]}
    trips = {trip["release"]: trip for trip in [*kept["round_trips"], *new["round_trips"]]}
    keys = [(release, gate, str(sm)) for release in pinned for gate in known for sm in TARGETS]
    return {
        **kept,
        "rows": [rows[key] for key in keys if key in rows],
        "round_trips": [trips[release] for release in pinned if release in trips],
    }


def problems(data: dict[str, Any]) -> list[str]:
    """What must not be in a matrix: unrecognised sites, errors, gates not settled, bytes not given back."""
    found = []
    for row in data["rows"]:
        where = f"{row['release']} {row['gate']} SM{row['sm']}"
        done = "patched"
        if row["before"] == "unrecognised" or "error" in row:
            found.append(f"{where}: {row.get('error', row['before'])}")
        elif "after" in row and not (row["after"] == done and row["settled"] and row["proof"]):
            found.append(f"{where}: after {row['after']}, settled {row['settled']}")
    for trip in data["round_trips"]:
        if "error" in trip:
            found.append(f"{trip['release']}: {trip['error']}")
        elif trip["second_changed"] or trip["left_after_revert"] or not trip["only_written_changed"]:
            found.append(f"{trip['release']}: the round trip left something: {trip}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", help="default: all pinned releases")
    parser.add_argument("--gate", action="append", default=[], help="only this gate (also for the round trip)")
    parser.add_argument("--engine", default=ENGINE, help=f"default: {ENGINE}")
    parser.add_argument("--update", action="store_true", help="put the rows into the committed matrix; keep the others")
    parser.add_argument("-o", "--output", help="a file, or - for stdout; default: the engine's committed matrix")
    arguments = parser.parse_args()
    chosen = arguments.releases or releases.versions(distribution_of(arguments.engine))
    # A round trip of one gate is none of the default set, which the committed ones are of.
    data = matrix(chosen, arguments.gate, arguments.engine, trips=not (arguments.update and arguments.gate))
    if arguments.update:
        kept = json.loads(output_of(arguments.engine).read_text())
        data = updated(kept, json.loads(json.dumps(data)), arguments.engine)
    text = json.dumps(data, indent=None, separators=(",", ":")).replace("},{", "},\n{") + "\n"
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        Path(arguments.output or output_of(arguments.engine)).write_text(text)
    for problem in problems(data):
        print(f"problem: {problem}", file=sys.stderr)
    sys.exit(1 if problems(data) else 0)


if __name__ == "__main__":
    main()
