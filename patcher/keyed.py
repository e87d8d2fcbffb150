"""Keyed sites: a list, tuple, set or dict whose elements (or keys) are SMs themselves.

``[100, 103]``, ``supported_major_versions=[9, 10]``, ``{90: …, 100: …}``, ``{"9.0": …}``: the target is added by
its own key, so every other key has the entry that it had, and no condition is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from patcher.arch import SM
from patcher.bindings import bound_names
from patcher.condition import Truth
from patcher.errors import Unrecognised
from patcher.gate import Direction
from patcher.literals import Literal, constants
from patcher.predicate import World
from patcher.sites import Place, Site, Splice, Target, View
from patcher.source import Definition


class Unit(str, Enum):
    """How a literal writes an SM: ``120``, ``12`` (all minor versions) or ``"12.0"``."""

    CAPABILITY = "capability"
    MAJOR = "major"
    DOTTED = "dotted"

    def key(self, sm: SM) -> int | str:
        if self is Unit.DOTTED:
            return f"{sm.major}.{sm.minor}"
        return sm.major if self is Unit.MAJOR else sm.major * 10 + sm.minor


@dataclass(frozen=True)
class KeyedSite(Site):
    """A literal of SMs in ``within``: what ``name`` is assigned, or an argument or decorator is given.

    Exactly one of ``name``, ``keyword`` and ``decorator``. ``value``: for a dict, source of what the targets get.
    """

    versions: str
    path: str
    within: str
    unit: Unit
    name: str = ""
    keyword: str = ""
    decorator: str = ""
    value: str = ""
    kind: ClassVar[str] = "keyed"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        root: ast.AST = definition if definition is not None else view.source.tree
        found = [node for node in self._literals(root) if isinstance(node, Literal)]
        what = f"literals of SMs given to {self.name or self.keyword or self.decorator}"
        places = [self._place(node, view, definition) for node in found]
        for node in found:
            if len(constants(node)) != len(entries(node)):
                raise Unrecognised(f"{what} with parts that are no constants", where=f"{view.path}:{node.lineno}")
        return self.exactly_one(places, view, what)

    def _literals(self, root: ast.AST) -> Iterator[ast.AST]:
        if self.decorator:
            for node in getattr(root, "decorator_list", []):
                called = node.func if isinstance(node, ast.Call) else None
                if called is not None and ast.unparse(called).rpartition(".")[2] == self.decorator:
                    yield from node.args[:1]
            return
        for node in ast.walk(root):
            if self.keyword and isinstance(node, ast.keyword) and node.arg == self.keyword:
                yield node.value
            elif self.name and isinstance(node, ast.Assign | ast.AnnAssign) and bound_names(node) == [self.name]:
                yield node.value or node

    def _place(
        self, node: ast.List | ast.Tuple | ast.Set | ast.Dict, view: View, definition: Definition | None
    ) -> Place:
        keys = constants(node)

        def admits(world: World) -> Truth:
            return Truth.ALWAYS if world.sm and self.unit.key(world.sm) in keys else Truth.NEVER

        text = view.source.line(node.lineno).decode("utf-8").strip()
        return Place(view.path, node.lineno, node.end_lineno or node.lineno, text, admits, node, definition)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        node = place.node
        assert isinstance(node, Literal)
        if not direction.admits:
            raise Unrecognised("a list of SMs can only be extended", where=f"{place.path}:{place.line}")
        if not entries(node) or (isinstance(node, ast.Dict) and not self.value):
            raise Unrecognised("the literal cannot be extended", where=f"{place.path}:{place.line}")
        text = view.source.text(node)
        for key in dict.fromkeys(self.unit.key(sm) for sm in sorted(target.sms)):
            written = repr(key) if isinstance(key, int) else f'"{key}"'
            text = edits.extend_literal(text, f"{written}: {self.value}" if isinstance(node, ast.Dict) else written)
        start, end = view.source.span(node)
        return [Splice(start, end, text.encode())]


def entries(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> list[tuple[ast.expr, ast.expr | None]]:
    """The parts of a literal in order: elements, or keys with their values (``**x`` is a key of its own)."""
    if not isinstance(node, ast.Dict):
        return [(part, None) for part in node.elts]
    pairs = zip(node.keys, node.values, strict=True)
    return [(value, None) if key is None else (key, value) for key, value in pairs]
