"""Generated from the examples inside the recipes: each is applied, compared, proven, and applied again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.gate import Example, Gate
from patcher.plan import Inspector
from patcher.source import SourceTree
from tests.conftest import Met

_CASES = [
    pytest.param(gate, example, id=f"{gate.id}-{number}-{example.version}")
    for engine in catalogue.engines()
    for gate in catalogue.gates(engine).values()
    for number, example in enumerate(gate.examples)
]


def _inspect(gate: type[Gate], example: Example, root: Path, met: Met) -> Inspector:
    return Inspector(catalogue.engine_named(gate.engine), SourceTree(root), example.version, met)


@pytest.mark.parametrize(("gate", "example"), _CASES)
def test_example(gate: type[Gate], example: Example, folder_of: Callable[[Mapping[str, str]], Path], met: Met) -> None:
    inspector = _inspect(gate, example, folder_of(example.before), met)

    plan = inspector.plan({gate: example.direction})

    changed = {path: change.after.decode() for path, change in plan.changes.items()}
    assert changed == dict(example.after)
    for text in changed.values():
        ast.parse(text)
    again = inspector.replaced({path: change.after for path, change in plan.changes.items()})
    assert not again.plan({gate: example.direction}).changes


@pytest.mark.parametrize("gate", [g for e in catalogue.engines() for g in catalogue.gates(e).values()])
def test_every_recipe_has_examples_of_both_kinds(gate: type[Gate]) -> None:
    if gate.examples:
        assert any(not example.after for example in gate.examples), "no example in which nothing is to be done"
        assert any(example.after for example in gate.examples), "no example in which something is done"
    else:
        assert gate.level.value == "refused", "a recipe that edits needs examples"
