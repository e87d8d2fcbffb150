"""The interpreter on hand-written miniatures of every form a predicate has."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from patcher.arch import ALL_SMS, SM
from patcher.predicate import ALL_WORLDS, UNKNOWN, Predicates, Raises, Scope, World, cuda_world
from patcher.source import SourceTree

_MODULE = "pkg.m"


def admitted(code: str, expression: str, files: Mapping[str, str] | None = None) -> set[str]:
    """The worlds in which an expression is true; fails when it is unknown in one."""
    overlay = {"pkg/m.py": code.encode(), **{p: t.encode() for p, t in (files or {}).items()}}
    predicates = Predicates(SourceTree(Path("/nowhere"), overlay), "pkg")
    module = predicates.module(_MODULE)
    assert module is not None
    found = set()
    for world in ALL_WORLDS:
        value = predicates.value(ast.parse(expression, mode="eval").body, Scope(module), world)
        assert value is not UNKNOWN, f"unknown for {world}"
        if value:
            found.add(str(world))
    return found


def majors(*wanted: int) -> set[str]:
    return {f"SM{sm}" for sm in ALL_SMS if sm.major in wanted}


DEFINED = """
import torch
def is_cuda(): return torch.cuda.is_available() and torch.version.cuda is not None
def p(device=None) -> bool:
    '''Only there.'''
    if not is_cuda():
        return False
    return torch.cuda.get_device_capability(device)[0] == 12 and torch.version.cuda >= "12.8"
"""
PARTIAL = """
from functools import lru_cache, partial
from typing import List
import torch
def is_cuda(): return torch.cuda.is_available() and torch.version.cuda is not None
def check(majors: List[int], version):
    if not is_cuda(): return False
    runtime = tuple(map(int, torch.version.cuda.split(".")[:2]))
    return torch.cuda.get_device_capability()[0] in majors and runtime >= version
p = q = lru_cache(maxsize=1)(partial(check, majors=[10, 12], version=(12, 8)))
"""
EXACT = """
import functools, torch
@functools.cache
def p():
    return torch.version.hip is None and torch.cuda.is_available() and torch.cuda.get_device_capability() == (12, 0)
"""
ARITHMETIC = """
import torch
def sm():
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor
    return 0
def p(): return torch.version.hip is None and sm() // 10 == 12
"""
NAME_MAP = """
from pkg import probes as elsewhere
_FACTS = {"is_12": "p12", "is_9": "p9"}
_VALUES = {"nothing": "none"}
class Platform:
    def __init__(self) -> None:
        object.__setattr__(self, "_overrides", {})
    def __getattr__(self, name):
        probe = _FACTS.get(name) or _VALUES.get(name)
        if probe is None:
            raise AttributeError(name)
        overrides = object.__getattribute__(self, "_overrides")
        if name in overrides:
            return overrides[name]
        from pkg import probes
        return getattr(probes, probe)()
_PLATFORM = Platform()
def get_platform() -> Platform: return _PLATFORM
"""
PROBES = (
    "import torch\ndef major(): return torch.cuda.get_device_capability()[0] if torch.version.cuda else 0\n"
    + "".join(f"def p{n}(): return major() == {n}\n" for n in (9, 12))
)


@pytest.mark.parametrize(
    ("code", "expression", "wanted"),
    [
        (DEFINED, "p()", majors(12)),
        (PARTIAL, "p()", majors(10, 12)),
        (PARTIAL, "q() and is_cuda()", majors(10, 12)),
        (EXACT, "p()", {"SM120"}),
        (ARITHMETIC, "p()", majors(12)),
    ],
)
def test_forms_of_predicates(code: str, expression: str, wanted: set[str]) -> None:
    assert admitted(code, expression) == wanted


def test_a_property_behind_a_name_map() -> None:
    files = {"pkg/__init__.py": "", "pkg/probes.py": PROBES}
    assert admitted(NAME_MAP, "get_platform().is_12", files) == majors(12)
    assert admitted(NAME_MAP, "get_platform().is_9 or get_platform().is_12", files) == majors(9, 12)
    with pytest.raises(Raises, match="AttributeError"):
        admitted(NAME_MAP, "get_platform().is_13", files)


def test_names_are_followed_through_stars_aliases_and_relative_imports() -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/sub/__init__.py": "from .common import *\nfrom .common import p12 as renamed\n",
        "pkg/sub/common.py": PROBES,
    }
    assert admitted("from pkg.sub import p12\n_alias = p12()\n", "_alias", files) == majors(12)
    assert admitted("from pkg.sub import renamed", "renamed()", files) == majors(12)
    assert admitted("from pkg import sub as s", "s.common.p9()", files) == majors(9)


def value(code: str, expression: str, world: World, function: str | None = None) -> object:
    predicates = Predicates(SourceTree(Path("/nowhere"), {"pkg/m.py": code.encode()}), "pkg")
    module = predicates.module(_MODULE)
    assert module is not None
    node = module.source.defined(function)[0] if function else None
    scope = Scope(module, node if isinstance(node, ast.FunctionDef) else None)
    return predicates.value(ast.parse(expression, mode="eval").body, scope, world)


SM120_WORLD = cuda_world(SM(12, 0))


@pytest.mark.parametrize(
    ("code", "expression"),
    [
        ("x = None\ndef set_x(v):\n    global x\n    x = v\n", "x"),
        ("import elsewhere\n", "elsewhere.f()"),
        ("from outside import *\n", "whatever"),
        ("import somelib\n@somelib.wrap\ndef f(): return True\n", "f()"),
        ("import os\nx = os.environ.get('A')\n", "x"),
        ("def f():\n    while True: pass\n", "f()"),
        ("def f(): return f()\n", "f()"),
        ("a = b\nb = a\n", "a"),
        ("class C:\n    def __init__(self):\n        self.x = False\nc = C()\n", "c.x"),
        ("import os\nif os.environ:\n    x = 1\nelse:\n    x = 2\n", "x"),
    ],
)
def test_what_is_not_sure_is_unknown(code: str, expression: str) -> None:
    assert value(code, expression, SM120_WORLD) is UNKNOWN


def test_a_local_name_is_known_only_when_bound_once() -> None:
    once = "import torch\ndef f(n):\n    m = torch.cuda.get_device_capability()[0]\n    return m == n\n"
    assert value(once, "m", SM120_WORLD, "f") == 12
    assert value(once, "n", SM120_WORLD, "f") is UNKNOWN
    twice = "def f(n):\n    m = 1\n    if n:\n        m = 2\n    return m\n"
    assert value(twice, "m", SM120_WORLD, "f") is UNKNOWN
    loop = "def f(n):\n    for m in n:\n        m\n"
    assert value(loop, "m", SM120_WORLD, "f") is UNKNOWN


def test_what_raises_is_told() -> None:
    code = 'import torch\ndef p(): return torch.version.cuda >= "12.8"\n'
    amd = next(world for world in ALL_WORLDS if world.kind == "hip")
    with pytest.raises(Raises, match="TypeError"):
        value(code, "p()", amd)
    with pytest.raises(Raises, match="NameError"):
        value(code, "q()", SM120_WORLD)
    nothing = next(world for world in ALL_WORLDS if world.kind == "cpu")
    with pytest.raises(Raises, match="RuntimeError"):
        value("import torch", "torch.cuda.get_device_capability()", nothing)


def test_a_binding_under_a_false_guard_does_not_count() -> None:
    code = "import torch\nif torch.version.hip:\n    x = 1\nelse:\n    x = 2\n"
    assert value(code, "x", SM120_WORLD) == 2


# Each is taken for known, and wrongly, by whoever reads only the plain assignments.
_DOUBTFUL = {
    "a flag set in a try": ("X = False\ntry:\n    import nope\n    X = True\nexcept ImportError:\n    pass\n", "X"),
    "a flag of try and except": ("try:\n    import nope\n    X = True\nexcept ImportError:\n    X = False\n", "X"),
    "a name of try and except": (
        "try:\n    from pkg.none import f\nexcept ImportError:\n    def f(): return 1\n",
        "f()",
    ),
    "bound in a loop": ("X = False\nfor _ in ():\n    X = True\n", "X"),
    "bound while": ("X = False\nwhile X:\n    X = True\n", "X"),
    "bound by a loop": ("X = 1\nfor X in ():\n    pass\n", "X"),
    "a list that grows": ("L = [90]\nL.append(12)\n", "12 in L"),
    "a list that grows in a function": ("L = [90]\ndef f():\n    L.append(12)\n", "12 in L"),
    "a dict that is set": ("D = {'a': False}\nD['a'] = True\n", "D['a']"),
    "a dict that is set in a function": ("D = {'a': False}\ndef f():\n    D['a'] = True\n", "D['a']"),
    "a local list that grows": ("def f():\n    l = []\n    l.append(1)\n    return bool(l)\n", "f()"),
    "a local list that shrinks": ("def f():\n    l = [1]\n    x = l.pop()\n    return bool(l)\n", "f()"),
    "a local dict that is set": ("def f():\n    d = {'a': 0}\n    d['a'] = 1\n    return d['a']\n", "f()"),
    "a namespace written to": ("X = False\nglobals()['X'] = True\n", "X"),
    "a namespace updated": ("X = False\nglobals().update(X=True)\n", "X"),
    "an object set from outside": (
        "class C:\n    def __init__(self): object.__setattr__(self, 'ok', False)\n"
        "c = C()\nobject.__setattr__(c, 'ok', True)\n",
        "c.ok",
    ),
    "an object set by its own method": (
        "class C:\n    def __init__(self): object.__setattr__(self, 'ok', False)\n"
        "    def more(self): object.__setattr__(self, 'ok', True)\nc = C()\n",
        "c.ok",
    ),
    "a walrus": ("X = True\n(X := False)\n", "X"),
    "a local walrus": ("X = True\ndef f():\n    (X := False)\n    return X\n", "f()"),
    "a local walrus in a test": ("X = True\ndef f():\n    if (X := False):\n        pass\n    return X\n", "f()"),
    "global on one line": ("X = False\ndef g(): global X; X = True\n", "X"),
    "global behind a semicolon": ("X = False\ndef g():\n    a = 1; global X\n    X = True\n", "X"),
    "global on two lines": ("X = Y = False\ndef g():\n    global Y, \\\n        X\n    X = True\n", "X"),
    "deleted": ("X = True\ndel X\n", "X"),
    "the name of an exception": ("X = True\ntry:\n    1 / 0\nexcept Exception as X:\n    pass\n", "X"),
    "captured": ("X = False\nmatch 1:\n    case X: pass\n", "X"),
    "a decorator that says cache": (
        "def not_cached(f):\n    return lambda: not f()\n@not_cached\ndef f(): return True\n",
        "f()",
    ),
    "a decorator that says cache, from elsewhere": ("from lib import cached\n@cached\ndef f(): return True\n", "f()"),
    "a decorated class": ("from lib import wrap\n@wrap\nclass C: pass\n", "True if C else False"),
    "an exception class of its own": (
        "class Mine(Exception): pass\ndef f():\n    try:\n        raise RuntimeError()\n"
        "    except Mine:\n        return True\n    return False\n",
        "f()",
    ),
    "an import that may fail": (
        "def f():\n    try:\n        import nope\n        return True\n    except ImportError:\n        return False\n",
        "f()",
    ),
    "a call that may raise": (
        "import nope\ndef f():\n    try:\n        nope.check()\n    except ValueError:\n        return True\n"
        "    return False\n",
        "f()",
    ),
    "a truth of its own": ("class C:\n    def __bool__(self): return False\nc = C()\n", "True if c else False"),
    "an inherited truth": ("import lib\nclass C(lib.B): pass\nc = C()\n", "True if c else False"),
    "a member under an if": (
        "import os\nclass C:\n    if os.name:\n        @property\n        def ok(self): return False\n"
        "    else:\n        @property\n        def ok(self): return True\nc = C()\n",
        "c.ok",
    ),
    "a method, then a value": (
        "class C:\n    def ok(self): return 1\n    ok = False\nc = C()\n",
        "True if c.ok else 0",
    ),
    "a generator": ("def f():\n    return False\n    yield\n", "True if f() else False"),
    "a variable of two branches inside a try": (
        "import os\ndef f():\n    x = 1\n    try:\n        if os.environ:\n            x = 2\n"
        "    except ValueError:\n        pass\n    return x\n",
        "f()",
    ),
    "a walrus in a decorator": ("X = True\n@(X := False) or (lambda g: g)\ndef f():\n    pass\n", "X"),
    "a rebinding by another spelling": (
        "X = True\ndef f():\n    global \N{MATHEMATICAL BOLD CAPITAL X}\n    X = False\n",
        "X",
    ),
    "a change by another spelling": ("X = [1]\n\N{MATHEMATICAL BOLD CAPITAL X}.append(2)\n", "X"),
    "a walrus in a lambda": ("X = True\nf = lambda: (X := False) or X\n", "f()"),
    "python's own switch": ("", "__debug__"),
    "made when asked for": ("def __getattr__(name): return True\n", "getattr(m, 'zzz')"),
}


@pytest.mark.parametrize(("code", "expression"), _DOUBTFUL.values(), ids=_DOUBTFUL)
def test_what_may_be_otherwise_at_run_time_is_unknown(code: str, expression: str) -> None:
    files = {"pkg/__init__.py": "", "pkg/m.py": code, "pkg/none.py": "", "pkg/n.py": "from pkg import m\n"}
    assert evaluated(files, expression, "pkg.n" if "m, " in expression else _MODULE) is UNKNOWN


def evaluated(files: Mapping[str, str], expression: str, module: str = _MODULE) -> object:
    predicates = Predicates(SourceTree(Path("/nowhere"), {p: t.encode() for p, t in files.items()}), "pkg")
    found = predicates.module(module)
    assert found is not None
    return predicates.value(ast.parse(expression, mode="eval").body, Scope(found), SM120_WORLD)


_HANDLED = "def f():\n    try:\n        {}\n    except {}:\n        return True\n    return False\n"
_CACHE = """
import functools
def once(fn):
    '''Keeps what it gave.'''
    kept = {}
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        key = (args, tuple(sorted(kwargs.items())))
        if key not in kept:
            kept[key] = %s
        return kept[key]
    return wrapper
@once
def f(): return True
"""


@pytest.mark.parametrize(
    ("code", "expression", "wanted"),
    [
        (_HANDLED.format("{}['a']", "LookupError"), "f()", True),
        (_HANDLED.format("int('x')", "ValueError"), "f()", True),
        (_HANDLED.format("raise KeyError('x')", "(OSError, KeyError)"), "f()", True),
        (_HANDLED.format("int('1')", "ValueError"), "f()", False),
        (
            "class C:\n    @property\n    def ok(self): return 1\n    @property\n    def ok(self): return 2\nc = C()\n",
            "c.ok",
            2,
        ),
        ("def f(x): return x is True\n", "(f(1), f(True))", (False, True)),
        ("def f(x): return x\n", "(f((1,)), f((True,)))", ((1,), (True,))),
        ("X = False\nY = X\nX = True\n", "(X, Y)", (True, False)),
        ("def f():\n    import torch\n    x = 1\n    for_ = [x]\n    return 1 in for_\n", "f()", True),
        ("L = [90]\nL.index(90)\n", "90 in L", True),
        (_CACHE % "fn(*args, **kwargs)", "f()", True),
        (_CACHE % "not fn(*args, **kwargs)", "f()", UNKNOWN),
        ((_CACHE % "fn(*args, **kwargs)").replace("items()", "items(), key=lambda x: x[0]"), "f()", True),
        ((_CACHE % "fn(*args, **kwargs)").replace("items()", "items(), key=lambda x: x[1]"), "f()", UNKNOWN),
    ],
)
def test_what_python_does_is_what_is_told(code: str, expression: str, wanted: object) -> None:
    got = evaluated({"pkg/m.py": code}, expression)
    assert got is wanted or (repr(got) == repr(wanted) and wanted is not UNKNOWN)


@pytest.mark.parametrize("caught", ["ImportErrorX", "KeyError"])
def test_an_exception_that_no_handler_takes_is_raised(caught: str) -> None:
    code = "ImportErrorX = KeyError\n" + _HANDLED.format("raise ImportError", caught)
    with pytest.raises(Raises, match="ImportError"):
        evaluated({"pkg/m.py": code}, "f()")


def test_a_star_import_gives_what_it_exports_when_it_is_reached() -> None:
    other = "__all__ = ['g']\ndef f(): return 1\ndef g(): return 2\n"
    files = {"pkg/__init__.py": "", "pkg/o.py": other}
    later = {**files, "pkg/m.py": "def g(): return 0\nfrom pkg.o import *\n"}
    assert evaluated(later, "g()") == 2
    assert evaluated({**files, "pkg/m.py": "from pkg.o import *\ndef g(): return 0\n"}, "g()") == 0
    with pytest.raises(Raises, match="NameError"):
        evaluated(later, "f()")


def test_a_name_of_an_inner_function_is_not_the_outer_ones() -> None:
    code = "X = True\ndef f():\n    def g():\n        X = False\n        return X\n    return X\n"
    assert value(code, "X", SM120_WORLD, "f") is True
    assert value(code.replace("        X =", "        nonlocal X\n        X ="), "X", SM120_WORLD, "f") is UNKNOWN


@pytest.mark.parametrize("line", ["D['a'] = 1", "D.update(a=1)", "setattr(D, 'a', 1)", "D.a = 1"])
def test_a_local_thing_that_is_changed_is_unknown(line: str) -> None:
    code = f"def f():\n    D = {{'a': 0}}\n    {line}\n    return D\n"
    assert value(code, "D['a']", SM120_WORLD, "f") is UNKNOWN
    assert value("def f():\n    D = {'a': 0}\n    D.get('a')\n", "D['a']", SM120_WORLD, "f") == 0
