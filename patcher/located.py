"""Conditions told apart by where they stand and what they lead to, where their own text is not enough.

``if not is_sm100_supported(): raise`` says nothing about what it guards; the ``if`` around it and its message do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from patcher.condition import Truth, reduce, truth
from patcher.errors import NothingToForce, Unrecognised
from patcher.gate import Direction
from patcher.predicate import World
from patcher.sites import (
    ConditionSite,
    Place,
    Splice,
    Target,
    View,
    assigned,
    conditions,
    deciding_predicate,
    mentioned,
)
from patcher.source import Definition


@dataclass(frozen=True)
class LocatedSite(ConditionSite):
    """A condition that also has to stand in the right place.

    ``under``: names or strings that the tests of the ``if`` statements around it mention. ``leads_to``: those
    that what it decides mentions (the branch, the message of an assert, the targets of an assignment).
    ``given``: names, attributes (``self.x``) and calls (``f()``) whose value is known at run time only, with an
    expression that says what it is; a condition that is decided by them is found and judged, but never edited.
    ``shown_only``: why another one is not either.
    """

    under: tuple[str, ...] = ()
    leads_to: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    shown_only: str = ""
    kind: ClassVar[str] = "located"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        places = [
            self._place(condition, view, definition)
            for owner, condition, around in _placed(definition if definition is not None else view.source.tree)
            if self._stands_here(owner, condition, around) and self._gates(self.filled(condition), view, definition)
        ]
        return self.exactly_one(places, view, self._what())

    def _stands_here(self, owner: ast.AST, condition: ast.expr, around: list[ast.expr]) -> bool:
        """Whether the place is right: asked first, for it costs nothing, where the truth may read other modules."""
        if not set(self.mentions) <= mentioned(condition):
            return False
        if self.decides and not (isinstance(owner, ast.If) and assigned(owner.body) == set(self.decides)):
            return False
        if not set(self.under) <= set().union(*(mentioned(test) for test in around)):
            return False
        return set(self.leads_to) <= set().union(*(mentioned(node) for node in _decided(owner, condition)))

    def _place(self, condition: ast.expr, view: View, definition: Definition | None) -> Place:
        place = super()._place(self.filled(condition), view, definition)

        def admits(world: World) -> Truth:
            admitted = place.admits(world)
            # One that refuses "depending on" what was asked for refuses those who ask for it.
            return Truth.NEVER if self.refuses and admitted is Truth.DEPENDS else admitted

        return replace(place, node=condition, text=ast.unparse(condition), admits=admits)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        why = self.shown_only
        if self.given and not self._decided_here(place, view, direction, target):
            names = ", ".join(name for name, _ in self.given)
            why = f"the condition reads what is set while it runs ({names})"
        if why:
            where = f"{place.path}:{place.line}"
            raise NothingToForce(why, where=where, hint="the gate is shown for what it says, and is never edited")
        return super().change(place, view, direction, target)

    def _decided_here(self, place: Place, view: View, direction: Direction, target: Target) -> bool:
        """Whether a part of the condition, as it stands there, decides for the target."""
        assert isinstance(place.node, ast.expr)
        holds = direction.admits is not self.refuses
        try:
            deciding_predicate(place.node, view.scope(place.definition), view.predicates, holds, target.sms)
        except Unrecognised:
            return False
        return True

    def filled(self, condition: ast.expr) -> ast.expr:
        """The condition with what is given replaced by what it holds."""
        if not self.given:
            return condition
        values = {name: ast.parse(text, mode="eval").body for name, text in self.given}
        filled = _Fill(values).visit(deepcopy(condition))
        assert isinstance(filled, ast.expr)
        return filled


class _Fill(ast.NodeTransformer):
    def __init__(self, values: dict[str, ast.expr]) -> None:
        self.values = values

    def visit(self, node: ast.AST) -> ast.AST:
        named = isinstance(node, ast.Name | ast.Attribute | ast.Call)
        filled = self.values.get(ast.unparse(node)) if named else None
        return filled or self.generic_visit(node)


@lru_cache(maxsize=256)
def _placed(root: ast.AST) -> tuple[tuple[ast.AST, ast.expr, list[ast.expr]], ...]:
    """Every condition below ``root`` with the node it belongs to and the tests of the ``if`` bodies it stands in."""
    return tuple(_walk(root))


def _walk(root: ast.AST) -> Iterator[tuple[ast.AST, ast.expr, list[ast.expr]]]:
    owners = {id(condition): owner for owner, condition in conditions(root)}
    waiting: list[tuple[ast.AST, list[ast.expr]]] = [(root, [])]
    while waiting:
        node, tests = waiting.pop()
        for field, value in ast.iter_fields(node):
            inner = [*tests, node.test] if isinstance(node, ast.If) and field == "body" else tests
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr) and id(child) in owners:
                    yield owners[id(child)], child, tests
                if isinstance(child, ast.AST):
                    waiting.append((child, inner))


def _decided(owner: ast.AST, condition: ast.expr) -> Iterator[ast.AST]:
    """What a condition decides: everything that its owner holds beside it, an ``else`` left out."""
    for field, value in ast.iter_fields(owner):
        if field == "orelse" and not isinstance(owner, ast.IfExp):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and child is not condition:
                yield child


@dataclass(frozen=True)
class AcceptsSite(LocatedSite):
    """A branch that checks a value against a list: who is let through is who skips it or has ``accepts`` in the list.

    The condition is the one that leads into the check (``refuses``); the list is every string that the asserts
    and assignments name on the way that the GPU takes.
    """

    accepts: str = ""
    kind: ClassVar[str] = "accepts"

    def _place(self, condition: ast.expr, view: View, definition: Definition | None) -> Place:
        place = super()._place(condition, view, definition)
        root = definition if definition is not None else view.source.tree
        body = next((n.body for n in ast.walk(root) if isinstance(n, ast.If) and n.test is condition), [])

        def admits(world: World) -> Truth:
            skips = place.admits(world)
            if skips is Truth.ALWAYS or self.accepts in self._listed(body, view, definition, world):
                return Truth.ALWAYS
            return Truth.NEVER

        return replace(place, admits=admits)

    def _listed(self, body: list[ast.stmt], view: View, definition: Definition | None, world: World) -> set[str]:
        found: set[str] = set()
        for node in body:
            if isinstance(node, ast.If):
                taken = truth(reduce(node.test, view.scope(definition), view.predicates, world))
                for branch, skipped in ((node.body, Truth.NEVER), (node.orelse, Truth.ALWAYS)):
                    if taken is not skipped:
                        found |= self._listed(branch, view, definition, world)
            elif isinstance(node, ast.Assert):
                found |= _strings(node.test)
            elif isinstance(node, ast.Assign):
                found |= _strings(node.value)
        return found


def _strings(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
