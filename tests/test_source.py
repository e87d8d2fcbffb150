from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patcher.errors import Unparsable
from patcher.source import BOM, Source

_NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])
_LINES = st.sampled_from(["x = 'é'", "y = f(x)  # ü", "", "if x: y = 2", "z = (1,", "2)", "\tw = 3".strip(), "# \x0c"])


@given(st.lists(st.tuples(_LINES, _NEWLINES), max_size=12), st.booleans())
def test_the_span_of_a_name_is_its_bytes(lines: list[tuple[str, str]], bom: bool) -> None:
    data = (BOM if bom else b"") + "".join(line + end for line, end in lines).encode()
    source = Source("x.py", data)
    try:
        tree = source.tree
    except Unparsable:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            start, end = source.span(node)
            assert data[start:end].decode() == node.id


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"x = (", "does not parse"),
        (b"x = 1\x00", "does not parse"),
        ("x = 1".encode("utf-16"), "not UTF-8"),
        (b"# coding: latin-1\nx = '\xe9'\n", "not UTF-8"),
        (b"# -*- coding: latin-1 -*-\nx = 1\n", "latin-1"),
    ],
)
def test_what_cannot_be_read_for_sure_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(Unparsable, match=why) as raised:
        _ = Source("a/x.py", data).tree
    assert "a/x.py" in raised.value.where
    assert raised.value.exit_code == 3


def test_definitions_by_qualified_name() -> None:
    text = (
        b"class A:\n    def f(self): ...\n    if 1:\n        def g(self): ...\n"
        b"def f(): ...\ntry:\n    def h(): ...\nexcept E:\n    def h(): ...\n"
    )
    source = Source("x.py", text)
    wanted = {"A": 1, "A.f": 1, "A.g": 1, "f": 1, "h": 2, "g": 0, "A.h": 0, "f.x": 0}
    assert {name: len(source.defined(name)) for name in wanted} == wanted


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_lines_end_only_where_python_says(newline: bytes) -> None:
    source = Source("x.py", newline.join([b"a = '\xe2\x80\xa8'", b"b = 1 \x0c", b"c = 2"]))
    assert source.line_count == 3
    assert source.line(3) == b"c = 2"
    assert source.newline == newline
