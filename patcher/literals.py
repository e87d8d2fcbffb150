"""Literal sites: a list, tuple, set or dict that leaves out what the target needs.

The element is added for the targets only (``*(["x"] if T else [])``), so the literal is what it was on every
other GPU, whoever reads it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import ClassVar

from patcher.condition import Truth, reduce, truth
from patcher.errors import Unrecognised
from patcher.gate import Direction
from patcher.predicate import World
from patcher.sites import Place, Site, Splice, Target, View, spell_target
from patcher.source import Definition

Literal = ast.List | ast.Tuple | ast.Set | ast.Dict


@dataclass(frozen=True)
class LiteralSite(Site):
    """A literal that holds all of ``holds`` (elements, or keys of a dict) and not yet ``element`` for the target.

    ``holds``: constants, or names with dots as they are written. ``element`` is source of the recipe's own;
    ``key: value`` for a dict.
    """

    versions: str
    path: str
    within: str
    holds: tuple[object, ...]
    element: str
    kind: ClassVar[str] = "literal"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        root: ast.AST = definition if definition is not None else view.source.tree
        places = [
            self._place(node, view, definition)
            for node in ast.walk(root)
            if isinstance(node, Literal) and set(self.holds) <= constants(node)
        ]
        return self.exactly_one(places, view, f"literals that hold {', '.join(map(repr, self.holds))}")

    def _place(self, node: Literal, view: View, definition: Definition | None) -> Place:
        wanted = added_element(self.element, node)

        def admits(world: World) -> Truth:
            outcome = Truth.NEVER
            for part, test in conditional_parts(node):
                if part != wanted:
                    continue
                inside = Truth.ALWAYS
                if test is not None:
                    inside = truth(reduce(test, view.scope(definition), view.predicates, world))
                if inside is Truth.ALWAYS:
                    return inside
                outcome = inside if inside is Truth.DEPENDS else outcome
            return outcome

        text = ast.unparse(node)
        return Place(view.path, node.lineno, node.end_lineno or node.lineno, text, admits, node, definition)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        node = place.node
        assert isinstance(node, Literal)
        if not direction.admits:
            raise Unrecognised("a literal can only be extended", where=f"{place.path}:{place.line}")
        inserted, splices = spell_target(view, target, place=place)
        if isinstance(node, ast.Dict):
            element = f"**({{{self.element}}} if {inserted} else {{}})"
        else:
            element = f"*([{self.element}] if {inserted} else [])"
        start, end = view.source.span(node)
        return [*splices, Splice(start, end, edits.extend_literal(view.source.text(node), element).encode())]


def constants(node: Literal) -> set[object]:
    """The constant elements (or keys) of a literal, and those that are names with dots, as text."""
    parts = node.keys if isinstance(node, ast.Dict) else node.elts
    found: set[object] = {part.value for part in parts if isinstance(part, ast.Constant)}
    return found | {ast.unparse(part) for part in parts if isinstance(part, ast.Attribute)}


def added_element(element: str, literal: Literal) -> str:
    """An element in the form in which parts are compared."""
    if isinstance(literal, ast.Dict):
        parsed = ast.parse(f"{{{element}}}", mode="eval").body
        assert isinstance(parsed, ast.Dict)
        return _pair(parsed, 0)
    return ast.dump(ast.parse(element, mode="eval").body)


def conditional_parts(node: Literal) -> list[tuple[str, ast.expr | None]]:
    """The parts of a literal in order; those in a ``*(… if test else [])`` one by one, with their test."""
    found: list[tuple[str, ast.expr | None]] = []
    if isinstance(node, ast.Dict):
        for number, key in enumerate(node.keys):
            value = node.values[number]
            inner = _conditional(value) if key is None else None
            if inner is not None and isinstance(inner[0], ast.Dict):
                found += [(_pair(inner[0], n), inner[1]) for n in range(len(inner[0].keys))]
            else:
                found.append((_pair(node, number), None))
        return found
    for part in node.elts:
        inner = _conditional(part.value) if isinstance(part, ast.Starred) else None
        if inner is not None and isinstance(inner[0], ast.List):
            found += [(ast.dump(element), inner[1]) for element in inner[0].elts]
        else:
            found.append((ast.dump(part), None))
    return found


def _conditional(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """What ``x if test else []`` gives, and its test."""
    if not isinstance(node, ast.IfExp) or not isinstance(node.orelse, ast.List | ast.Dict):
        return None
    empty = not (node.orelse.elts if isinstance(node.orelse, ast.List) else node.orelse.values)
    return (node.body, node.test) if empty else None


def _pair(node: ast.Dict, number: int) -> str:
    key = node.keys[number]
    return f"{ast.dump(key) if key else '**'}: {ast.dump(node.values[number])}"
