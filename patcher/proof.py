"""The proof: an independent check of one gate's change, made before anything is written.

It reads the files before and after with ``ast`` and shares nothing with the edit. It checks that

1. compiles      what would be written compiles;
2. only-sites    the trees differ only by the declared kinds of change, inside the declared definitions: a
                 condition is what it was, in the same order, with one way to name the targets added to it;
3. others-same   for every world that is not a target, each changed condition has the same truth for every
                 assignment of its opaque atoms, each literal the same elements in the same order (a table by SM
                 the same entries for every other key), and each inserted statement is not reached; the worlds are
                 those of PROOF_WORLDS;
4. targets       the targets are let in (or kept out) at every site, and nothing else was taken from them;
5. names-bound   every added name is bound where it is used, and used;
6. settled       every site is found again and is as wanted (the plan then plans again, and finds nothing to do);
7. values        where values are fixed: the edited function, run with stand-ins for every case that the recipe
                 lists, stays within the limit on the targets and does exactly what it did everywhere else.

The store checks one more: the backup gives back the original bytes.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from patcher.arch import ALL_SMS, SM
from patcher.bindings import bound_names
from patcher.condition import FALSE, TRUE, Truth, equivalent, implies, reduce
from patcher.errors import ProofFailed, SmPatchError
from patcher.gate import Direction
from patcher.keyed import KeyedSite, entries
from patcher.literals import Literal, LiteralSite, added_element, conditional_parts, constants
from patcher.predicate import (
    ALL_WORLDS,
    PROOF_WORLDS,
    UNKNOWN,
    UNKNOWN_SMS,
    UNTOUCHED_WORLDS,
    NotHere,
    Raises,
    Scope,
    World,
    cuda_world,
)
from patcher.sites import ConditionSite, EqualsSite, GuardSite, Site, View
from patcher.source import Definition
from patcher.values import ValueSite, all_bound

CHECKS = ("compiles", "only-sites", "others-same", "targets", "names-bound", "settled")


@dataclass(frozen=True)
class Claim:
    """What a change says of itself: the sites it edited in one file, which way, and for which SMs.

    ``spellings``: source of every way in which it may name the targets, or some of them; empty: any that holds.
    """

    sites: Sequence[Site]
    direction: Direction
    sms: frozenset[SM]
    spellings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Changed:
    before: ast.expr
    after: ast.expr
    definition: str
    scope_before: Definition | None
    scope_after: Definition | None


@dataclass(frozen=True)
class _Inserted:
    node: ast.stmt
    definition: str
    scope: Definition | None


@dataclass(frozen=True)
class _Imported:
    node: ast.ImportFrom
    names: tuple[str, ...]


_Difference = _Changed | _Inserted | _Imported


def failed(check: str, why: str, where: str) -> ProofFailed:
    """The error of a check that does not hold."""
    hint = "nothing was written; please report this release and file"
    return ProofFailed(f"the proof failed at '{check}': {why}", where=where, hint=hint)


def prove(before: View, after: View, claim: Claim) -> tuple[str, ...]:
    """Check one file's change. Returns the names of the checks made; raises ProofFailed naming the one that failed."""
    prover = _Prover(before, after, claim)
    prover.compiles()
    differences = prover.differences()
    for difference in differences:
        prover.check(difference)
    prover.targets_reached()
    prover.additions_used(differences)
    values = prover.values_right()
    return (*CHECKS, "values") if values else CHECKS


class _Prover:
    def __init__(self, before: View, after: View, claim: Claim) -> None:
        self.before = before
        self.after = after
        self.claim = claim
        self.spellings = {ast.dump(ast.parse(text, mode="eval").body) for text in claim.spellings}
        self.used: set[str] = set()  # the names that what was added reads
        self.aliases: dict[str, int] = {}
        self.guarded: list[Site] = []
        self.targets = [cuda_world(sm) for sm in sorted(claim.sms)]

    def fail(self, check: str, why: str, line: int = 0) -> ProofFailed:
        return failed(check, why, f"{self.after.path}:{line}" if line else self.after.path)

    # 1
    def compiles(self) -> None:
        if self.before.source.data == self.after.source.data:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(self.after.source.data, self.after.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise self.fail("compiles", str(error)) from error

    # 2
    def differences(self) -> list[_Difference]:
        return list(self._body(self.before.source.tree.body, self.after.source.tree.body, "", None, None))

    def _outside(self, node: ast.AST, why: str) -> ProofFailed:
        return self.fail("only-sites", why, getattr(node, "lineno", 0))

    def _body(
        self,
        before: list[ast.stmt],
        after: list[ast.stmt],
        definition: str,
        scope_before: Definition | None,
        scope_after: Definition | None,
    ) -> Iterator[_Difference]:
        """Differences of two statement lists: the same statements in order, some changed, some inserted."""
        position = 0
        for index, node in enumerate(after):
            current = before[position] if position < len(before) else None
            behind = after[index + 1] if index + 1 < len(after) else None
            if current is not None and self._untouched(current, node):
                position += 1
            elif current is not None and behind is not None and self._untouched(current, behind):
                yield _Inserted(node, definition, scope_after)
            elif current is not None and type(current) is type(node):
                yield from self._statement(current, node, definition, scope_before, scope_after)
                position += 1
            else:
                yield _Inserted(node, definition, scope_after)
        if position != len(before):
            raise self._outside(before[position], "a statement is gone")

    def _untouched(self, before: ast.stmt, after: ast.stmt) -> bool:
        """Whether the bytes are the same, decorators included: then so is the meaning."""
        if self.before.source.text(before) != self.after.source.text(after):
            return False
        old, new = getattr(before, "decorator_list", []), getattr(after, "decorator_list", [])
        return [self.before.source.text(d) for d in old] == [self.after.source.text(d) for d in new]

    def _statement(
        self,
        before: ast.stmt,
        after: ast.stmt,
        definition: str,
        scope_before: Definition | None,
        scope_after: Definition | None,
    ) -> Iterator[_Difference]:
        if isinstance(before, ast.ImportFrom) and isinstance(after, ast.ImportFrom):
            yield self._import(before, after)
            return
        if isinstance(before, Definition) and isinstance(after, Definition):
            if before.name != after.name:
                raise self._outside(after, "a definition was renamed")
            definition = f"{definition}.{before.name}" if definition else before.name
            scope_before, scope_after = before, after
        for name in before._fields:
            old, new = getattr(before, name), getattr(after, name)
            if isinstance(old, list) and isinstance(new, list) and _is_body(old or new):
                yield from self._body(old, new, definition, scope_before, scope_after)
            elif isinstance(old, list) and isinstance(new, list) and _is_parts(old or new):
                if len(old) != len(new):
                    raise self._outside(after, "a handler or case was added or removed")
                for left, right in zip(old, new, strict=True):
                    yield from self._body(left.body, right.body, definition, scope_before, scope_after)
            elif isinstance(old, ast.expr) and isinstance(new, ast.expr):
                if self.before.source.text(old) != self.after.source.text(new):
                    yield _Changed(old, new, definition, scope_before, scope_after)
            elif name == "decorator_list" and len(old) == len(new):
                for left, right in zip(old, new, strict=True):
                    if not _equal(left, right):
                        yield _Changed(left, right, definition, scope_before, scope_after)
            elif not _equal(old, new):
                raise self._outside(after, f"its {name} changed")

    def _import(self, before: ast.ImportFrom, after: ast.ImportFrom) -> _Imported:
        old = [(a.name, a.asname) for a in before.names]
        new = [(a.name, a.asname) for a in after.names]
        added = [pair for pair in new if pair not in old]
        same_rest = [pair for pair in new if pair in old] == old
        if before.module != after.module or before.level != after.level or not same_rest:
            raise self._outside(after, "an import changed by more than added names")
        if not added or any(asname for _, asname in added):
            raise self._outside(after, "an import changed in an undeclared way")
        return _Imported(after, tuple(name for name, _ in added))

    # 3, 4, 5
    def check(self, difference: _Difference) -> None:
        if isinstance(difference, _Imported):
            self._check_import(difference)
        elif isinstance(difference, _Changed):
            self._check_condition(difference)
        elif isinstance(difference.node, ast.If):
            self._check_guard(difference, difference.node)
        elif isinstance(difference.node, ast.Assign) and not difference.definition:
            self._check_alias(difference.node)
        else:
            raise self._outside(difference.node, "an undeclared statement was inserted")

    def _check_import(self, difference: _Imported) -> None:
        origin = self.after.module.absolute(difference.node)
        for name in difference.names:
            if name in self.before.module.bindings:
                raise self.fail("names-bound", f"the imported {name} was bound before", difference.node.lineno)
            try:
                exported = self.after.predicates.exported(origin, name, self.targets[0])
            except Raises:
                exported = UNKNOWN
            if exported is UNKNOWN:
                raise self.fail("names-bound", f"{origin} does not define {name}", difference.node.lineno)

    def additions_used(self, differences: Sequence[_Difference]) -> None:
        """Nothing is imported or defined that the change does not need, and an alias stands before its readers."""
        for difference in differences:
            if isinstance(difference, _Imported):
                for name in difference.names:
                    if name not in self.used:
                        raise self.fail("only-sites", f"{name} is imported and not needed", difference.node.lineno)
        if not self.aliases:
            return
        reads = [n for n in ast.walk(self.after.source.tree) if isinstance(n, ast.Name) and n.id in self.aliases]
        for name, line in self.aliases.items():
            if name not in self.used:
                raise self.fail("only-sites", f"{name} is defined and not needed", line)
            if any(n.id == name and isinstance(n.ctx, ast.Load) and n.lineno < line for n in reads):
                raise self.fail("names-bound", f"{name} is read before it is bound", line)

    def _check_condition(self, difference: _Changed) -> None:
        declared = {id(node): site for site in self._declared(difference) for node in self._nodes(site)}
        if not any(id(node) in declared for node in ast.walk(difference.after)):
            where = difference.definition or "the module"
            raise self._outside(difference.after, f"what changed in {where} is not a declared site")
        for old, new, site in self._pairs(difference.before, difference.after, declared):
            if isinstance(site, LiteralSite):
                self._check_literal(old, new, site, difference)
            elif isinstance(site, KeyedSite):
                self._check_keyed(old, new, site)
            else:
                assert isinstance(site, ConditionSite)
                self._check_truth(old, new, site, difference)
        self._names_bound(difference.after, difference.scope_after, difference.after.lineno)

    def _declared(self, difference: _Changed) -> list[Site]:
        kinds = (ConditionSite, LiteralSite, KeyedSite)
        return [s for s in self.claim.sites if isinstance(s, kinds) and s.within == difference.definition]

    def _nodes(self, site: Site) -> list[ast.AST]:
        try:
            return [place.node for place in site.find(self.after)]
        except SmPatchError:
            return []

    def _pairs(
        self, old: ast.AST, new: ast.AST, declared: dict[int, Site]
    ) -> Iterator[tuple[ast.expr, ast.expr, Site]]:
        """The declared parts of a changed expression, with what stood there; all around them must be as it was."""
        site = declared.get(id(new))
        if site is not None:
            assert isinstance(old, ast.expr) and isinstance(new, ast.expr)
            yield old, new, site
            return
        if type(old) is not type(new):
            raise self._outside(new, "an expression changed beside the declared site")
        for name in new._fields:
            left, right = getattr(old, name), getattr(new, name)
            lefts, rights = (x if isinstance(x, list) else [x] for x in (left, right))
            if len(lefts) != len(rights):
                raise self._outside(new, "an expression changed beside the declared site")
            for a, b in zip(lefts, rights, strict=True):
                if isinstance(a, ast.AST) and isinstance(b, ast.AST):
                    yield from self._pairs(a, b, declared)
                elif a != b:
                    raise self._outside(new, "an expression changed beside the declared site")

    def _check_truth(self, before: ast.expr, after: ast.expr, site: ConditionSite, difference: _Changed) -> None:
        scope_before = self.before.scope(difference.scope_before)
        scope_after = self.after.scope(difference.scope_after)
        holds = self.claim.direction.admits is not site.refuses
        for world in PROOF_WORLDS:
            old = reduce(before, scope_before, self.before.predicates, world)
            new = reduce(after, scope_after, self.after.predicates, world)
            if self._spared(world):
                if not equivalent(old, new):
                    raise self.fail("others-same", f"the condition changed for {world}", after.lineno)
            elif holds:
                if not (old == FALSE or new == TRUE or implies(old, new)):
                    raise self.fail("targets", f"the condition takes something from {world}", after.lineno)
            elif not (new == FALSE or old == TRUE or implies(new, old)):
                raise self.fail("targets", f"the condition lets {world} in", after.lineno)

        operator = ast.Or if holds else ast.And
        added = list(self._added(before, after))
        if len(added) != 1 or not isinstance(added[0][0], operator):
            raise self._outside(after, "the condition is not what it was with the targets added")
        self._only_targets(self._target_of(added[0][1], site, holds), scope_after, after.lineno)

    def _spared(self, world: World) -> bool:
        return world.sm not in self.claim.sms and not self._either_way(world)

    def _either_way(self, world: World) -> bool:
        """An SM that no product has, of a family whose known SMs are all targets, may count as one of them or not."""
        family = {sm for sm in ALL_SMS if world.sm is not None and sm.major == world.sm.major}
        return world.sm in UNKNOWN_SMS and bool(family) and family <= self.claim.sms

    def _added(self, old: ast.AST, new: ast.AST) -> Iterator[tuple[ast.boolop, ast.expr]]:
        """The operands that were put behind a part of an expression; anything else must be the same, in its place."""
        if _equal(old, new):
            return
        if isinstance(new, ast.BoolOp):
            chain = isinstance(old, ast.BoolOp) and type(old.op) is type(new.op)
            rest = new.values[: len(old.values)] if chain and isinstance(old, ast.BoolOp) else new.values[:1]
            kept = old.values if chain and isinstance(old, ast.BoolOp) else [old]
            if len(new.values) == len(rest) + 1 and _equal(rest, kept):
                yield new.op, new.values[-1]
                return
        if type(old) is not type(new):
            raise self._outside(new, "the condition is not what it was with the targets added")
        for name in new._fields:
            left, right = getattr(old, name), getattr(new, name)
            lefts, rights = (x if isinstance(x, list) else [x] for x in (left, right))
            if len(lefts) != len(rights):
                raise self._outside(new, "the condition is not what it was with the targets added")
            for a, b in zip(lefts, rights, strict=True):
                if isinstance(a, ast.AST) and isinstance(b, ast.AST):
                    yield from self._added(a, b)
                elif a != b:
                    raise self._outside(new, "the condition is not what it was with the targets added")

    def _target_of(self, operand: ast.expr, site: ConditionSite, holds: bool) -> ast.expr:
        """The part of an added operand that names the targets."""
        if not holds:
            if not isinstance(operand, ast.UnaryOp) or not isinstance(operand.op, ast.Not):
                raise self._outside(operand, "what was added does not keep the targets out")
            return operand.operand
        if isinstance(site, EqualsSite):
            parts = operand.values if isinstance(operand, ast.BoolOp) and isinstance(operand.op, ast.And) else []
            if not parts or not self._compares(parts[0], site):
                raise self._outside(operand, "what was added is not the declared comparison")
            return _conjunction(parts[1:], operand)
        if site.provided:
            parts = operand.values if isinstance(operand, ast.BoolOp) and isinstance(operand.op, ast.And) else []
            if len(parts) < 2 or not _equal(parts[-1], ast.parse(site.provided, mode="eval").body):
                raise self._outside(operand, "what was added does not ask for what it must")
            return _conjunction(parts[:-1], operand)
        return operand

    def _compares(self, node: ast.expr, site: EqualsSite) -> bool:
        return (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and isinstance(node.ops[0], ast.Eq)
            and isinstance(node.left, ast.Name | ast.Attribute)
            and isinstance(node.comparators[0], ast.Constant)
            and node.comparators[0].value == site.also
        )

    def _check_literal(self, before: ast.expr, after: ast.expr, site: LiteralSite, difference: _Changed) -> None:
        if not isinstance(before, Literal) or type(before) is not type(after):
            raise self._outside(after, "a literal became something else")
        assert isinstance(after, Literal)
        old, new = conditional_parts(before), conditional_parts(after)
        parts = [(part, ast.dump(test) if test else None) for part, test in new]
        if parts[: len(old)] != [(part, ast.dump(test) if test else None) for part, test in old]:
            raise self.fail("others-same", "an element of the literal changed, moved or is gone", after.lineno)
        if len(new) != len(old) + 1:
            raise self.fail("others-same", "not exactly one element was added to the literal", after.lineno)
        for part, test in new[len(old) :]:
            if part != added_element(site.element, after) or test is None:
                raise self.fail("others-same", "an undeclared element was added to the literal", after.lineno)
            self._only_targets(test, self.after.scope(difference.scope_after), after.lineno)

    def _check_keyed(self, before: ast.expr, after: ast.expr, site: KeyedSite) -> None:
        """What was there stands in its order; only the targets' keys are new, each once, with the declared value."""
        if not isinstance(before, Literal) or type(before) is not type(after):
            raise self._outside(after, "a literal became something else")
        assert isinstance(after, Literal)
        old, new = entries(before), entries(after)
        if [(ast.dump(k), v and ast.dump(v)) for k, v in new[: len(old)]] != [
            (ast.dump(k), v and ast.dump(v)) for k, v in old
        ]:
            raise self.fail("others-same", "an entry of the literal changed, moved or is gone", after.lineno)
        mine = {site.unit.key(sm) for sm in self.claim.sms}
        others = {site.unit.key(world.sm) for world in PROOF_WORLDS if world.sm and self._spared(world)}
        added = [(k.value if isinstance(k, ast.Constant) else None, v) for k, v in new[len(old) :]]
        keys = [key for key, _ in added]
        if not set(keys) <= mine - others - constants(before) or len(set(keys)) != len(keys):
            raise self.fail("others-same", "an undeclared entry was added to the literal", after.lineno)
        declared = ast.dump(ast.parse(site.value, mode="eval").body) if site.value else None
        if any((ast.dump(value) if value else None) != declared for _, value in added):
            raise self.fail("targets", "an entry was added with another value than the declared one", after.lineno)

    def _check_guard(self, difference: _Inserted, node: ast.If) -> None:
        sites = [
            site
            for site in self.claim.sites
            if isinstance(site, GuardSite | ValueSite)
            and site.within == difference.definition
            and _equal(node.body, ast.parse(site.body).body)
        ]
        sites = [site for site in sites if site not in self.guarded]
        if not sites or node.orelse:
            raise self._outside(node, "the inserted statement is not the declared guard")
        site = sites[0]
        self.guarded.append(site)
        if isinstance(site, ValueSite):
            bound = set().union(*(all_bound(statement) for statement in node.body))
            if not bound <= set(site.names) or any(isinstance(n, _LEAVES) for n in ast.walk(node)):
                raise self.fail("others-same", "the fix does more than bind the declared names", node.lineno)
        elif not isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            raise self.fail("others-same", "the guard falls through", node.lineno)
        test = site.target_test(node.test) if isinstance(site, GuardSite) else node.test
        if test is None:
            raise self._outside(node, "the inserted statement is not the declared guard")
        self._only_targets(test, self.after.scope(difference.scope), node.lineno)
        self.used.update(_loaded(node))
        self._names_bound(node, difference.scope, node.lineno)

    def _check_alias(self, node: ast.Assign) -> None:
        declared = {s.alias for s in self.claim.sites if isinstance(s, ConditionSite) and s.alias}
        names = bound_names(node)
        if len(names) != 1 or len(node.targets) != 1 or names[0] not in declared or names[0] in self.aliases:
            raise self._outside(node, "the inserted assignment is not a declared alias")
        used = {n.id for n in ast.walk(self.before.source.tree) if isinstance(n, ast.Name)}
        if names[0] in self.before.module.bindings or names[0] in used:
            raise self.fail("names-bound", f"{names[0]} was in use before", node.lineno)
        for name in _loaded(node.value):
            lines = [b.node.lineno for b in self.after.module.bindings.get(name, ())]
            if not hasattr(builtins, name) and not any(line < node.lineno for line in lines):
                raise self.fail("names-bound", f"{name} is not bound before {names[0]}", node.lineno)
        self.aliases[names[0]] = node.lineno
        self._only_targets(node.value, Scope(self.after.module), node.lineno)

    def _only_targets(self, test: ast.expr, scope: Scope, line: int) -> None:
        """The test names the targets (or some of them) and does nothing else.

        It is known in every world and false in all but the targets', it is written in a declared way, and every
        call in it is followed to its end, so that it is known to have no effect.
        """
        for world in (*PROOF_WORLDS, *UNTOUCHED_WORLDS):
            try:
                self.after.predicates.value(test, scope, world)
            except NotHere:
                continue
            except Raises:
                pass  # what that means is up to the whole test
            value = self._value(test, scope, world)
            allowed = world.sm in self.claim.sms or self._either_way(world)
            if (value is None and world.initialized) or (value and not allowed):
                raise self.fail("others-same", f"what was inserted is wrong for {world}", line)
        self._without_effect(test, scope)
        if self.spellings and not self._is_spelled(test):
            raise self.fail("only-sites", "the targets are named in an undeclared way", line)
        self.used.update(_loaded(test))

    def _without_effect(self, test: ast.expr, scope: Scope, worlds: Sequence[World] = ALL_WORLDS) -> None:
        if isinstance(test, ast.BoolOp):
            stops_at = isinstance(test.op, ast.Or)
            for operand in test.values:
                self._without_effect(operand, scope, worlds)
                worlds = [world for world in worlds if self._value(operand, scope, world) is not stops_at]
            return
        for node in ast.walk(test):
            if isinstance(node, _EFFECTS):
                raise self._outside(node, "what was inserted does more than name the targets")
            if isinstance(node, ast.Call) and not all(self._followed(node, scope, world) for world in worlds):
                raise self._outside(node, "what was inserted calls something unknown")

    def _followed(self, node: ast.expr, scope: Scope, world: World) -> bool:
        try:
            return self.after.predicates.value(node, scope, world) is not UNKNOWN
        except Raises:
            return True  # where it is reached was asked of the whole test

    def _is_spelled(self, test: ast.expr) -> bool:
        """Whether a test is a declared spelling, a declared alias, or an alias's value: another's guards and one."""
        if ast.dump(test) in self.spellings or (isinstance(test, ast.Name) and test.id in self._alias_names()):
            return True
        if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
            return False
        *guards, spelled = test.values
        kin = [n.value for n in self.before.source.tree.body if isinstance(n, ast.Assign)]
        chains = [value.values for value in kin if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And)]
        return ast.dump(spelled) in self.spellings and any(_equal(chain[:-1], guards) for chain in chains)

    def _alias_names(self) -> set[str]:
        return {site.alias for site in self.claim.sites if isinstance(site, ConditionSite) and site.alias}

    def _value(self, test: ast.expr, scope: Scope, world: World) -> bool | None:
        formula = reduce(test, scope, self.after.predicates, world)
        return {TRUE: True, FALSE: False}.get(formula)

    def _names_bound(self, node: ast.AST, definition: Definition | None, line: int) -> None:
        local: set[str] = set()
        if isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = definition.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            local = {a.arg for a in parameters}
            for statement in ast.walk(definition):
                if isinstance(statement, ast.stmt) and statement.lineno < line:
                    local.update(bound_names(statement) if statement is not definition else ())
        for name in _loaded(node):
            bound = name in local or name in self.after.module.bindings or hasattr(builtins, name)
            if not bound and not self._star_imported(name):
                raise self.fail("names-bound", f"{name} is not bound", line)

    def _star_imported(self, name: str) -> bool:
        return any(
            (origin := self.after.predicates.module(self.after.module.absolute(star))) and name in origin.bindings
            for star in self.after.module.stars
        )

    # 4 and 6, at the sites
    def targets_reached(self) -> None:
        wanted = self.claim.direction.admits
        for site in self.claim.sites:
            try:
                places = site.find(self.after)
            except SmPatchError as error:
                raise self.fail("settled", f"a site is not found again: {error.what}") from error
            for place in places:
                for world in self.targets:
                    admitted = place.admits(world) in (Truth.ALWAYS, Truth.DEPENDS)
                    if admitted is not wanted:
                        side = "kept out" if wanted else "let in"
                        raise self.fail("targets", f"{world} is still {side}", place.line)

    # 7
    def values_right(self) -> bool:
        """Run each fixed function before and after; True when there was one."""
        sites = [site for site in self.claim.sites if isinstance(site, ValueSite)]
        if self.claim.direction is Direction.FIX and len(sites) != len(self.claim.sites):
            raise self.fail("values", "a fix without a check of its values")
        for site in sites:
            try:
                for world in ALL_WORLDS:
                    self._same_values(site, world)
            except SmPatchError as error:
                if isinstance(error, ProofFailed):
                    raise
                raise self.fail("values", error.what) from error
        return bool(sites)

    def _same_values(self, site: ValueSite, world: World) -> None:
        if self.before.source.data == self.after.source.data:
            return  # nothing was edited here; that the targets are right was asked already
        before = site.check.runs(self.before, site.within, world)
        after = site.check.runs(self.after, site.within, world)
        target = world.sm in self.claim.sms
        varies = site.check.varies if target else frozenset()
        for case, old, new in zip(site.check.cases, before, after, strict=True):
            if not new.same_as(old, varies):
                raise self.fail("values", f"{site.within} changed for {world}, {dict(case)}")
        if target and not site.check.fits(after, world):
            raise self.fail("values", f"{site.within} still exceeds the limit of {world}")


_EFFECTS = (ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.JoinedStr, ast.comprehension)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Yield, ast.YieldFrom, ast.Await)


def _is_body(value: Sequence[object]) -> bool:
    return bool(value) and isinstance(value[0], ast.stmt)


def _is_parts(value: Sequence[object]) -> bool:
    return bool(value) and isinstance(value[0], ast.excepthandler | ast.match_case)


def _loaded(node: ast.AST) -> Iterable[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _conjunction(parts: list[ast.expr], where: ast.expr) -> ast.expr:
    return parts[0] if len(parts) == 1 else ast.copy_location(ast.BoolOp(ast.And(), parts), where)


def _equal(left: object, right: object) -> bool:
    """Structural equality of ast values, positions left out."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, ast.AST) and isinstance(right, ast.AST):
        return ast.dump(left) == ast.dump(right)
    return left == right
