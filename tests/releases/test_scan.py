"""The scan of a whole release against a simpler, independent extraction of its gates."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patcher.arch import SM
from patcher.catalogue import engine_named, gates
from patcher.condition import Truth
from patcher.scan import Scanner, Sighting
from scripts import releases

pytestmark = pytest.mark.releases

RELEASE = "0.5.23"
LEAST_RECALL = 0.98

# Written without looking at the vocabulary: the predicates' names, and names that begin like one.
PREDICATE = re.compile(
    r"_?is_sm\d+\w*|_?is_blackwell\w*|_?is_hopper\w*|is_nvidia_hopper|is_ampere_with\w*"
    r"|get_device_capability|has_device_capability|get_device_sm|get_compute_capability|get_jit_cuda_arch"
)


def mentions(node: ast.AST, names: set[str]) -> bool:
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if name and (PREDICATE.fullmatch(name) or (isinstance(part, ast.Name) and name in names)):
            return True
    return False


def aliases(tree: ast.Module) -> set[str]:
    """Module-level names given the truth of a predicate."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.BoolOp | ast.Attribute | ast.Compare):
            if isinstance(node.value, ast.Call) and not mentions(node.value.func, set()):
                continue
            if mentions(node.value, set()):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def independently(root: Path) -> Iterator[tuple[str, int]]:
    """Path and line of every If, IfExp and Assert test that mentions a predicate."""
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        if not re.search(rb"is_sm\d|blackwell|hopper|capability|device_sm|cuda_arch|is_ampere", data):
            continue
        tree = ast.parse(data)
        names = aliases(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.If | ast.IfExp | ast.Assert) and mentions(node.test, names):
                yield path.relative_to(root).as_posix(), node.test.lineno


@pytest.fixture(scope="module")
def found() -> list[Sighting]:
    root = releases.unpacked("sglang", RELEASE)
    result = Scanner(engine_named("sglang"), root, RELEASE, gates("sglang").values()).scan()
    assert result.unread == []
    return result.sightings


def test_recall_against_an_independent_extraction(found: list[Sighting]) -> None:
    seen = {(s.path, s.line) for s in found}
    wanted = list(independently(releases.unpacked("sglang", RELEASE)))
    missed = [place for place in wanted if place not in seen]
    assert len(wanted) > 300
    assert len(missed) <= (1 - LEAST_RECALL) * len(wanted), missed


def test_known_gates_are_among_them_with_their_truth(found: list[Sighting]) -> None:
    (gate,) = [s for s in found if s.path.endswith("residual/add_norm.py") and "_is_sm90_supported or" in s.condition]
    assert gate.recipe == "allreduce-fusion"
    assert [gate.truth(sm) for sm in (SM(9, 0), SM(10, 0), SM(12, 0))] == [Truth.DEPENDS, Truth.DEPENDS, Truth.NEVER]


def test_every_gate_is_in_its_file(found: list[Sighting]) -> None:
    root = releases.unpacked("sglang", RELEASE)
    for path in {s.path for s in found}:
        lines = (root / path).read_text("utf-8").count("\n") + 1
        assert all(1 <= s.line <= s.end_line <= lines for s in found if s.path == path)


def test_the_command_finds_the_same_however_many_processes_share_it(found: list[Sighting]) -> None:
    root = releases.unpacked("sglang", RELEASE)
    command = [sys.executable, "-m", "patcher", "scan", "--root", str(root), "--format", "json"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    rows = shown["installations"][0]["gates"]
    keys = [(row["path"], row["line"], row["condition"], row["recipe"] or "") for row in rows]
    assert keys == [(s.path, s.line, s.condition, s.recipe) for s in found]
