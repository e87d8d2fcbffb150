"""Conditions: boolean expressions of predicates (known in a world) and opaque atoms (not known).

In one world a condition reduces to ``always``, ``never`` or ``depends`` (on its opaque atoms). Two conditions
are equivalent in a world when they agree for every assignment of their atoms.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum
from itertools import product

from patcher.predicate import Predicates, Raises, Scope, World

_ATOM_LIMIT = 14


class Truth(str, Enum):
    ALWAYS = "always"
    NEVER = "never"
    DEPENDS = "depends"
    RAISES = "raises"


@dataclass(frozen=True)
class Formula:
    """A reduced condition: ``op`` is true, false, raise, atom, not, and, or."""

    op: str
    parts: tuple[Formula, ...] = ()
    atom: str = ""

    def atoms(self) -> set[str]:
        if self.op == "atom":
            return {self.atom}
        return set().union(*(part.atoms() for part in self.parts)) if self.parts else set()

    def reads(self) -> int:
        """How many times atoms occur; a place that raises counts beyond any number of atoms."""
        own = {"atom": 1, "raise": 1_000}.get(self.op, 0)
        return own + sum(part.reads() for part in self.parts)

    def evaluate(self, values: dict[str, bool]) -> bool | None:
        """The truth under an assignment of the atoms; None when evaluating it raises."""
        if self.op == "atom":
            return values[self.atom]
        if self.op == "not":
            inner = self.parts[0].evaluate(values)
            return None if inner is None else not inner
        if self.op in ("and", "or"):
            stops_at = self.op == "or"
            for part in self.parts:
                value = part.evaluate(values)
                if value is None or value is stops_at:
                    return value
            return not stops_at
        return {"true": True, "false": False}.get(self.op)


TRUE, FALSE, RAISE = Formula("true"), Formula("false"), Formula("raise")


def reduce(node: ast.expr, scope: Scope, predicates: Predicates, world: World) -> Formula:
    """The formula that is left of a condition when everything known in ``world`` is filled in."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return negate(reduce(node.operand, scope, predicates, world))
    if isinstance(node, ast.BoolOp):
        op = "or" if isinstance(node.op, ast.Or) else "and"
        return join(op, [reduce(part, scope, predicates, world) for part in node.values])
    if isinstance(node, ast.NamedExpr):
        return reduce(node.value, scope, predicates, world)
    try:
        truth = predicates.truth(node, scope, world)
    except Raises:
        return RAISE
    if truth is None:
        return Formula("atom", atom=ast.unparse(node))
    return TRUE if truth else FALSE


def negate(inner: Formula) -> Formula:
    """The reduced negation of a reduced formula."""
    if inner.op == "not":
        return inner.parts[0]
    return {"true": FALSE, "false": TRUE, "raise": RAISE}.get(inner.op) or Formula("not", (inner,))


def join(op: str, parts: list[Formula]) -> Formula:
    """The reduced conjunction (``and``) or disjunction (``or``) of reduced formulas."""
    stop, neutral = (TRUE, FALSE) if op == "or" else (FALSE, TRUE)
    kept: list[Formula] = []
    for part in parts:
        if part == neutral:
            continue
        if part == stop:
            return stop  # whatever the atoms before it say
        kept.extend(part.parts if part.op == op else [part])
        if part == RAISE:
            break  # nothing behind it is evaluated
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else Formula(op, tuple(kept))


def truth(formula: Formula) -> Truth:
    """always, never, depends or raises. With too many atoms to enumerate: depends."""
    simple = {"true": Truth.ALWAYS, "false": Truth.NEVER, "raise": Truth.RAISES, "atom": Truth.DEPENDS}
    if formula.op in simple:
        return simple[formula.op]
    atoms = sorted(formula.atoms())
    if formula.reads() == len(atoms) or len(atoms) > _ATOM_LIMIT:
        return Truth.DEPENDS  # each atom is read once: some assignment makes it true, another false
    outcomes = {formula.evaluate(dict(zip(atoms, row, strict=True))) for row in _rows(len(atoms))}
    if outcomes == {True}:
        return Truth.ALWAYS
    return Truth.DEPENDS if True in outcomes else Truth.NEVER


def equivalent(before: Formula, after: Formula) -> bool:
    """Whether both agree for every assignment of their atoms. Too many atoms to try them all: only if equal."""
    if before == after:
        return True
    atoms = sorted(before.atoms() | after.atoms())
    if len(atoms) > _ATOM_LIMIT:
        return False
    assignments = (dict(zip(atoms, row, strict=True)) for row in _rows(len(atoms)))
    return all(before.evaluate(values) == after.evaluate(values) for values in assignments)


def implies(stronger: Formula, weaker: Formula) -> bool:
    """Whether ``weaker`` holds wherever ``stronger`` does, for every assignment of their atoms."""
    atoms = sorted(stronger.atoms() | weaker.atoms())
    if len(atoms) > _ATOM_LIMIT:
        return False
    assignments = (dict(zip(atoms, row, strict=True)) for row in _rows(len(atoms)))
    return all(weaker.evaluate(values) is True for values in assignments if stronger.evaluate(values) is True)


def _rows(count: int) -> product[tuple[bool, ...]]:
    return product((False, True), repeat=count)
