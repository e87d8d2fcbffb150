from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcher.edits import (
    NarrowCondition,
    SubstituteExpression,
    WidenCondition,
    add_import,
    define_alias,
    insert_statement,
    rewrite_expression,
)
from patcher.errors import Unrecognised


@pytest.mark.parametrize(
    ("text", "part", "target", "wide", "narrow"),
    [
        ("a", "a", "t()", "a or t()", "a and not t()"),
        ("a or b", "a or b", "t()", "a or b or t()", "(a or b) and not t()"),
        ("(a or b) and x", "a or b", "t()", "(a or b or t()) and x", "((a or b) and not t()) and x"),
        ("a and x", "a", "t() and u", "(a or (t() and u)) and x", "(a and not (t() and u)) and x"),
        ("not (a or b)", "a or b", "t", "not (a or b or t)", "not ((a or b) and not t)"),
        ("x\n  # why\n  and a", "a", "t", "x\n  # why\n  and (a or t)", "x\n  # why\n  and (a and not t)"),
        ("p.is_90 or p.is_100", "p.is_90 or p.is_100", "p.t", "p.is_90 or p.is_100 or p.t", ""),
        ("f(a)[0] == 9 and y", "f(a)[0] == 9", "t", "(f(a)[0] == 9 or t) and y", "(f(a)[0] == 9 and not t) and y"),
    ],
)
def test_conditions(text: str, part: str, target: str, wide: str, narrow: str) -> None:
    assert rewrite_expression(text, WidenCondition(part, 0, target)) == wide
    if narrow:
        assert rewrite_expression(text, NarrowCondition(part, 0, target)) == narrow


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_the_slice_keeps_its_line_ending(newline: str) -> None:
    text = newline.join(["(a", "  or b)", " and x"])
    part = newline.join(["a", "  or b"])
    wanted = newline.join(["(a", "  or b or t)", " and x"])
    assert rewrite_expression(text, WidenCondition(part, 0, "t")) == wanted
    with pytest.raises(Unrecognised, match="different ways"):
        rewrite_expression(text + "\n", WidenCondition(part, 0, "t"))


def test_the_right_one_of_equal_parts() -> None:
    assert rewrite_expression("a and x(a) and a", WidenCondition("a", 2, "t")) == "a and x(a) and (a or t)"
    assert rewrite_expression("c and a()", SubstituteExpression("a()", 0, "b() or d")) == "c and (b() or d)"
    with pytest.raises(Unrecognised):
        rewrite_expression("a and b", WidenCondition("c", 0, "t"))


_NAMES = st.sampled_from(["a", "b", "c"])
_TREES = st.recursive(
    _NAMES,
    lambda t: st.one_of(
        st.tuples(t, st.sampled_from([" and ", " or ", "  or\n    "]), t).map(lambda p: f"({p[0]}{p[1]}{p[2]})"),
        t.map(lambda x: f"not {x}"),
    ),
    max_leaves=6,
)


@given(_TREES, _TREES)
def test_widening_means_or_and_narrowing_means_and_not(left: str, right: str) -> None:
    text = f"({left}) and {right}" if " " in left else f"{left} and {right}"
    part = ast.unparse(ast.parse(left, mode="eval"))
    if part != left:  # only parts that read as they unparse are compared
        return
    wide = rewrite_expression(text, WidenCondition(part, 0, "t"))
    meant = ast.parse(f"(({left}) or t) and {right}", mode="eval").body
    for values in ({"a": a, "b": b, "c": c, "t": t} for a in (0, 1) for b in (0, 1) for c in (0, 1) for t in (0, 1)):
        got = eval(compile(f"({wide})", "x", "eval"), {}, values)
        assert bool(got) == bool(eval(compile(ast.Expression(meant), "x", "eval"), {}, values))


@pytest.mark.parametrize(
    ("text", "sibling", "wanted"),
    [
        ("from x import a", "a", "from x import a, n"),
        ("from x import a, b", "a", "from x import a, n, b"),
        ("from x import (\n    a,  # why\n    b,\n)", "a", "from x import (\n    a,  # why\n    n,\n    b,\n)"),
        ("from x import (\n    a,\n    b,\n)", "b", "from x import (\n    a,\n    b,\n    n,\n)"),
        ("from x import (\n    a,\n    b\n)", "b", "from x import (\n    a,\n    b,\n    n\n)"),
        ("from x import (\n    a,\n)", "a", "from x import (\n    a,\n    n,\n)"),
        ("from x import (a)", "a", "from x import (a, n)"),
        ("from .x import (\r\n\ta,\r\n)", "a", "from .x import (\r\n\ta,\r\n\tn,\r\n)"),
    ],
)
def test_imports(text: str, sibling: str, wanted: str) -> None:
    assert {a.name for a in ast.parse(add_import(text, sibling, "n")).body[0].names} >= {"a", "n"}  # type: ignore[attr-defined]
    if "# why" not in text:
        assert add_import(text, sibling, "n") == wanted


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_alias_goes_on_the_next_line(newline: str) -> None:
    text = f"_a = x and f()  # old{newline}"
    assert define_alias(text, "_b", "x and g()", "sm-patch: id") == f"{text}_b = x and g()  # sm-patch: id{newline}"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("step", ["    ", "  ", "\t"])
def test_a_guard_goes_above_the_comments_of_its_statement(newline: str, step: str) -> None:
    text = f"{step * 2}# lead{newline}{step * 2}if m:{newline}{step * 3}return 1{newline}"
    new = insert_statement(text, "if t:\n    if u:\n        x()\n    return 2\n", "sm-patch: id", step)
    guard = [
        f"{step * 2}# sm-patch: id",
        f"{step * 2}if t:",
        f"{step * 3}if u:",
        f"{step * 4}x()",
        f"{step * 3}return 2",
    ]
    assert new == newline.join([*guard, text])
