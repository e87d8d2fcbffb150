"""A tree of which definitions are parsed later is the tree that ast gives, position by position."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patcher import outline
from patcher.errors import Unparsable
from patcher.source import Source

LONG = "".join(f"    value_{n} = compute({n}, {n}) + another({n})\n" for n in range(8))
INNER = "".join(f"    {line}\n" for line in LONG.splitlines())

PARTS = {
    "a function": f"def f(a, b=1):\n{LONG}    return a\n",
    "an async function": f"async def f(a):\n{LONG}    await a\n",
    "decorators": f"@one\n@two(\n    3,\n)\ndef f():\n{LONG}\n@three\ndef g():\n{LONG}",
    "a head of several lines": f"def f(\n    a: int,\n    b: str = ')',\n) -> dict[str, int]:\n{LONG}    return b\n",
    "a head that ends unusually": f"def f(a,\n      b):\n{LONG}    return b\n",
    "a comment behind the head": f"def f():  # why: because\n{LONG}",
    "one line": "def f(): return 1\nclass C: pass\n",
    "a class": f"class C(Base, metaclass=M):\n    x: int = 1\n\n    def f(self):\n{INNER}"
    f"\n    @property\n    def g(self):\n{INNER}\n",
    "a class that ends in a variable": f"class C:\n    def f(self):\n{INNER}\n    x = 3\n",
    "a class in a class": f"class C:\n    class D:\n        def f(self):\n            pass\n{INNER}"
    f"\n    def g(self):\n{INNER}\n",
    "a class of two spaces": "class C:\n"
    + "".join(f"  def f{n}(self):\n    return {'1 + ' * 60}1\n" for n in range(3)),
    "a string with a definition": f'def f():\n    """\ndef g():\n    pass\n"""\n{LONG}\n'
    'TEXT = """\nclass X:\n    pass\n"""\n',
    "quotes in a comment": f"def f():\n    pass  # it's \"\"\" odd\n{LONG}    # '''\n",
    "a sign of a comment in a string": f'def f():\n    x = \'#\' + """a\ndef b(): 1\n"""\n{LONG}',
    "other quotes within": f"def f():\n    '''it is \"\"\" open\ndef g():\n'''\n{LONG}",
    "escaped quotes": f'def f():\n    x = """\\"""\ndef g():\n\\\\"""\n{LONG}',
    "a raw string": f'def f():\n    x = r"""\\"""\ndef g(): """\n{LONG}',
    "strings side by side": f'def f():\n    x = """a""" """b\ndef c():\n""" \'d\'\n{LONG}',
    "a bracket at the margin": f"def f():\n{LONG}    return call(\n)\nx = [\n]\n",
    "an operand at the margin": f"def f():\n{LONG}    return (\n1 + 2\n)\n",
    "comments at the margin": f"def f():\n{LONG}# within\n    return 1\n# behind\n\n    # further\nx = 1\n",
    "a comment at the end": f"def f():\n{LONG}    return 1  # done\n    # behind\n",
    "a string at the end": f'def f():\n{LONG}    return """\n# no comment\n"""\n',
    "a string that ends like a comment": f'def f():\n{LONG}    return """\n# end """\n',
    "under a condition": f"if True:\n    def f():\n{INNER}\nelse:\n    class C:\n{INNER}\n",
    "no newline at the end": f"def f():\n{LONG}    return 1",
    "names that begin alike": f"define = 1\nclassy = 2\ndef f():\n{LONG}\ndefault = 3\n",
    "beyond ascii": f'def f():\n    """Größe → \N{MATHEMATICAL BOLD CAPITAL X}"""\n{LONG}    return "ä" + x\n',
}
FILLER = "FILLER = [\n" + "    0,\n" * 700 + "]\n"


def outlined(data: bytes, read: outline.Read = ast.parse) -> ast.Module:
    return outline.parse(data, read, Source("a.py", data).line_starts)


def dumped(tree: ast.AST) -> str:
    return ast.dump(tree, include_attributes=True)


def later(tree: ast.Module) -> int:
    return sum("_later" in vars(node) for node in tree.body)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_the_tree_is_the_one_that_ast_gives(part: str) -> None:
    data = f"{FILLER}{part}".encode()

    assert dumped(outlined(data)) == dumped(ast.parse(data))


@given(st.lists(st.sampled_from(list(PARTS.values())), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_so_it_is_however_parts_follow_each_other(parts: list[str]) -> None:
    data = "\n".join([FILLER, *parts]).encode()
    tree = outlined(data)
    ends = [(node.lineno, node.end_lineno) for node in tree.body]

    assert ends == [(node.lineno, node.end_lineno) for node in ast.parse(data).body]
    assert dumped(tree) == dumped(ast.parse(data))


def test_a_body_is_parsed_when_it_is_looked_into_and_only_then() -> None:
    data = f"{FILLER}{PARTS['a function']}{PARTS['a class']}".encode()
    read: list[bytes] = []

    def counted(part: bytes) -> ast.Module:
        read.append(part)
        return ast.parse(part)

    tree = outlined(data, counted)
    function, cls = tree.body[-2:]
    assert (later(tree), read) == (2, [])
    assert isinstance(function, ast.FunctionDef)
    assert [a.arg for a in function.args.args] == ["a", "b"]
    assert len(function.body) == 9
    assert type(function) is ast.FunctionDef
    assert (later(tree), len(read)) == (1, 1)
    assert isinstance(cls, ast.ClassDef)
    assert [type(node).__name__ for node in cls.body] == ["AnnAssign", "FunctionDef", "FunctionDef"]
    assert "_later" in vars(cls.body[1])


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_other_newlines_are_parsed_whole(newline: str) -> None:
    data = f"{FILLER}{PARTS['a class']}".replace("\n", newline).encode()
    tree = outlined(data)

    assert later(tree) == 0
    assert dumped(tree) == dumped(ast.parse(data))


def test_an_error_in_a_definition_is_told_with_its_line_when_it_is_looked_into() -> None:
    data = f"{FILLER}{PARTS['a function']}def g():\n{LONG}    return (\n\nx = 1\n".encode()
    tree = Source("a.py", data).tree
    line = data[: data.index(b"return (")].count(b"\n") + 1

    with pytest.raises(Unparsable) as caught:
        ast.dump(tree)
    assert caught.value.where == f"a.py:{line}"
    with pytest.raises(Unparsable):
        _ = Source("a.py", data, whole=True).tree


def test_an_error_at_the_top_is_told_at_once() -> None:
    with pytest.raises(Unparsable):
        _ = Source("a.py", f"{FILLER}{PARTS['a function']}x = (\n".encode()).tree
