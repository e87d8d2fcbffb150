"""What is known of a place in source apart from its text: what it means and what stands around it.

A trace of a place in one release is compared with the places of another, to find where it went.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal as Choice

from patcher.condition import Truth, reduce, truth
from patcher.literals import Literal
from patcher.predicate import ALL_WORLDS, Predicates, Scope
from patcher.sites import Place, View, mentioned
from patcher.source import Definition, Source, bodies

Kind = Choice["condition", "literal", "statement", "definition"]

# Names that speak of the GPU: they are judged by what they are worth on each SM, not by how they are called.
_GPU = re.compile(
    r"(?i).*(?:sm_?\d{2}|sm1[012]x|blackwell|hopper|capability|device_sm|cuda_arch).*|_*(?:is_)?cuda|torch"
)


@dataclass(frozen=True)
class Spot:
    """A place in a file that a site could be about, with what belongs to it.

    ``owner``: the statement or expression that a condition decides. ``around``: the tests of the branches that it
    stands in. ``within``: the qualified name of the innermost definition, empty for the module.
    """

    kind: Kind
    node: ast.expr | ast.stmt
    owner: ast.AST
    around: tuple[ast.expr, ...]
    within: str
    definition: Definition | None


@dataclass(frozen=True)
class Trace:
    """What is known of one spot.

    ``order``: where it stands among its definition's spots of that kind, from 0 to 1. ``truths``: of a condition, by
    world; empty for anything else. ``text``: its code. ``declared``: what the recipe itself says of it.
    """

    path: str
    within: str
    kind: Kind
    shape: str
    names: frozenset[str]
    effects: frozenset[str]
    around: frozenset[str]
    context: frozenset[str]
    order: float = 0.0
    truths: tuple[Truth, ...] = ()
    text: str = ""
    declared: frozenset[str] = frozenset()

    @property
    def decides(self) -> bool:
        """Whether it is a condition that treats some GPUs differently from others."""
        return len(set(self.truths)) > 1


def spots(source: Source, kind: Kind) -> Iterator[Spot]:
    """Every spot of one kind in a file."""
    yield from _spots(source.tree.body, kind, (), "", None)


def _spots(
    body: list[ast.stmt], kind: Kind, around: tuple[ast.expr, ...], within: str, definition: Definition | None
) -> Iterator[Spot]:
    for statement in body:
        if isinstance(statement, Definition):
            name = f"{within}.{statement.name}" if within else statement.name
            if kind == "definition":
                yield Spot(kind, statement, statement, around, name, statement)
            yield from _spots(statement.body, kind, (), name, statement)
            continue
        if kind == "statement":
            yield Spot(kind, statement, statement, around, within, definition)
        else:
            for node, owner in _expressions(statement, kind):
                yield Spot(kind, node, owner, around, within, definition)
        for inner in bodies(statement):
            is_branch = isinstance(statement, ast.If) and inner is statement.body
            tests = (*around, statement.test) if isinstance(statement, ast.If) and is_branch else around
            yield from _spots(inner, kind, tests, within, definition)


def _expressions(statement: ast.stmt, kind: Kind) -> Iterator[tuple[ast.expr, ast.AST]]:
    """The conditions or literals of one statement, without those of the statements in it."""
    if kind == "condition":
        if isinstance(statement, ast.If | ast.While | ast.Assert):
            yield statement.test, statement
        elif isinstance(statement, ast.Return | ast.Assign | ast.AnnAssign) and isinstance(
            statement.value, ast.BoolOp | ast.Compare | ast.UnaryOp | ast.Name | ast.Call | ast.Attribute
        ):
            yield statement.value, statement
    pending: list[ast.AST] = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            continue
        if kind == "condition" and isinstance(node, ast.IfExp):
            yield node.test, node
        elif kind == "literal" and isinstance(node, Literal):
            yield node, statement
        pending += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]


def trace_at(place: Place, view: View) -> Trace | None:
    """What is known of the place at which a site was found."""
    node: ast.AST = place.node
    if isinstance(node, ast.If):
        node = node.test
    if isinstance(node, Definition):
        kind: Kind = "definition"
    elif isinstance(node, Literal):
        kind = "literal"
    elif isinstance(node, ast.expr):
        kind = "condition"
    else:
        kind = "statement"
    known = traces(view.path, view.source, kind)
    return next((judged(spot, seen, view) for spot, seen in known if spot.node is node), None)


def judged(spot: Spot, seen: Trace, view: View) -> Trace:
    """A trace with what is dear to find out: its truths and its text."""
    return replace(seen, truths=truths(spot, view), text=ast.unparse(spot.node))


def traces(path: str, source: Source, kind: Kind) -> list[tuple[Spot, Trace]]:
    """Every spot of one kind in a file, with what is known of it, its truths apart."""
    contexts: dict[Definition | None, frozenset[str]] = {}
    found = []
    for spot in spots(source, kind):
        if spot.definition not in contexts:
            contexts[spot.definition] = _context(spot.definition, source)
        found.append((spot, _trace(path, spot, contexts[spot.definition])))
    return _ordered(found)


def _ordered(found: list[tuple[Spot, Trace]]) -> list[tuple[Spot, Trace]]:
    counts = Counter(spot.definition for spot, _ in found)
    seen: Counter[Definition | None] = Counter()
    ordered = []
    for spot, known in sorted(found, key=lambda item: (item[0].node.lineno, item[0].node.col_offset)):
        ordered.append((spot, replace(known, order=seen[spot.definition] / counts[spot.definition])))
        seen[spot.definition] += 1
    return ordered


def _context(definition: Definition | None, source: Source) -> frozenset[str]:
    return telling(mentioned(definition) if definition is not None else _module_names(source.tree))


def _trace(path: str, spot: Spot, context: frozenset[str]) -> Trace:
    names = mentioned(spot.node) if spot.kind != "definition" else {a.arg for a in _parameters(spot.node)}
    around = set().union(*(mentioned(test) for test in spot.around))
    shape = type(spot.owner).__name__
    return Trace(path, spot.within, spot.kind, shape, telling(names), telling(_effects(spot)), telling(around), context)


def truths(spot: Spot, view: View) -> tuple[Truth, ...]:
    """The truth of a condition by world; nothing for other spots."""
    if spot.kind != "condition" or not isinstance(spot.node, ast.expr):
        return ()
    return condition_truths(spot.node, view.scope(spot.definition), view.predicates)


def condition_truths(node: ast.expr, scope: Scope, predicates: Predicates) -> tuple[Truth, ...]:
    """The truth of a condition in each of ALL_WORLDS."""
    return tuple(truth(reduce(node, scope, predicates, world)) for world in ALL_WORLDS)


def telling(names: set[str]) -> frozenset[str]:
    """Names without leading underscores, and without those that speak of the GPU; long strings are no names."""
    return frozenset(filter(None, map(_telling, names)))


@cache
def _telling(name: str) -> str:
    bare = name.lstrip("_")
    return bare if 1 < len(bare) <= _LONGEST and not _GPU.fullmatch(name) else ""


_LONGEST = 60


def _effects(spot: Spot) -> set[str]:
    """What a condition decides, or what a statement or literal is part of."""
    owner = spot.owner
    if isinstance(owner, ast.If | ast.While):
        return set().union(*(mentioned(statement) for statement in owner.body))
    if isinstance(owner, ast.IfExp):
        return mentioned(owner.body) | mentioned(owner.orelse)
    if isinstance(owner, ast.Assign):
        return set().union(*(mentioned(target) for target in owner.targets))
    if isinstance(owner, ast.Assert) and owner.msg is not None:
        return mentioned(owner.msg)
    if isinstance(owner, ast.AnnAssign):
        return mentioned(owner.target)
    return set()


def _parameters(node: ast.AST) -> list[ast.arg]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    arguments = node.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def _module_names(tree: ast.Module) -> set[str]:
    """The names that a module's own statements mention; those of its definitions count by their name only."""
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, Definition):
            found.add(statement.name)
        elif not isinstance(statement, ast.Import | ast.ImportFrom):
            found |= mentioned(statement)
    return found
