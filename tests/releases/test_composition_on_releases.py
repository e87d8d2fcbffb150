"""Gates that share files with others, on real files: in any order the same bytes, each taken back alone."""

from __future__ import annotations

import compileall
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.arch import SM120, SM121
from patcher.environment import installation_at, of_root
from patcher.gate import Direction, Gate, Level
from patcher.operations import Workplace
from patcher.plan import Inspector
from scripts import releases
from scripts.matrix import ASSUMED, compare, inspector_of, linked_copy

pytestmark = pytest.mark.releases


@cache
def due(release: str) -> Mapping[type[Gate], Direction]:
    """The gates that applying would change for one of the targets, and how; opt-in and experimental ones too."""
    found = {}
    for gate in catalogue.gates("sglang").values():
        for sm in (SM120, SM121):
            report = inspector(release).report(gate, sm)
            if report.direction is not None and gate.level is not Level.REFUSED:
                found[gate] = report.direction
    return found


def shared(release: str) -> list[str]:
    """Of these, the gates that edit a file which another one edits as well."""
    package = inspector(release).engine.package
    files = {gate.id: {f"{package}/{site.path}" for site in inspector(release).sites(gate)} for gate in due(release)}
    return [name for name, mine in files.items() if any(mine & other for key, other in files.items() if key != name)]


@cache
def inspector(release: str) -> Inspector:
    return inspector_of(release)


@pytest.mark.parametrize(("release", "seed"), [("0.5.9", 1), ("0.5.18", 2)])
def test_any_order_on_disk(release: str, seed: int, tmp_path: Path) -> None:
    original = releases.unpacked("sglang", release)
    root = tmp_path / "root"
    linked_copy(original / "sglang", root / "sglang")
    engine = catalogue.engine_named("sglang")
    installation = installation_at(of_root(root, [engine.package]), engine, root)
    chance = random.Random(seed)
    names = chance.sample(shared(release), 4)
    for name in chance.sample(names, len(names)):
        Workplace(installation, ASSUMED).apply([SM120, SM121], [name])
    one_by_one = contents(root, compare(original / "sglang", root / "sglang"))
    Workplace(installation).revert()
    assert compare(original / "sglang", root / "sglang") == []
    Workplace(installation, ASSUMED).apply([SM120, SM121], names)
    together = contents(root, compare(original / "sglang", root / "sglang"))
    assert one_by_one == together
    for path in together:
        assert compileall.compile_file(root / "sglang" / path, quiet=2, force=True)

    left = sorted(names)
    for name in chance.sample(names, len(names)):
        Workplace(installation, ASSUMED).revert([name])
        left.remove(name)
        plan = inspector(release).plan({gate: way for gate, way in due(release).items() if gate.id in left})
        assert contents(root, compare(original / "sglang", root / "sglang")) == {
            path.removeprefix("sglang/"): change.after for path, change in plan.changes.items()
        }
    assert compare(original / "sglang", root / "sglang") == []


def contents(root: Path, paths: list[str]) -> dict[str, bytes]:
    return {path: (root / "sglang" / path).read_bytes() for path in paths}
