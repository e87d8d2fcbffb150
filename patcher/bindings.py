"""What binds a name, and what changes the thing behind it: read from the statements alone, before any is evaluated.

A name is only as sure as the least sure place that binds it. So every such place is collected: plain statements,
``del``, ``:=``, handlers, ``match``, ``global``; and every place that changes a list, dict, class or object in place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from patcher.source import Definition, bodies

Function = ast.FunctionDef | ast.AsyncFunctionDef

_WORD = rb"[\w\x80-\xff]+"
_GLOBAL = re.compile(rb"(?:^|[;:])[ \t\f]*global\b((?:[ \t\f,\w\x80-\xff]|\\\r?\n)+)", re.MULTILINE)
_NAMESPACE = re.compile(rb"(?:globals\(\)|vars\(\)|sys\.modules\[__name__\](?:\.__dict__)?)")
_KEYED = re.compile(rb"\s*\[\s*[\"'](" + _WORD + rb")[\"']\s*\]\s*=(?!=)")
_WRITTEN = re.compile(
    rb"\s*(?:\[[^\]\n]*\]\s*=(?!=)|\.\s*(?:update|setdefault|pop|clear|__setitem__)\b|,|\.\w+\s*=(?!=))"
)

# Methods of lists, dicts and sets that leave them as they are.
READS = frozenset(
    (
        *("copy", "count", "get", "index", "items", "keys", "values", "difference", "intersection", "isdisjoint"),
        *("issubset", "issuperset", "symmetric_difference", "union"),
    )
)
_SETTERS = frozenset(("setattr", "delattr", "__setattr__", "__delattr__", "__setitem__", "__delitem__"))
ANY = "*"
"""Stands for every name, where it cannot be told which one is meant."""


def bound_names(node: ast.stmt) -> list[str]:
    """The names a statement binds itself (not those of the statements inside it)."""
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names if alias.name != "*"]
    if isinstance(node, ast.Match):
        return [name for case in node.cases for name in _captured(case.pattern)]
    handlers = getattr(node, "handlers", ())
    if handlers:
        return [handler.name for handler in handlers if handler.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(
        node, ast.AugAssign | ast.For | ast.AsyncFor
    ):
        targets = [node.target]
    elif isinstance(node, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    names = []
    for target in targets:
        names += [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    return names


def _captured(pattern: ast.pattern) -> list[str]:
    names = [getattr(part, "name", None) or getattr(part, "rest", None) for part in ast.walk(pattern)]
    return [name for name in names if name]


def walrus_names(node: ast.stmt) -> list[str]:
    """The names that ``:=`` binds in a statement's own expressions (those of a lambda are the lambda's)."""
    return [n.target.id for n in _own(node) if isinstance(n, ast.NamedExpr)]


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node that runs in its scope and belongs to no statement inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield child
            if not isinstance(child, ast.Lambda):
                yield from _own(child)


def never_surely(node: ast.stmt) -> bool:
    """Whether what a statement itself binds may not be bound although it was reached."""
    return isinstance(node, ast.For | ast.AsyncFor | ast.Match) or bool(getattr(node, "handlers", ()))


@dataclass
class Locals:
    """A function's parameters, what binds each other name of its own, and what it changes in place."""

    parameters: set[str]
    binders: dict[str, list[ast.AST]] = field(default_factory=dict)
    generator: bool = False
    changed: Changed = field(default_factory=lambda: Changed())

    def __contains__(self, name: str) -> bool:
        return name in self.parameters or name in self.binders


def local_names(function: Function) -> Locals:
    """The names of a function's own scope. A name that it declares global is none of them."""
    arguments = function.args
    parameters = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    parameters |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a}
    found = Locals(parameters, changed=changed_in(function))
    elsewhere: set[str] = set()
    waiting = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global | ast.Nonlocal):
            elsewhere.update(node.names)
        for name in (*bound_names(node), *walrus_names(node)):
            found.binders.setdefault(name, []).append(node)
        found.generator = found.generator or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _own(node))
        if isinstance(node, Definition):
            for inner in ast.walk(node):
                for name in inner.names if isinstance(inner, ast.Nonlocal) else ():
                    found.binders.setdefault(name, []).append(inner)
        else:
            for body in bodies(node):
                waiting.extend(body)
    for name in elsewhere:
        found.binders.pop(name, None)
    return found


@dataclass
class Changed:
    """Names whose things are changed in place: ``x[…] = …``, ``x.a = …``, ``setattr(x, …)``, ``x.append(…)``."""

    stored: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)


def changed_in(root: ast.AST) -> Changed:
    """What is changed in place anywhere below a node, functions included."""
    found = Changed()
    for node in ast.walk(root):
        if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            found.stored |= _base(node)
        elif isinstance(node, ast.AugAssign):
            found.stored |= _base(node.target)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr not in READS:
                found.called |= _base(called.value)
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _SETTERS:
                found.stored |= set().union(*(_base(arg) for arg in node.args[:1]))
    return found


def _base(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def rebound_globals(data: bytes) -> set[str]:
    """The module-level names that a function may rebind (``global``, ``globals()[…]``); ANY when it may be all.

    Read from the bytes, so it may name some too many (in a comment, say), never one too few.
    """
    names: set[str] = set()
    if b"global" in data:
        for match in _GLOBAL.finditer(data):
            names.update(word.decode("utf-8", "replace") for word in re.findall(_WORD, match[1]))
    for match in _NAMESPACE.finditer(data) if b"globals()" in data or b"vars()" in data or b"__name__]" in data else ():
        keyed = _KEYED.match(data, match.end())
        if keyed:
            names.add(keyed[1].decode("utf-8", "replace"))
        elif _WRITTEN.match(data, match.end()):
            names.add(ANY)
    return names


@dataclass
class Members:
    """A class's own members by name, each with whether it is surely bound, and the attributes its methods set."""

    bound: dict[str, list[tuple[ast.stmt, bool]]] = field(default_factory=dict)
    reset: set[str] = field(default_factory=set)


def class_members(node: ast.ClassDef) -> Members:
    """``reset`` leaves out what ``__init__`` sets past the class's ``__setattr__``; ANY where names are computed."""
    found = Members()

    def collect(body: list[ast.stmt], sure: bool) -> None:
        for statement in body:
            for name in (*bound_names(statement), *walrus_names(statement)):
                found.bound.setdefault(name, []).append((statement, sure and not never_surely(statement)))
            if not isinstance(statement, Definition):
                for inner in bodies(statement):
                    collect(inner, False)

    collect(node.body, True)
    for member in node.body:
        first = isinstance(member, ast.FunctionDef) and member.name == "__init__"
        for part in ast.walk(member):
            if isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load):
                found.reset.add(part.attr)
            elif isinstance(part, ast.Call) and not first and _sets_attribute(part):
                found.reset |= _names_set(part.args[1], member)
    return found


def _names_set(name: ast.expr, method: ast.stmt) -> set[str]:
    """The attribute names that an expression in a method may give; ANY where they are not written there.

    Followed is a loop over a dict that is written out in the method: ``for name, … in table.items()``.
    """
    if isinstance(name, ast.Constant):
        return {str(name.value)}
    if not isinstance(name, ast.Name) or not isinstance(method, Function):
        return {ANY}
    own = local_names(method)
    found = [_keys_of(loop, name.id, own) for loop in own.binders.get(name.id, ())]
    nested = any(isinstance(part, Definition | ast.Lambda) and part is not method for part in ast.walk(method))
    return set().union(*found) if found and all(found) and name.id not in own.parameters and not nested else {ANY}


def _keys_of(loop: ast.AST, name: str, own: Locals) -> set[str]:
    """What a loop over a dict's items gives its first name; empty when that is not known."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple) or not isinstance(loop.iter, ast.Call):
        return set()
    first, called = loop.target.elts[0], loop.iter.func
    if not isinstance(first, ast.Name) or first.id != name or bound_names(loop).count(name) != 1:
        return set()
    if not isinstance(called, ast.Attribute) or called.attr != "items" or not isinstance(called.value, ast.Name):
        return set()
    table = called.value.id
    makers = own.binders.get(table, [])
    if table in own.parameters | own.changed.stored | own.changed.called or len(makers) != 1:
        return set()
    made = makers[0]
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name):
        return set()
    keys = made.value.keys if isinstance(made.value, ast.Dict) else []
    names = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return names if len(names) == len(keys) else set()


def _sets_attribute(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("setattr", "delattr", "__setattr__", "__delattr__") and len(node.args) >= 2


def is_cache(node: ast.AST) -> bool:
    """Whether a decorator gives what the function gave for the same arguments, and nothing else.

    The form: a dict; a wrapper that fills ``kept[key]`` with ``function(*args, **kwargs)`` and returns it.
    """
    if not isinstance(node, ast.FunctionDef) or len(node.args.args) != 1 or node.decorator_list:
        return False
    function = node.args.args[0].arg
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) != 3 or not isinstance(body[1], ast.FunctionDef):
        return False
    made, wrapper, given = body
    assert isinstance(wrapper, ast.FunctionDef)
    kept = _empty_dict(made)
    takes = wrapper.args
    if not kept or not takes.vararg or not takes.kwarg or takes.args or takes.posonlyargs or takes.kwonlyargs:
        return False
    if not (isinstance(given, ast.Return) and isinstance(given.value, ast.Name) and given.value.id == wrapper.name):
        return False
    if any(
        ast.unparse(d) not in (f"functools.wraps({function})", f"wraps({function})") for d in wrapper.decorator_list
    ):
        return False
    args, kwargs = takes.vararg.arg, takes.kwarg.arg
    if len(wrapper.body) != 3 or not isinstance(wrapper.body[0], ast.Assign):
        return False
    key = bound_names(wrapper.body[0])
    orders = (f"tuple(sorted({kwargs}.items()))", f"frozenset({kwargs}.items())")
    keys = [f"({args}, {order})" for order in orders]
    if len(key) != 1 or ast.unparse(wrapper.body[0].value) not in keys:
        return False
    row = f"{kept}[{key[0]}]"
    filled = f"if {key[0]} not in {kept}:\n    {row} = {function}(*{args}, **{kwargs})"
    return [ast.unparse(s) for s in wrapper.body[1:]] == [filled, f"return {row}"]


def _empty_dict(node: ast.stmt) -> str:
    """The one name that a statement makes an empty dict, or an empty string."""
    names = bound_names(node)
    value = getattr(node, "value", None)
    return names[0] if len(names) == 1 and isinstance(value, ast.Dict) and not value.keys else ""
