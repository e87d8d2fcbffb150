"""Sites: one place of a gate, found by meaning, with its edit.

A site is found by what its condition means (it holds for SM100 and never for SM80, and it mentions or decides
certain names), never by its text. Finding anything but the declared number of places is Unrecognised.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol

from patcher.arch import SM
from patcher.bindings import bound_names
from patcher.condition import FALSE, TRUE, Formula, Truth, join, negate, reduce, truth
from patcher.errors import Unrecognised
from patcher.gate import Direction, Spelling
from patcher.predicate import (
    ALL_WORLDS,
    UNKNOWN,
    Module,
    NotHere,
    Predicates,
    Raises,
    Scope,
    World,
    cuda_world,
    foreign,
)
from patcher.source import Definition, Source, bodies

if TYPE_CHECKING:
    from patcher.gate import Engine

_SM100, _SM80 = SM(10, 0), SM(8, 0)
_WITNESS, _OUTSIDER = cuda_world(_SM100), cuda_world(_SM80)


@dataclass(frozen=True)
class Splice:
    """A replacement of the bytes ``start:end`` of a file."""

    start: int
    end: int
    text: bytes


def splice(data: bytes, splices: Sequence[Splice]) -> bytes:
    """``data`` with all splices made; overlapping ones are a recipe's fault."""
    from patcher.errors import RecipeError

    ordered = sorted(splices, key=lambda s: (s.start, s.end))
    for left, right in pairwise(ordered):
        if right.start < left.end:
            raise RecipeError("two edits of one gate overlap")
    for part in reversed(ordered):
        data = data[: part.start] + part.text + data[part.end :]
    return data


@dataclass
class View:
    """One file as a site sees it."""

    path: str
    source: Source
    module: Module
    predicates: Predicates

    def scope(self, definition: ast.AST | None) -> Scope:
        function = definition if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef) else None
        return Scope(self.module, function)


@dataclass(frozen=True)
class Place:
    """Where a site was found: its lines (from 1), its text, and for which worlds it lets through."""

    path: str
    line: int
    end_line: int
    text: str
    admits: Callable[[World], Truth]
    node: ast.AST
    definition: Definition | None


@dataclass(frozen=True)
class Target:
    """What an edit inserts: the SMs, the ways to write them, and the comment that marks inserted lines."""

    sms: frozenset[SM]
    spellings: Sequence[Spelling]
    comment: str


class Site:
    """Base of all sites: a version range, a file below the engine's package, a definition in it."""

    versions: str
    path: str
    within: str
    kind: ClassVar[str]

    def find(self, view: View) -> list[Place]:
        """The places that match. Raises Unrecognised when there is not exactly one."""
        raise NotImplementedError

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        """The splices that open or close the place for the target. Raises Unrecognised."""
        raise NotImplementedError

    def definition(self, view: View) -> Definition | None:
        """The definition the site lies in, None for the module itself. Raises Unrecognised."""
        if not self.within:
            return None
        found = view.source.defined(self.within)
        if len(found) != 1:
            problem = "does not exist" if not found else f"is defined {len(found)} times"
            raise Unrecognised(f"{self.within} {problem}", where=view.path, hint=_UNRECOGNISED_HINT)
        return found[0]

    def exactly_one(self, places: list[Place], view: View, what: str) -> list[Place]:
        if len(places) != 1:
            where = f"{view.path} in {self.within}" if self.within else view.path
            raise Unrecognised(f"{len(places)} places are {what}; expected 1", where=where, hint=_UNRECOGNISED_HINT)
        return places


_UNRECOGNISED_HINT = "this release is shaped differently from those the recipe knows; nothing is written"


# -- conditions ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConditionSite(Site):
    """A condition that tells the ``witness`` from the ``outsider``: it holds on SM100 and never on SM80.

    ``mentions``: names or strings that must all occur in it. ``decides``: exactly the names or attributes that
    the ``if`` body assigns. ``alias``: the module-level name that stands for the target where the condition
    reads module-level aliases. ``refuses``: the condition keeps out whom it holds for (``if not P: raise``), so
    it holds for the outsider and never for the witness. ``assuming``: a part of it that is held true when asking
    who is let through (``backend == "auto"``). ``provided``: what must hold as well for the targets to be let in,
    as source that reads names of the definition.
    """

    versions: str
    path: str
    within: str
    mentions: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    alias: str = ""
    refuses: bool = False
    provided: str = ""
    witness: SM = _SM100
    outsider: SM = _SM80
    assuming: str = ""
    kind: ClassVar[str] = "condition"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        root: ast.AST = definition if definition is not None else view.source.tree
        places = []
        for owner, condition in conditions(root):
            if self.mentions and not set(self.mentions) <= mentioned(condition):
                continue
            if self.decides and not (isinstance(owner, ast.If) and assigned(owner.body) == set(self.decides)):
                continue
            if self._gates(condition, view, definition):
                places.append(self._place(condition, view, definition))
        return self.exactly_one(places, view, self._what())

    def _what(self) -> str:
        inside, outside = (self.outsider, self.witness) if self.refuses else (self.witness, self.outsider)
        return f"a condition that holds for SM{inside} and not for SM{outside}"

    def _gates(self, condition: ast.expr, view: View, definition: Definition | None) -> bool:
        scope = view.scope(definition)
        inside, outside = (self.outsider, self.witness) if self.refuses else (self.witness, self.outsider)
        if truth(reduce(condition, scope, view.predicates, cuda_world(outside))) is not Truth.NEVER:
            return False
        return truth(reduce(condition, scope, view.predicates, cuda_world(inside))) in (Truth.ALWAYS, Truth.DEPENDS)

    def _place(self, condition: ast.expr, view: View, definition: Definition | None) -> Place:
        assumed = self._assumed(condition, view) if self.assuming else None

        def admits(world: World) -> Truth:
            scope = view.scope(definition)
            if assumed is not None:
                holds = truth(_reduce_with(condition, assumed, TRUE, scope, view.predicates, world))
            else:
                holds = truth(reduce(condition, scope, view.predicates, world))
            return opposite(holds) if self.refuses else holds

        end = condition.end_lineno or condition.lineno
        text = ast.unparse(condition)
        return Place(view.path, condition.lineno, end, text, admits, condition, definition)

    def _assumed(self, condition: ast.expr, view: View) -> ast.expr:
        wanted = ast.dump(ast.parse(self.assuming, mode="eval").body)
        found = [n for n in ast.walk(condition) if isinstance(n, ast.expr) and ast.dump(n) == wanted]
        if len(found) != 1:
            raise Unrecognised(f"'{self.assuming}' is not part of the condition", where=view.path)
        return found[0]

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        condition = place.node
        assert isinstance(condition, ast.expr)
        scope = view.scope(place.definition)
        holds = direction.admits is not self.refuses
        predicate = deciding_predicate(condition, scope, view.predicates, holds, target.sms)
        if self.alias and holds:
            inserted, splices = define_target_alias(predicate, self.alias, view, target)
        else:
            inserted, splices = spell_target(view, target, place=place)
        if self.provided and holds:
            inserted = f"{inserted} and {self.provided}"
        text = view.source.text(predicate)
        ordinal = occurrence(condition, predicate, view.source)
        kind = edits.WidenCondition if holds else edits.NarrowCondition
        rewritten = edits.rewrite_expression(view.source.text(condition), kind(text, ordinal, inserted))
        start, end = view.source.span(condition)
        return [*splices, Splice(start, end, rewritten.encode())]


def opposite(holds: Truth) -> Truth:
    """The truth of the negation."""
    return {Truth.ALWAYS: Truth.NEVER, Truth.NEVER: Truth.ALWAYS}.get(holds, holds)


@dataclass(frozen=True)
class EqualsSite(ConditionSite):
    """A condition in which ``x == equals`` leaves out ``also``: for the targets that value must do as well.

    The condition is the one that mentions ``mentions``; who is let through is asked for ``x == also`` alone.
    """

    equals: str = ""
    also: str = ""
    kind: ClassVar[str] = "equals"

    def _what(self) -> str:
        return f"a condition with one comparison to '{self.equals}'"

    def _gates(self, condition: ast.expr, view: View, definition: Definition | None) -> bool:
        return len(self._comparisons(condition)) == 1

    def _comparisons(self, condition: ast.expr) -> list[ast.Compare]:
        return [
            node
            for node in ast.walk(condition)
            if isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.Eq)
            and isinstance(node.comparators[-1], ast.Constant)
            and node.comparators[-1].value == self.equals
        ]

    def _place(self, condition: ast.expr, view: View, definition: Definition | None) -> Place:
        comparison = self._comparisons(condition)[0]

        def admits(world: World) -> Truth:
            scope = view.scope(definition)
            return truth(_reduce_with(condition, comparison, FALSE, scope, view.predicates, world))

        end = condition.end_lineno or condition.lineno
        return Place(view.path, condition.lineno, end, ast.unparse(condition), admits, condition, definition)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        condition = place.node
        assert isinstance(condition, ast.expr)
        if not direction.admits:
            raise Unrecognised("a comparison can only be widened", where=f"{place.path}:{place.line}")
        comparison = self._comparisons(condition)[0]
        inserted, splices = spell_target(view, target, place=place)
        also = f'{view.source.text(comparison.left)} == "{self.also}" and {inserted}'
        text = view.source.text(comparison)
        widen = edits.WidenCondition(text, occurrence(condition, comparison, view.source), also)
        rewritten = edits.rewrite_expression(view.source.text(condition), widen)
        start, end = view.source.span(condition)
        return [*splices, Splice(start, end, rewritten.encode())]


@lru_cache(maxsize=512)
def conditions(root: ast.AST) -> tuple[tuple[ast.AST, ast.expr], ...]:
    """Every expression below ``root`` whose truth decides something, with the node it belongs to."""
    return tuple(_conditions(root))


def _conditions(root: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    for node in ast.walk(root):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node, node.test
        elif isinstance(node, ast.Return | ast.Assign | ast.AnnAssign) and node.value is not None:
            value = node.value
            if isinstance(value, ast.BoolOp | ast.Compare | ast.UnaryOp | ast.Name | ast.Call | ast.Attribute):
                yield node, value


@lru_cache(maxsize=4096)
def mentioned(node: ast.AST) -> set[str]:
    """The names, attributes and strings that occur below a node."""
    return {said for part in ast.walk(node) if (said := word(part))}


def word(node: ast.AST) -> str:
    """The name, attribute or string that a node itself is; an empty string for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def assigned(body: list[ast.stmt]) -> set[str]:
    """The names and attributes that statements assign, at any depth."""
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def deciding_predicate(
    condition: ast.expr, scope: Scope, predicates: Predicates, holds: bool, sms: frozenset[SM]
) -> ast.expr:
    """The part of a condition, made of predicates only, that decides for these SMs.

    ``holds``: the one part that, held true, makes the condition hold for them (where several do, the one that does
    so whatever else is asked); else the one that, held false, makes it fail (the whole condition where no part does
    so alone). Raises Unrecognised when there is not exactly one.
    """
    worlds = [cuda_world(sm) for sm in sorted(sms)]
    held, wanted = (TRUE, (Truth.ALWAYS, Truth.DEPENDS)) if holds else (FALSE, (Truth.NEVER,))

    def decides(part: ast.expr, wanted: Sequence[Truth]) -> bool:
        outcomes = (truth(_reduce_with(condition, part, held, scope, predicates, world)) for world in worlds)
        return all(outcome in wanted for outcome in outcomes)

    deciding = [part for part in predicate_parts(condition, scope, predicates) if decides(part, wanted)]
    if len(deciding) > 1 and holds:
        deciding = [part for part in deciding if decides(part, (Truth.ALWAYS,))] or deciding
    if len(deciding) != 1 and not holds:
        return condition
    if len(deciding) != 1:
        what = f"{len(deciding)} parts of the condition decide for {', '.join(map(str, sorted(sms)))}; expected 1"
        raise Unrecognised(what, hint=_UNRECOGNISED_HINT)
    return deciding[0]


def _reduce_with(
    node: ast.expr, part: ast.expr, held: Formula, scope: Scope, predicates: Predicates, world: World
) -> Formula:
    """``reduce`` with the value of one part held."""
    if node is part:
        return held
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return negate(_reduce_with(node.operand, part, held, scope, predicates, world))
    if isinstance(node, ast.BoolOp):
        op = "or" if isinstance(node.op, ast.Or) else "and"
        return join(op, [_reduce_with(value, part, held, scope, predicates, world) for value in node.values])
    return reduce(node, scope, predicates, world)


def predicate_parts(node: ast.expr, scope: Scope, predicates: Predicates) -> list[ast.expr]:
    """The largest parts of a condition that are known in every CUDA world and differ between SMs."""
    outcomes = set()
    known = True
    for world in ALL_WORLDS:
        if world.kind == "cuda":
            formula = reduce(node, scope, predicates, world)
            known = known and formula.op in ("true", "false")
            outcomes.add(formula.op)
    if known:
        return [node] if len(outcomes) > 1 and not _is_conjunction(node) else _operands(node, scope, predicates)
    return _operands(node, scope, predicates)


def _is_conjunction(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def _operands(node: ast.expr, scope: Scope, predicates: Predicates) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp):
        return [part for value in node.values for part in predicate_parts(value, scope, predicates)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return predicate_parts(node.operand, scope, predicates)
    return []


def occurrence(condition: ast.expr, part: ast.expr, source: Source) -> int:
    """How many expressions of the same text stand before ``part`` in ``condition``, in source order."""
    text = source.text(part)
    start = source.span(part)[0]
    nodes = [n for n in ast.walk(condition) if isinstance(n, ast.expr) and hasattr(n, "lineno")]
    return sum(1 for n in nodes if source.span(n)[0] < start and source.text(n) == text)


# -- guards ----------------------------------------------------------------------------------------------------


class Anchor(Protocol):
    """Finds the statement that a guard goes before, and says whom it lets through as it stands."""

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]: ...

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth: ...


@dataclass(frozen=True)
class RefusesBySM:
    """An ``if`` of the definition's own body that raises on SM80 and not on SM100."""

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        scope = view.scope(definition)
        found: list[ast.stmt] = []
        for node in (definition or view.source.tree).body:
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
                outside = truth(reduce(node.test, scope, view.predicates, _OUTSIDER))
                inside = truth(reduce(node.test, scope, view.predicates, _WITNESS))
                if outside is Truth.ALWAYS and inside is Truth.NEVER:
                    found.append(node)
        return found

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        assert isinstance(statement, ast.If)
        refused = truth(reduce(statement.test, view.scope(definition), view.predicates, world))
        return {Truth.ALWAYS: Truth.NEVER, Truth.NEVER: Truth.ALWAYS}.get(refused, refused)


@dataclass(frozen=True)
class ReturnsFalse:
    """An ``if`` of the definition's own body that returns False on SM80 and not on SM90.

    Who is let through is what the whole definition, called without arguments, returns.
    """

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        scope = view.scope(definition)
        found: list[ast.stmt] = []
        for node in (definition or view.source.tree).body:
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                outside = truth(reduce(node.test, scope, view.predicates, _OUTSIDER))
                inside = truth(reduce(node.test, scope, view.predicates, cuda_world(SM(9, 0))))
                if outside is Truth.ALWAYS and inside is Truth.NEVER:
                    found.append(node)
        return found

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        assert definition is not None
        call = ast.Call(ast.Name(definition.name, ast.Load()), [], [])
        return truth(reduce(call, Scope(view.module), view.predicates, world))


@dataclass(frozen=True)
class Assigns:
    """The statement that assigns ``name``; the code from there on fails on ``fails_on``."""

    name: str
    fails_on: frozenset[SM]

    def statements(self, view: View, definition: Definition | None) -> list[ast.stmt]:
        root = definition or view.source.tree
        return [n for n in ast.walk(root) if isinstance(n, ast.Assign) and self.name in bound_names(n)]

    def admits(self, statement: ast.stmt, view: View, definition: Definition | None, world: World) -> Truth:
        return Truth.NEVER if world.sm in self.fails_on else Truth.ALWAYS


@dataclass(frozen=True)
class GuardSite(Site):
    """An ``if <target>:`` with ``body`` put before an anchor; the body always leaves, so others see nothing of it.

    ``body`` is source of the recipe's own, unindented; it ends in return, raise, continue or break. With
    ``closes`` the body keeps the targets out, else it lets them through. ``when``: source of what must hold
    besides, in the definition's own names; whom the guard lets through is asked for that case.
    """

    versions: str
    path: str
    within: str
    anchor: Anchor
    body: str
    closes: bool = False
    when: str = ""
    kind: ClassVar[str] = "guard"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        places = []
        for statement in self.anchor.statements(view, definition):
            guard = guard_before(statement, self.body, definition or view.source.tree)

            def admits(world: World, statement: ast.stmt = statement, guard: ast.If | None = guard) -> Truth:
                target = self.target_test(guard.test) if guard is not None else None
                if target is not None:
                    inside = truth(reduce(target, view.scope(definition), view.predicates, world))
                    if inside is Truth.ALWAYS:
                        return Truth.NEVER if self.closes else Truth.ALWAYS
                return self.anchor.admits(statement, view, definition, world)

            shown: ast.stmt = guard or statement
            end = statement.body[0].lineno if isinstance(statement, ast.If) else statement.end_lineno
            text = view.source.line(shown.lineno).decode("utf-8").strip()
            places.append(Place(view.path, shown.lineno, end or shown.lineno, text, admits, statement, definition))
        return self.exactly_one(places, view, "the statement to guard")

    def _with_condition(self, inserted: str) -> str:
        if not self.when:
            return inserted
        compound = isinstance(ast.parse(self.when, mode="eval").body, ast.BoolOp | ast.IfExp)
        return f"{inserted} and ({self.when})" if compound else f"{inserted} and {self.when}"

    def target_test(self, test: ast.expr) -> ast.expr | None:
        """The part of the guard's test that names the targets; None when the rest is not ``when``."""
        if not self.when:
            return test
        if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
            return None
        *parts, last = test.values
        if ast.dump(last) != ast.dump(ast.parse(self.when, mode="eval").body):
            return None
        return parts[0] if len(parts) == 1 else ast.copy_location(ast.BoolOp(ast.And(), parts), test)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        if direction.admits is self.closes:
            which = "close" if self.closes else "open"
            raise Unrecognised(f"this guard can only {which} its site", where=f"{place.path}:{place.line}")
        statement, source = place.node, view.source
        assert isinstance(statement, ast.stmt)
        inserted, splices = spell_target(view, target, place=place)
        first = statement.lineno
        while first > 1 and source.line(first - 1).lstrip().startswith(b"#"):
            first -= 1
        last = statement.end_lineno or statement.lineno
        start = source.offset(first, 0)
        end = source.line_starts[last] if last < source.line_count else len(source.data)
        if source.line(statement.lineno)[: statement.col_offset].strip():
            raise Unrecognised("the statement to guard shares its line", where=f"{place.path}:{place.line}")
        guard = guard_text(self._with_condition(inserted), self.body)
        step = indent_step(place.definition, source)
        text = source.data[start:end].decode("utf-8")
        comment = target.comment
        new = edits.insert_statement(text, guard, comment, step)
        return [*splices, Splice(start, end, new.encode())]


def guard_before(statement: ast.stmt, body: str, root: ast.AST) -> ast.If | None:
    """The ``if`` with exactly ``body`` that stands right before a statement, if it does."""
    for block in _blocks(root):
        if statement in block:
            place = block.index(statement)
            previous = block[place - 1] if place else None
            if previous is not None and is_guard(previous, body):
                assert isinstance(previous, ast.If)
                return previous
    return None


def is_guard(statement: ast.stmt, body: str) -> bool:
    """Whether a statement is an ``if`` with exactly ``body`` and nothing else."""
    return isinstance(statement, ast.If) and not statement.orelse and _alike(statement.body, ast.parse(body).body)


def _blocks(root: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(root):
        yield from bodies(node)


def _alike(left: list[ast.stmt], right: list[ast.stmt]) -> bool:
    return [ast.dump(node) for node in left] == [ast.dump(node) for node in right]


def guard_text(test: str, body: str) -> str:
    """``if test:`` with ``body`` below it."""
    lines = "\n".join(f"    {line}" if line else "" for line in body.strip().split("\n"))
    return f"if {test}:\n{lines}\n"


def indent_step(definition: Definition | None, source: Source) -> str:
    if definition is None:
        return "    "
    outer = source.line(definition.lineno)[: definition.col_offset]
    inner = source.line(definition.body[0].lineno)[: definition.body[0].col_offset]
    return inner[len(outer) :].decode("utf-8") or "    "


# -- writing the target ----------------------------------------------------------------------------------------


def spell_target(
    view: View, target: Target, guards: Sequence[ast.expr] = (), place: Place | None = None
) -> tuple[str, list[Splice]]:
    """How to write "the GPU is one of the targets" in this file, and the import it takes, if any.

    The first spelling whose names are bound here (or can be imported beside a sibling) and that is true for
    exactly the targets in every world. ``guards`` are evaluated before it: where one is false it is not reached.
    ``place``: where it is written, so that imports of the function around it count as well.
    """
    local = _imports_before(place) if place is not None else []
    imported = {name for node in local for name in bound_names(node)}
    if place is not None and place.definition and view.module.owner(place.definition):
        imported |= view.predicates.receivers(place.definition)
    for likeness, last in ((_ALIKE, False), (0, False), (0, True)):  # an import of a name like it is the better place
        for spelling in (s for s in target.spellings if s.last is last):
            missing = [name for name in spelling.names if name not in view.module.bindings and name not in imported]
            scope, splices = view.scope(place.definition if place else None), list[Splice]()
            if missing:
                taken = any(_binds(place.definition, name) for name in missing) if place and place.definition else False
                origin = _import_beside(missing, view, likeness, local) if not taken else None
                if origin is None:
                    continue
                home, splices = origin
                scope = Scope(home)
            expression = ast.parse(spelling.text, mode="eval").body
            if _admits_exactly(expression, scope, view, target.sms, guards):
                return spelling.text, splices
    wanted = ", ".join(map(str, sorted(target.sms)))
    raise Unrecognised(f"no way is known to write 'SM {wanted}' in this file", where=view.path)


def _imports_before(place: Place) -> list[ast.Import | ast.ImportFrom]:
    """The imports inside the definition that are surely made before the place is reached."""
    found: list[ast.Import | ast.ImportFrom] = []
    line = getattr(place.node, "lineno", 0)
    block = place.definition.body if place.definition else []
    while block:
        found += [node for node in block if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno < line]
        around = (inner for node in block if _spans(node, line) for inner in bodies(node))
        block = next((inner for inner in around if inner[0].lineno <= line and _spans(inner[-1], line, start=0)), [])
    return found


def _spans(node: ast.stmt, line: int, start: int | None = None) -> bool:
    first = node.lineno if start is None else start
    return first <= line <= (node.end_lineno or node.lineno)


def _binds(definition: Definition | None, name: str) -> bool:
    return definition is not None and any(
        name in bound_names(node) for node in ast.walk(definition) if isinstance(node, ast.stmt)
    )


def _admits_exactly(
    expression: ast.expr, scope: Scope, view: View, sms: frozenset[SM], guards: Sequence[ast.expr]
) -> bool:
    for world in ALL_WORLDS:
        if any(reduce(guard, Scope(view.module), view.predicates, world) == FALSE for guard in guards):
            continue
        try:
            value = view.predicates.value(expression, scope, world)
        except NotHere:
            continue  # the code does not run in this world
        except Raises:
            return False
        if value is UNKNOWN or bool(value) is not (world.sm in sms):
            return False
    return True


def _import_beside(
    names: Sequence[str], view: View, at_least: int, local: Sequence[ast.Import | ast.ImportFrom] = ()
) -> tuple[Module, list[Splice]] | None:
    """An import statement of this file (or a ``local`` one) whose module also exports the names, extended by them.

    Of all that would do, the one that already imports the name most like it.
    """
    from patcher import edits

    candidates = []
    for node in (*local, *view.source.tree.body):
        if isinstance(node, ast.ImportFrom):
            pairs = [(_shared_prefix(a.name, name), a.name) for a in node.names for name in names]
            likeness, sibling = max(pairs, default=(0, ""))
            if likeness >= at_least and sibling and sibling != "*":
                candidates.append((likeness, node, sibling))
    for _, node, sibling in sorted(candidates, key=lambda candidate: -candidate[0]):
        origin = view.predicates.module(view.module.absolute(node))
        if origin is None or not all(_defines(origin, name, view) for name in names):
            continue
        start, end = view.source.span(node)
        text = view.source.text(node)
        for name in reversed(names):
            text = edits.add_import(text, sibling, name)
        return origin, [Splice(start, end, text.encode())]
    return None


def _defines(origin: Module, name: str, view: View) -> bool:
    """Whether a module has a name of its own package to give, not one of a library that it imports."""
    try:
        return not foreign(view.predicates.exported(origin.name, name, _WITNESS))
    except Raises:
        return False


_ALIKE = 3


def _shared_prefix(left: str, right: str) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def define_target_alias(predicate: ast.expr, alias: str, view: View, target: Target) -> tuple[str, list[Splice]]:
    """A module-level ``alias`` for the target, cloned from the last alias that ``predicate`` reads."""
    from patcher import edits

    if alias in view.module.bindings:
        if _admits_exactly(ast.Name(alias, ast.Load()), Scope(view.module), view, target.sms, ()):
            return alias, []
        raise Unrecognised(f"{alias} is bound already, to something else", where=view.path)
    siblings = [
        binding.node
        for node in ast.walk(predicate)
        if isinstance(node, ast.Name)
        for binding in view.module.bindings.get(node.id, ())
        if isinstance(binding.node, ast.Assign) and not binding.guards
    ]
    if not siblings:
        raise Unrecognised("the condition reads no module-level alias", where=view.path)
    sibling = max(siblings, key=lambda node: node.lineno)
    value = sibling.value
    *guards, part = value.values if _is_conjunction(value) and isinstance(value, ast.BoolOp) else [value]
    inserted, splices = spell_target(view, target, guards)
    text = view.source.text(value)
    clone = edits.rewrite_expression(text, edits.SubstituteExpression(view.source.text(part), 0, inserted))
    start = view.source.offset(sibling.lineno, 0)
    last = sibling.end_lineno or sibling.lineno
    end = view.source.line_starts[last] if last < view.source.line_count else len(view.source.data)
    lines = view.source.data[start:end].decode("utf-8")
    new = edits.define_alias(lines, alias, clone, target.comment)
    return alias, [*splices, Splice(start, end, new.encode())]


def view_of(engine: Engine, path: str, predicates: Predicates) -> View | None:
    """The file ``path`` below the engine's package, or None. Raises Unparsable, IOFailure."""
    full = f"{engine.package}/{path}"
    source = predicates.tree.get(full)
    if source is None:
        return None
    module = predicates.module_at(full)
    assert module is not None
    return View(full, source, module, predicates)
