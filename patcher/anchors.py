"""Anchors beyond the plain ones: statements that a guard goes before, found by what they test, read or mention."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from patcher.condition import Truth, reduce, truth
from patcher.predicate import UNKNOWN, Raises, Scope, World
from patcher.sites import View, mentioned, opposite
from patcher.source import Definition


@dataclass(frozen=True)
class Branch:
    """The ``if`` whose test mentions all of ``tests`` and whose body checks something by raising.

    Whom it lets through is whom its own first-level ``if …: raise`` on the GPU lets through.
    """

    tests: tuple[str, ...]

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        root = definition if definition is not None else view.source.tree
        return [
            node
            for node in ast.walk(root)
            if isinstance(node, ast.If)
            and set(self.tests) <= mentioned(node.test)
            and any(_refuses(inner) for inner in node.body)
        ]

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        assert isinstance(statement, ast.If)
        scope = view.scope(definition)
        checks = [reduce(n.test, scope, view.predicates, world) for n in statement.body if isinstance(n, ast.If)]
        refused = any(
            truth(check) is Truth.ALWAYS
            for check, node in zip(checks, (n for n in statement.body if isinstance(n, ast.If)), strict=True)
            if _refuses(node)
        )
        return opposite(Truth.ALWAYS) if refused else Truth.ALWAYS


def _refuses(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


@dataclass(frozen=True)
class Mentions:
    """The one statement of the definition's own body, or of a branch, that mentions all of ``names``.

    ``inside``: names that the test of the ``if`` around it mentions; without it the statement stands in the body
    itself. The code from there on goes wrong on the targets, so everyone is let through as it is.
    """

    names: tuple[str, ...]
    inside: tuple[str, ...] = ()

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        root = definition if definition is not None else view.source.tree
        if not self.inside:
            return self._of(root.body)
        found = []
        for node in ast.walk(root):
            if isinstance(node, ast.If) and set(self.inside) <= mentioned(node.test):
                found += self._of(node.body)
        return found

    def _of(self, body: list[ast.stmt]) -> list[ast.stmt]:
        simple = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign)
        return [node for node in body if isinstance(node, simple) and set(self.names) <= mentioned(node)]

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        return Truth.ALWAYS


@dataclass(frozen=True)
class Unless:
    """What ``anchor`` finds, in a definition that mentions none of ``names`` (one that does needs no guard)."""

    names: tuple[str, ...]
    anchor: Mentions

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        root = definition if definition is not None else view.source.tree
        return [] if set(self.names) & mentioned(root) else self.anchor.statements(view, definition)

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        return self.anchor.admits(statement, view, definition, world)


@dataclass(frozen=True)
class ReadsTable:
    """The first statement of the definition's own body that looks a GPU's major up in a module's table.

    ``table[major]`` lets everyone through, into a KeyError where the table has no row; ``table.get(major)``
    lets through whose row is there.
    """

    table: str

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        root = definition if definition is not None else view.source.tree
        found = [n for n in root.body if self.table in mentioned(n.test if isinstance(n, ast.If) else n)]
        return found[:1]

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        read = statement.test if isinstance(statement, ast.If) else statement
        if any(isinstance(n, ast.Subscript) and _is(n.value, self.table) for n in ast.walk(read)):
            return Truth.ALWAYS
        try:
            rows = view.predicates.value(ast.Name(self.table, ast.Load()), Scope(view.module), world)
        except Raises:
            return Truth.RAISES
        if rows is UNKNOWN or not isinstance(rows, dict) or world.sm is None:
            return Truth.NEVER
        return Truth.ALWAYS if world.sm.major in rows else Truth.NEVER


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
