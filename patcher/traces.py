"""What is known of a place in source apart from its text: what it means and what stands around it.

A trace of a place in one release is compared with the places of another, to find where it went.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal as Choice

from patcher.condition import Truth, reduce, truth
from patcher.literals import Literal
from patcher.predicate import ALL_WORLDS, Predicates, Scope
from patcher.sites import Place, View, mentioned, word
from patcher.source import Definition, Source, bodies

Kind = Choice["condition", "literal", "statement", "definition"]

# Names that speak of the GPU: they are judged by what they are worth on each SM, not by how they are called.
_GPU = re.compile(
    r"(?i).*(?:sm_?\d{2}|sm1[012]x|blackwell|hopper|capability|device_sm|cuda_arch).*"
    r"|_*(?:is_)?cuda|torch|(?:get_|current_)?platform"
)


Mark = tuple[frozenset[str], frozenset[str], str]


@dataclass(frozen=True)
class Spot:
    """A place in a file that a site could be about, with what belongs to it.

    ``owner``: the statement or expression that a condition decides, or what a literal is given to. ``around``: the
    tests of the branches that it stands in. ``within``: the qualified name of the innermost definition, empty for the
    module.
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

    ``order``: where it stands among its definition's spots of that kind, from 0 to 1. ``said``: the words of the
    messages in what it guards. ``truths``: of a condition, by world; empty for anything else. ``text``: its code.
    ``before`` and ``behind``: the spots around it in its definition, in order, those that stand alone for what they
    name. ``declared``: what the recipe itself says of it.
    """

    path: str
    within: str
    kind: Kind
    shape: str
    names: frozenset[str]
    effects: frozenset[str]
    around: frozenset[str]
    context: frozenset[str]
    said: frozenset[str] = frozenset()
    order: float = 0.0
    truths: tuple[Truth, ...] = ()
    text: str = ""
    before: tuple[Mark, ...] = ()
    behind: tuple[Mark, ...] = ()
    declared: frozenset[str] = frozenset()

    @property
    def mark(self) -> Mark:
        """What tells it from its neighbours, however the GPU is spelt."""
        return self.names, self.around, self.shape

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
            elif kind == "literal":
                for decorator in statement.decorator_list:
                    for node, owner in _literals(decorator, decorator):
                        yield Spot(kind, node, owner, around, name, statement)
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
    if kind == "literal":
        yield from _literals(statement, statement)
        return
    for part in _own(statement):
        if isinstance(part, ast.IfExp):
            yield part.test, part


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What stands below a node, without the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield child
            yield from _own(child)


def _literals(node: ast.AST, owner: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
    """The literals below a node, each with the argument or call that it is given to, or the statement it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            continue
        given = child if isinstance(child, ast.keyword | ast.Call) else owner
        if isinstance(child, Literal):
            yield child, given
        yield from _literals(child, given)


def node_at(place: Place) -> ast.AST:
    """The node of the spot at which a site was found."""
    return place.node.test if isinstance(place.node, ast.If) else place.node


def kind_at(place: Place) -> Kind:
    """The kind of the spot at which a site was found."""
    node = node_at(place)
    if isinstance(node, Definition):
        return "definition"
    if isinstance(node, Literal):
        return "literal"
    return "condition" if isinstance(node, ast.expr) else "statement"


Fill = Callable[[ast.expr], ast.expr]
"""Puts in what a recipe says of values that only run time knows."""


def judged(spot: Spot, seen: Trace, view: View, known: Sequence[tuple[Spot, Trace]], fill: Fill | None = None) -> Trace:
    """A trace with what is dear to find out: its truths, its text, its neighbours among the file's ``known`` spots."""
    here = [(other, trace.mark) for other, trace in known if other.definition is spot.definition]
    counts = Counter(mark for _, mark in here)
    at = next(number for number, (other, _) in enumerate(here) if other is spot)
    before, behind = (
        tuple(mark for _, mark in part if counts[mark] == 1 and (mark[0] or mark[1]))
        for part in (here[:at], here[at + 1 :])
    )
    return replace(seen, truths=truths(spot, view, fill), text=ast.unparse(spot.node), before=before, behind=behind)


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
    return telling(names_in(definition, source))


def names_in(definition: Definition | None, source: Source) -> set[str]:
    """What a definition mentions, or the module where it is None."""
    return mentioned(definition) if definition is not None else _module_names(source.tree)


def _trace(path: str, spot: Spot, context: frozenset[str]) -> Trace:
    names = mentioned(spot.node) if spot.kind != "definition" else {a.arg for a in _parameters(spot.node)}
    around = set().union(*(mentioned(test) for test in spot.around))
    shape = type(spot.owner).__name__
    effects = _effects(spot)
    said = frozenset().union(*(words(text) for text in effects if " " in text))
    return Trace(path, spot.within, spot.kind, shape, telling(names), telling(effects), telling(around), context, said)


def decides_without(spot: Spot, name: str, view: View) -> bool:
    """Whether a condition treats GPUs differently also where nothing is known of what is called ``name``."""
    if not isinstance(spot.node, ast.expr):
        return False
    node = _Forget(name).visit(deepcopy(spot.node))
    assert isinstance(node, ast.expr)
    return len(set(condition_truths(node, view.scope(spot.definition), view.predicates))) > 1


class _Forget(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self.name = name

    def visit(self, node: ast.AST) -> ast.AST:
        if _leaf(node.func if isinstance(node, ast.Call) else node) == self.name:
            return ast.Name("__debug__", ast.Load())  # of which nothing is taken as known
        return self.generic_visit(node)


def truths(spot: Spot, view: View, fill: Fill | None = None) -> tuple[Truth, ...]:
    """The truth of a condition by world; nothing for other spots."""
    if spot.kind != "condition" or not isinstance(spot.node, ast.expr):
        return ()
    node = fill(spot.node) if fill is not None else spot.node
    return condition_truths(node, view.scope(spot.definition), view.predicates)


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

_PIECES = re.compile(r"[A-Za-z0-9]+")
_JOINTS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")
_PLAIN = frozenset(
    {"an", "and", "as", "at", "be", "by", "for", "from", "in", "is", "it", "its", "no", "not", "of", "on"}
)
_PLAIN |= frozenset({"on", "or", "so", "that", "the", "their", "to", "with"})


@cache
def words(name: str) -> frozenset[str]:
    """The words that a name or a line of text is made of, in small letters, those that only join others left out."""
    found = {part.lower() for piece in _PIECES.findall(name) for part in (piece, *_JOINTS.split(piece))}
    return frozenset(word for word in found - _PLAIN if len(word) > 1)


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
    if isinstance(owner, ast.Call):
        return mentioned(owner.func)
    return {owner.arg} if isinstance(owner, ast.keyword) and owner.arg else set()


# -- values that are read elsewhere ----------------------------------------------------------------------------------


def bound(spot: Spot) -> set[str]:
    """The names that an assignment gives a spot's value."""
    owner = spot.owner
    targets = owner.targets if isinstance(owner, ast.Assign) else [getattr(owner, "target", None)]
    return {leaf for target in targets if target is not None and (leaf := _leaf(target))}


def called(spot: Spot) -> set[str]:
    """The names under which a spot's value is read elsewhere: those it is bound to, and its function's own."""
    return bound(spot) | ({spot.within.rpartition(".")[2]} - {""})


def read_at(name: str, known: Sequence[tuple[Spot, Trace]], within: str) -> Trace | None:
    """What is known of the conditions of one definition that read a name, as one trace."""
    found = None
    for spot, seen in known:
        if spot.within != within or name not in mentioned(spot.node) or name in called(spot):
            continue
        beside = replace(seen, names=telling(_beside(spot.node, name)))
        found = beside if found is None else merged(found, beside)
    return found


def merged(own: Trace, other: Trace) -> Trace:
    """A trace together with what stands at another place, which then counts as its place."""
    return replace(
        own,
        path=other.path,
        within=other.within,
        names=own.names | other.names,
        effects=own.effects | other.effects,
        around=own.around | other.around,
        context=own.context | other.context,
        said=own.said | other.said,
    )


def _beside(node: ast.AST, name: str) -> set[str]:
    """What an expression mentions apart from a name and what that is called with."""
    found: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if _leaf(part.func if isinstance(part, ast.Call) else part) == name:
            continue
        found.add(word(part))
        waiting += ast.iter_child_nodes(part)
    return found - {""}


def _leaf(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


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
