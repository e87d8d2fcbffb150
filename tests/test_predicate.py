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
