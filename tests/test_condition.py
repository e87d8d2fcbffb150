from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcher.arch import SM
from patcher.condition import Truth, equivalent, implies, reduce, truth
from patcher.predicate import Predicates, Scope, cuda_world
from patcher.source import SourceTree

_CODE = b"""
import torch
def yes(): return torch.cuda.get_device_capability()[0] == 12
def no(): return torch.cuda.get_device_capability()[0] == 9
"""
_PREDICATES = Predicates(SourceTree(Path("/nowhere"), {"pkg/m.py": _CODE}), "pkg")
_MODULE = _PREDICATES.module("pkg.m")
assert _MODULE is not None
_SCOPE = Scope(_MODULE, ast.parse("def f(a, b, c): ...").body[0])  # type: ignore[arg-type]
_WORLD = cuda_world(SM(12, 0))

_EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "c", "yes()", "no()", "True"]),
    lambda inner: st.one_of(
        inner.map(lambda x: f"not ({x})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) and ({p[1]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]}) or ({p[1]}) or ({p[2]})"),
    ),
    max_leaves=8,
)


def rows(expression: str) -> list[bool]:
    code = compile(expression, "x", "eval")
    known = {"yes": lambda: True, "no": lambda: False}
    return [bool(eval(code, {**known, "a": a, "b": b, "c": c})) for a, b, c in product((False, True), repeat=3)]


@given(_EXPRESSIONS, _EXPRESSIONS)
def test_reduced_formulas_agree_with_python(left: str, right: str) -> None:
    x, y = (reduce(ast.parse(e, mode="eval").body, _SCOPE, _PREDICATES, _WORLD) for e in (left, right))
    p, q = rows(left), rows(right)
    wanted = Truth.ALWAYS if all(p) else Truth.DEPENDS if any(p) else Truth.NEVER
    assert truth(x) is wanted
    assert equivalent(x, y) is (p == q)
    assert implies(x, y) is all(b for a, b in zip(p, q, strict=True) if a)


@pytest.mark.parametrize("count", [5, 40])
def test_many_atoms_are_no_problem_where_each_is_read_once(count: int) -> None:
    text = " and ".join(f"x{n} > {n}" for n in range(count))
    wide = reduce(ast.parse(f"({text}) and yes()", mode="eval").body, _SCOPE, _PREDICATES, _WORLD)
    same = reduce(ast.parse(text, mode="eval").body, _SCOPE, _PREDICATES, _WORLD)
    assert truth(wide) is not Truth.NEVER
    assert equivalent(wide, same)
