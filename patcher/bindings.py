"""What binds a name, and what changes the thing behind it: read from the statements alone, before any is evaluated.

A name is only as sure as the least sure place that binds it. So every such place is collected: plain statements,
``del``, ``:=``, handlers, ``match``, ``global``; and every place that changes a list, dict, class or object in place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from patcher.source import Definition, Source, bodies, spanning

Function = ast.FunctionDef | ast.AsyncFunctionDef

_WORD = rb"[\w\x80-\xff]+"
_GLOBAL = re.compile(rb"global\b((?:[ \t\f,\w\x80-\xff]|\\\r?\n)+)")
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
_ATTRIBUTE_SETTERS = ("setattr", "delattr", "__setattr__", "__delattr__")
_SETTERS = frozenset((*_ATTRIBUTE_SETTERS, "__setitem__", "__delitem__"))
ANY = "*"
"""Stands for every name, where it cannot be told which one is meant."""


_BINDING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef),
    *(ast.ClassDef, ast.Delete, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Match, ast.Try),
    *([getattr(ast, "TryStar")] if hasattr(ast, "TryStar") else []),  # noqa: B009  # Python 3.11 on
)


def bound_names(node: ast.stmt) -> list[str]:
    """The names a statement binds itself (not those of the statements inside it)."""
    if not isinstance(node, _BINDING):
        return []
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


_NOT_OWN = (ast.stmt, ast.expr_context)


def _own(node: ast.AST, lambdas: bool = False) -> list[ast.AST]:
    """Everything below a node that belongs to no statement inside it, without what is inside lambdas or with it."""
    found: list[ast.AST] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        for name in current._fields:
            value = getattr(current, name, None)
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, _NOT_OWN):
                    found.append(child)
                    if lambdas or not isinstance(child, ast.Lambda):
                        waiting.append(child)
    return found


_NOT_SURE = (ast.For, ast.AsyncFor, ast.Match)


def never_surely(node: ast.stmt) -> bool:
    """Whether what a statement itself binds may not be bound although it was reached."""
    return isinstance(node, _NOT_SURE) or bool(getattr(node, "handlers", ()))


class Locals:
    """A function's parameters, and what binds each other name of its own scope. Asked for one name at a time."""

    def __init__(self, function: Function, source: Source) -> None:
        arguments = function.args
        self.parameters = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        self.parameters |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a}
        self._function = function
        self._source = source
        self._binders: dict[str, list[ast.AST]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.parameters or bool(self.binders(name))

    def binders(self, name: str) -> list[ast.AST]:
        """What binds a name beside the parameters; nothing where the name is declared to be another scope's."""
        if name not in self._binders:
            self._binders[name] = list(self._found(name))
        return self._binders[name]

    def _found(self, name: str) -> Iterator[ast.AST]:
        if name in self._elsewhere:
            return
        for node, nested in self._with(name):
            if not nested:
                names = (*bound_names(node), *walrus_names(node))
                yield from [node] * names.count(name)
            elif isinstance(node, ast.Nonlocal):
                yield from [node] * node.names.count(name)

    def _with(self, name: str) -> Iterator[tuple[ast.stmt, bool]]:
        """The statements of the function on whose lines a name stands, and whether a nested definition holds them."""
        for node, around in spanning(self._function.body, self._source.lines_with(name, self._function)):
            yield node, bool(around)

    @cached_property
    def _elsewhere(self) -> set[str]:
        statements = [node for word in ("global", "nonlocal") for node, nested in self._with(word) if not nested]
        return {name for node in statements if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}

    @cached_property
    def generator(self) -> bool:
        """Whether a call of the function gives a generator."""
        own = [node for node, nested in self._with("yield") if not nested]
        return any(isinstance(part, ast.Yield | ast.YieldFrom) for node in own for part in _own(node))

    @cached_property
    def changed(self) -> Changed:
        """What the function changes in place."""
        return changed_in(self._function)


@dataclass
class Changed:
    """Names whose things are changed in place: ``x[…] = …``, ``x.a = …``, ``setattr(x, …)``, ``x.append(…)``."""

    stored: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)


def changed_in(root: ast.AST) -> Changed:
    """What is changed in place anywhere below a node, functions included."""
    return _changed(ast.walk(root))


def changed_by(node: ast.stmt) -> Changed:
    """What a statement changes in place itself (not what the statements inside it change)."""
    return _changed([node, *_own(node, lambdas=True)])


def _changed(nodes: Iterable[ast.AST]) -> Changed:
    found = Changed()
    for node in nodes:
        if isinstance(node, ast.Subscript | ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                found.stored |= _base(node)
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr not in READS:
                found.called |= _base(called.value)
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _SETTERS:
                found.stored |= set().union(*(_base(arg) for arg in node.args[:1]))
        elif isinstance(node, ast.AugAssign):
            found.stored |= _base(node.target)
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
            if not _begins_statement(data, match.start()):
                continue
            names.update(map(_identifier, re.findall(_WORD, match[1])))
    for match in _NAMESPACE.finditer(data) if b"globals()" in data or b"vars()" in data or b"__name__]" in data else ():
        keyed = _KEYED.match(data, match.end())
        if keyed:
            names.add(_identifier(keyed[1]))
        elif _WRITTEN.match(data, match.end()):
            names.add(ANY)
    return names


def _identifier(word: bytes) -> str:
    """A name as Python takes it, whichever way its characters are written."""
    if word.isascii():
        return word.decode()
    from unicodedata import normalize

    return normalize("NFKC", word.decode("utf-8", "replace"))


def _begins_statement(data: bytes, at: int) -> bool:
    while at and data[at - 1] in b" \t\f":
        at -= 1
    return not at or data[at - 1] in b"\r\n;:"


class Members:
    """A class's own members by name, each with whether it is surely bound."""

    def __init__(self, node: ast.ClassDef, source: Source) -> None:
        self.bound: dict[str, list[tuple[ast.stmt, bool]]] = {}
        self._node = node
        self._source = source
        self._reset: dict[str, bool] = {}
        self._collect(node.body, True)

    def _collect(self, body: list[ast.stmt], sure: bool) -> None:
        for statement in body:
            for name in (*bound_names(statement), *walrus_names(statement)):
                self.bound.setdefault(name, []).append((statement, sure and not never_surely(statement)))
            if not isinstance(statement, Definition):
                for inner in bodies(statement):
                    self._collect(inner, False)

    def resets(self, name: str) -> bool:
        """Whether a method sets the attribute, or one whose name is computed.

        Left out is what ``__init__`` sets past the class's own ``__setattr__``.
        """
        if name not in self._reset:
            words = (name, *_ATTRIBUTE_SETTERS)
            lines = sorted({line for word in words for line in self._source.lines_with(word, self._node)})
            self._reset[name] = any(self._sets(member, lines, name) for member in self._node.body)
        return self._reset[name]

    def _sets(self, member: ast.stmt, lines: list[int], name: str) -> bool:
        first = isinstance(member, ast.FunctionDef) and member.name == "__init__"
        for node, _ in spanning([member], lines):
            for part in _own(node, lambdas=True):
                if isinstance(part, ast.Attribute):
                    if part.attr == name and not isinstance(part.ctx, ast.Load):
                        return True
                elif (
                    isinstance(part, ast.Call)
                    and not first
                    and _sets_attribute(part)
                    and not {name, ANY}.isdisjoint(self._names_set(part.args[1], member))
                ):
                    return True
        return False

    def _names_set(self, name: ast.expr, method: ast.stmt) -> set[str]:
        """The attribute names that an expression in a method may give; ANY where they are not written there.

        Followed is a loop over a dict that is written out in the method: ``for name, … in table.items()``.
        """
        if isinstance(name, ast.Constant):
            return {str(name.value)}
        if not isinstance(name, ast.Name) or not isinstance(method, Function):
            return {ANY}
        own = Locals(method, self._source)
        found = [_keys_of(loop, name.id, own) for loop in own.binders(name.id)]
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
    makers = own.binders(table)
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
    return name in _ATTRIBUTE_SETTERS and len(node.args) >= 2


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
    pairs = f"{kwargs}.items()"
    orders = (f"tuple(sorted({pairs}))", f"tuple(sorted({pairs}, key=lambda x: x[0]))", f"frozenset({pairs})")
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
