"""What reading one module cannot show: that no other module of the engine replaces what the answers rest on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.arch import SM120
from patcher.predicate import Module, Predicates
from patcher.source import SourceTree
from scripts import matrix, releases

_SET = re.compile(rb"^[ \t]*(?:\w+\.)*\w+\.(\w+)[ \t]*=(?!=)", re.MULTILINE)


def named(node: ast.expr, module: Module, predicates: Predicates) -> str:
    """The dotted name that an attribute chain stands for in a module, through its imports."""
    if isinstance(node, ast.Attribute):
        return f"{named(node.value, module, predicates)}.{node.attr}"
    if not isinstance(node, ast.Name):
        return ""
    for statement in ast.walk(module.source.tree):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                full = alias.name
                if isinstance(statement, ast.ImportFrom):
                    full = f"{module.absolute(statement)}.{full}"
                if (alias.asname or alias.name) == node.id:
                    return full
    return node.id


def set_from_outside(predicates: Predicates, relied_on: set[tuple[str, str]]) -> list[str]:
    """Every ``module.name = …`` in the engine's files that replaces one of the names."""
    wanted = {f"{module}.{name}" for module, name in relied_on}
    names = {name.encode() for _, name in relied_on}
    root = predicates.tree.root
    found = []
    for path in sorted((root / predicates.package).rglob("*.py")):
        data = path.read_bytes()
        if not any(match[1] in names for match in _SET.finditer(data)):
            continue
        module = predicates.module_at(path.relative_to(root).as_posix())
        assert module is not None
        for node in ast.walk(module.source.tree):
            stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if isinstance(node, ast.Attribute) and stored and named(node, module, predicates) in wanted:
                found.append(f"{path}:{node.lineno} {ast.unparse(node)}")
    return found


@pytest.mark.releases
@pytest.mark.parametrize("release", ["0.5.8.post1", "0.5.23"])
def test_no_module_replaces_a_name_that_answers_rest_on(release: str) -> None:
    assert release in releases.versions("sglang")
    inspector = matrix.inspector_of(release)
    for gate in catalogue.gates("sglang").values():
        inspector.report(gate, SM120)
    relied_on = inspector.predicates.relied_on
    assert ("sglang.srt.utils.common", "is_sm100_supported") in relied_on
    assert set_from_outside(inspector.predicates, relied_on) == []


def test_a_name_set_from_outside_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "u.py").write_text("X = False\n")
    (package / "v.py").write_text("import pkg.u as other\nself = other\nself.X = 1\nother.X = True\n")
    (package / "w.py").write_text("from pkg import u\nu.X = True\nu.Y = 1\n")
    found = set_from_outside(Predicates(SourceTree(tmp_path), "pkg"), {("pkg.u", "X")})
    assert [line.split(":")[-1] for line in found] == ["4 other.X", "2 u.X"]
