"""What an expression of an installed engine is worth on a given GPU, read from source alone.

A small interpreter for the shapes that predicates have: functions, ``lru_cache(partial(...))`` assignments,
re-exports (star imports included), aliases, properties behind a name map, tuples and arithmetic on the
compute capability. It follows names through the installed source, never imports it, and answers ``UNKNOWN``
wherever it cannot be sure. What torch says in a given world (an SM on a CUDA machine, an AMD GPU, no GPU) is
the only thing it takes for granted.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from patcher.arch import ALL_SMS, SM
from patcher.source import Definition, Source, SourceTree, bodies

_GLOBAL = re.compile(rb"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)
_STEP_LIMIT = 20_000
_DEPTH_LIMIT = 60


@dataclass(frozen=True)
class World:
    """What torch reports: ``kind`` is cuda, hip or cpu; ``capability`` what torch calls the device capability."""

    kind: str
    capability: tuple[int, int] | None
    cuda: str | None = None

    @property
    def sm(self) -> SM | None:
        """The SM on a CUDA machine, else None."""
        return SM(*self.capability) if self.kind == "cuda" and self.capability else None

    def __str__(self) -> str:
        if self.sm is not None:
            return f"SM{self.sm}"
        return f"AMD gfx{self.capability[0]}{self.capability[1]}" if self.capability else "no GPU"


def cuda_world(sm: SM) -> World:
    """A CUDA 12.9 machine with one GPU of this SM (new enough for every check, not yet 13)."""
    return World("cuda", (sm.major, sm.minor), "12.9")


# AMD GPUs report capabilities in the same range (RDNA4 says (12, 0)): an edit must not reach them.
OTHER_WORLDS: tuple[World, ...] = (
    World("hip", (9, 4)),
    World("hip", (11, 0)),
    World("hip", (12, 0)),
    World("cpu", None),
)
ALL_WORLDS: tuple[World, ...] = (*(cuda_world(sm) for sm in ALL_SMS), *OTHER_WORLDS)


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth")


UNKNOWN = _Unknown()


class Raises(Exception):
    """The interpreted code raises: ``kind`` is the exception's name."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class _GiveUp(Exception):
    """A shape the interpreter does not follow, or a limit."""


@dataclass(frozen=True)
class _External:
    """Something outside the installed source, by dotted name: ``torch.cuda.is_available``."""

    name: str


@dataclass(eq=False)
class _Function:
    module: Module
    node: ast.FunctionDef | ast.Lambda
    bound: Any = None


@dataclass(eq=False)
class _Class:
    module: Module
    node: ast.ClassDef


@dataclass(eq=False)
class _Instance:
    cls: _Class
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class _Partial:
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False)
class _Method:
    call: Callable[..., Any]


@dataclass(frozen=True)
class Binding:
    """One place that binds a module-level name. ``guards``: the if-tests around it, with their side."""

    node: ast.stmt
    guards: tuple[tuple[ast.expr, bool], ...]


class Module:
    """One source file as a module: its bindings by name, and its star imports."""

    def __init__(self, name: str, source: Source, is_package: bool) -> None:
        self.name = name
        self.source = source
        self.is_package = is_package
        self.bindings: dict[str, list[Binding]] = {}
        self.stars: list[ast.ImportFrom] = []
        # A name that some function rebinds is a variable: what the module first gave it says nothing.
        self.rebound = {
            name.strip().decode()
            for match in (_GLOBAL.finditer(source.data) if b"global" in source.data else ())
            for name in match[1].split(b",")
        }
        self._collect(source.tree.body, ())

    def _collect(self, body: list[ast.stmt], guards: tuple[tuple[ast.expr, bool], ...]) -> None:
        for node in body:
            if isinstance(node, ast.If):
                self._collect(node.body, (*guards, (node.test, True)))
                self._collect(node.orelse, (*guards, (node.test, False)))
                continue
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                self.stars.append(node)
                continue
            for name in bound_names(node):
                self.bindings.setdefault(name, []).append(Binding(node, guards))
            if not isinstance(node, Definition):
                for inner in bodies(node):
                    self._collect(inner, guards)

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that a ``from`` import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        keep = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def bound_names(node: ast.stmt) -> list[str]:
    """The names a statement binds itself (not those of the statements inside it)."""
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names if alias.name != "*"]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(node, ast.AugAssign | ast.For):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    names = []
    for target in targets:
        names += [n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return names


def _local_bindings(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
) -> tuple[set[str], dict[str, list[ast.AST]]]:
    """A function's parameters, and what binds each other name in it (a bare name where it is no statement)."""
    arguments = function.args
    parameters = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    parameters |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a}
    binders: dict[str, list[ast.AST]] = {}
    stores: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            for name in bound_names(node):
                binders.setdefault(name, []).append(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            stores[node.id] = stores.get(node.id, 0) + 1
    for name, count in stores.items():
        known = binders.setdefault(name, [])
        if count > len(known):  # bound in a way that is no statement: a walrus, a comprehension, del
            known.extend([function] * (count - len(known)))
    return parameters, binders


@dataclass
class Scope:
    """Where a name is looked up: a module and, inside a function, that function or a call's variables."""

    module: Module
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    variables: dict[str, Any] | None = None


class Predicates:
    """Evaluates expressions of one source tree in one world at a time. Keeps what it has worked out."""

    def __init__(self, tree: SourceTree, package: str) -> None:
        self.tree = tree
        self.package = package  # names are followed inside this package only
        self._modules: dict[str, Module | None] = {}
        # What was worked out, by the module it belongs to (so that a module can be forgotten).
        self._values: dict[Module, dict[tuple[World, str], Any]] = {}
        self._calls: dict[Module, dict[tuple[Any, ...], Any]] = {}
        self._locals: dict[Module, dict[ast.AST, tuple[set[str], dict[str, list[ast.AST]]]]] = {}
        self._steps = 0
        self._depth = 0
        self._world = ALL_WORLDS[0]

    def replaced(self, overlay: Mapping[str, bytes]) -> Predicates:
        """The same for the tree with some files replaced. What was parsed of the other files is shared."""
        other = Predicates(self.tree.with_overlay(overlay), self.package)
        other._modules = {
            name: module for name, module in self._modules.items() if module and module.source.name not in overlay
        }
        other._locals = self._locals
        return other

    # -- modules ---------------------------------------------------------------------------------------

    def module(self, name: str) -> Module | None:
        """The module ``a.b.c`` of the tree, or None. Raises Unparsable, IOFailure."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        if name.split(".")[0] != self.package:
            return None
        base = name.replace(".", "/")
        for path, is_package in ((f"{base}.py", False), (f"{base}/__init__.py", True)):
            source = self.tree.get(path)
            if source is not None:
                return Module(name, source, is_package)
        return None

    def forget(self, module: Module) -> None:
        """Let go of a module that no other refers to, and of what was worked out in it."""
        for kept in (self._values, self._calls, self._locals):
            kept.pop(module, None)

    def known_module(self, name: str) -> Module | None:
        """The module when it was read already, else None."""
        return self._modules.get(name)

    def module_at(self, path: str) -> Module | None:
        """The module of the file at ``path``."""
        return self.module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))

    # -- the public question -----------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope, world: World) -> Any:
        """The value of an expression in ``scope``, or UNKNOWN. Raises Raises when evaluating it raises."""
        self._world, self._steps, self._depth = world, 0, 0
        try:
            return self._eval(node, scope)
        except _GiveUp:
            return UNKNOWN

    def truth(self, node: ast.expr, scope: Scope, world: World) -> bool | None:
        """The truth of an expression, or None when it is not known. Raises Raises."""
        return _truth(self.value(node, scope, world))

    def exported(self, module: str, name: str, world: World) -> Any:
        """The value of ``module.name``, or UNKNOWN; Raises('ImportError') when the module does not bind it."""
        self._world, self._steps, self._depth = world, 0, 0
        found = self.module(module)
        if found is None:
            return UNKNOWN
        try:
            return self._module_attribute(found, name)
        except _GiveUp:
            return UNKNOWN

    # -- names ---------------------------------------------------------------------------------------------

    def _name(self, name: str, scope: Scope) -> Any:
        if scope.variables is not None and name in scope.variables:
            return scope.variables[name]
        if scope.function is not None and scope.variables is None:
            local = self._local(name, scope)
            if local is not None:
                return local[0]
        return self._global(name, scope.module)

    def _local(self, name: str, scope: Scope) -> tuple[Any] | None:
        """A function's own name: known when it is bound exactly once, by a plain assignment or import."""
        assert scope.function is not None
        kept = self._locals.setdefault(scope.module, {})
        if scope.function not in kept:
            kept[scope.function] = _local_bindings(scope.function)
        parameters, binders = kept[scope.function]
        if name in parameters:
            return (UNKNOWN,)
        found = binders.get(name)
        if found is None:
            return None
        if len(found) == 1 and isinstance(found[0], ast.Assign | ast.Import | ast.ImportFrom):
            return (self._bound_value(found[0], name, scope),)
        return (UNKNOWN,)

    def _global(self, name: str, module: Module) -> Any:
        try:
            return self._module_attribute(module, name)
        except Raises:
            if hasattr(builtins, name):
                return getattr(builtins, name)
            raise Raises("NameError") from None

    def _module_attribute(self, module: Module, name: str) -> Any:
        key = (self._world, name)
        values = self._values.setdefault(module, {})
        if key not in values:
            values[key] = UNKNOWN  # a cycle of imports or definitions ends here
            try:
                values[key] = self._find_module_attribute(module, name)
            except Raises as error:
                values[key] = Raises(error.kind)  # without its traceback, which keeps every frame
            except _GiveUp:
                values[key] = UNKNOWN
        value = values[key]
        if isinstance(value, Raises):
            raise Raises(value.kind)
        return value

    def _find_module_attribute(self, module: Module, name: str) -> Any:
        if name in module.rebound:
            return UNKNOWN
        candidates: list[Binding] = []
        for binding in module.bindings.get(name, ()):
            sides = [self._side(test, side, module) for test, side in binding.guards]
            if False in sides:
                continue
            if None not in sides:
                candidates.clear()  # surely executed: what came before is overwritten
            candidates.append(binding)
        values = [self._bound_value(binding.node, name, Scope(module)) for binding in candidates]
        if values:
            return values[0] if all(_same(value, values[0]) for value in values) else UNKNOWN
        if not name.startswith("_"):
            for star in reversed(module.stars):
                origin = self.module(module.absolute(star))
                if origin is None or origin is module:
                    continue
                try:
                    return self._module_attribute(origin, name)
                except Raises:
                    continue
        submodule = self.module(f"{module.name}.{name}") if module.is_package else None
        if submodule is not None:
            return submodule
        if any(self.module(module.absolute(star)) is None for star in module.stars):
            return UNKNOWN  # it may come from a module outside the tree
        raise Raises("ImportError")

    def _side(self, test: ast.expr, side: bool, module: Module) -> bool | None:
        """Whether an if-test takes this side; None when not known."""
        try:
            truth = _truth(self._eval(test, Scope(module)))
        except (Raises, _GiveUp):
            return None
        return None if truth is None else truth is side

    def _bound_value(self, node: ast.stmt, name: str, scope: Scope) -> Any:
        if isinstance(node, ast.FunctionDef):
            return self._decorated(node, scope)
        if isinstance(node, ast.ClassDef):
            return _Class(scope.module, node)
        if isinstance(node, ast.Import):
            return self._imported_module(node, name)
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            return self._imported_name(scope.module.absolute(node), alias.name)
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            return self._eval(node.value, scope)
        if isinstance(node, ast.Assign):
            return self._assigned(node, name, scope)
        return UNKNOWN

    def _assigned(self, node: ast.Assign, name: str, scope: Scope) -> Any:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                return self._eval(node.value, scope)
            if isinstance(target, ast.Tuple | ast.List):
                names = [part.id if isinstance(part, ast.Name) else None for part in target.elts]
                if name in names:
                    value = self._eval(node.value, scope)
                    if isinstance(value, tuple | list) and len(value) == len(names):
                        return value[names.index(name)]
        return UNKNOWN

    def _decorated(self, node: ast.FunctionDef, scope: Scope) -> Any:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            text = ast.unparse(called)
            # A cache gives what the function gives; any other decorator may give anything.
            if "cache" not in text and text not in ("staticmethod", "classmethod", "property"):
                return UNKNOWN
        return _Function(scope.module, node)

    def _imported_module(self, node: ast.Import, name: str) -> Any:
        for alias in node.names:
            if alias.asname == name:
                return self.module(alias.name) or _External(alias.name)
            if alias.asname is None and alias.name.split(".")[0] == name:
                return self.module(name) or _External(name)
        return UNKNOWN

    def _imported_name(self, module: str, name: str) -> Any:
        found = self.module(module)
        if found is None:
            return self.module(f"{module}.{name}") or _External(f"{module}.{name}")
        return self._module_attribute(found, name)

    # -- expressions -------------------------------------------------------------------------------------------

    def _eval(self, node: ast.expr, scope: Scope) -> Any:
        self._steps += 1
        if self._steps > _STEP_LIMIT:
            raise _GiveUp
        method = getattr(self, f"_eval_{type(node).__name__}", None)
        return method(node, scope) if method else UNKNOWN

    def _eval_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _eval_Name(self, node: ast.Name, scope: Scope) -> Any:
        return self._name(node.id, scope)

    def _eval_Tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return _known(tuple(self._eval(part, scope) for part in node.elts))

    def _eval_List(self, node: ast.List, scope: Scope) -> Any:
        return _known([self._eval(part, scope) for part in node.elts])

    def _eval_Set(self, node: ast.Set, scope: Scope) -> Any:
        parts = _known(tuple(self._eval(part, scope) for part in node.elts))
        return parts if parts is UNKNOWN else set(parts)

    def _eval_Dict(self, node: ast.Dict, scope: Scope) -> Any:
        if None in node.keys:
            return UNKNOWN
        keys = _known(tuple(self._eval(key, scope) for key in node.keys if key))
        if keys is UNKNOWN:
            return UNKNOWN
        try:
            return dict(zip(keys, [self._lazy(value, scope) for value in node.values], strict=True))
        except TypeError:
            return UNKNOWN

    def _lazy(self, node: ast.expr, scope: Scope) -> Any:
        try:
            return self._eval(node, scope)
        except Raises:
            return UNKNOWN

    def _eval_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        test = _truth(self._eval(node.test, scope))
        if test is not None:
            return self._eval(node.body if test else node.orelse, scope)
        body, orelse = self._lazy(node.body, scope), self._lazy(node.orelse, scope)
        return body if _same(body, orelse) else UNKNOWN

    def _eval_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        stops_at = isinstance(node.op, ast.Or)
        unknown = False
        value: Any = not stops_at
        for part in node.values:
            try:
                value = self._eval(part, scope)
            except Raises:
                if unknown:
                    return UNKNOWN
                raise
            truth = _truth(value)
            if truth is None:
                unknown = True
            elif truth is stops_at:
                # A later operand decides the truth whatever the unknown one says, but not the value.
                return stops_at if unknown else value
        return UNKNOWN if unknown else value

    def _eval_Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        at_module_level = scope.variables is None and scope.function is None  # elsewhere it may close over variables
        return _Function(scope.module, node) if at_module_level else UNKNOWN

    def _eval_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        value = self._eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            truth = _truth(value)
            return UNKNOWN if truth is None else not truth
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return UNKNOWN

    _BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }

    def _eval_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        left, right = self._eval(node.left, scope), self._eval(node.right, scope)
        function = self._BINARY.get(type(node.op))
        if left is UNKNOWN or right is UNKNOWN or function is None:
            return UNKNOWN
        return _guarded(function, left, right)

    _COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
        ast.In: lambda item, container: item in container,
        ast.NotIn: lambda item, container: item not in container,
    }

    def _eval_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        left = self._eval(node.left, scope)
        result: Any = True
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            if left is UNKNOWN:
                return UNKNOWN  # whatever the right side is: it need not be looked up
            right = self._eval(comparator, scope)
            if right is UNKNOWN or _opaque(left) or _opaque(right):
                return UNKNOWN
            result = _guarded(self._COMPARE[type(op)], left, right)
            if result is UNKNOWN or not result:
                return result
            left = right
        return result

    def _eval_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        value = self._eval(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            bounds = [self._eval(b, scope) if b else None for b in (node.slice.lower, node.slice.upper)]
            if UNKNOWN in bounds or node.slice.step or not isinstance(value, tuple | list | str):
                return UNKNOWN
            return value[slice(*bounds)]
        index = self._eval(node.slice, scope)
        if index is UNKNOWN or not isinstance(value, tuple | list | dict | str):
            return UNKNOWN
        return _guarded(operator.getitem, value, index)

    def _eval_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self._attribute(self._eval(node.value, scope), node.attr)

    def _attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Module):
            return self._module_attribute(value, name)
        if isinstance(value, _External):
            return self._external_attribute(value, name)
        if isinstance(value, _Instance):
            return self._instance_attribute(value, name)
        if isinstance(value, dict) and name == "get":
            return _Method(lambda key, default=None: value.get(key, default))
        if isinstance(value, str) and name in ("split", "startswith", "strip", "lower"):
            return _Method(getattr(value, name))
        if isinstance(value, SM) and name in ("major", "minor"):
            return getattr(value, name)
        return UNKNOWN

    def _external_attribute(self, value: _External, name: str) -> Any:
        dotted = f"{value.name}.{name}"
        world = self._world
        facts: dict[str, Any] = {
            "torch.version.cuda": world.cuda,
            "torch.version.hip": "6.4" if world.kind == "hip" else None,
        }
        if dotted in facts:
            return facts[dotted]
        return _External(dotted)

    def _instance_attribute(self, value: _Instance, name: str) -> Any:
        if name in value.fields:
            return value.fields[name]
        for node in value.cls.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                function = _Function(value.cls.module, node, bound=value)
                kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
                if not kinds:
                    return function
                if all(kind == "property" or "cache" in kind for kind in kinds):
                    return self._call(function, (), {})
                return UNKNOWN
        for node in value.cls.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__getattr__" and not value.cls.node.bases:
                return self._call(_Function(value.cls.module, node, bound=value), (name,), {})
        return UNKNOWN

    # -- calls -----------------------------------------------------------------------------------------------

    def _eval_Call(self, node: ast.Call, scope: Scope) -> Any:
        if _is_objects(node.func, "__getattribute__") and len(node.args) == 2:
            target, name = self._eval(node.args[0], scope), self._eval(node.args[1], scope)
            return target.fields.get(name, UNKNOWN) if isinstance(target, _Instance) else UNKNOWN
        function = self._eval(node.func, scope)
        if function is UNKNOWN:
            return UNKNOWN
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(k.arg is None for k in node.keywords):
            return UNKNOWN
        if isinstance(function, type) or (callable(function) and function not in (getattr, hasattr)):
            for arg in node.args:
                if self._eval(arg, scope) is UNKNOWN:
                    return UNKNOWN  # a builtin of something unknown: the rest need not be looked up
        args = tuple(self._eval(arg, scope) for arg in node.args)
        kwargs = {k.arg: self._eval(k.value, scope) for k in node.keywords if k.arg}
        return self._call(function, args, kwargs)

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(function, _Partial):
            return self._call(function.function, function.args + args, {**function.kwargs, **kwargs})
        if isinstance(function, _Function):
            return self._call_function(function, args, kwargs)
        if isinstance(function, _Class):
            return self._construct(function, args, kwargs)
        if isinstance(function, _External):
            return self._call_external(function.name, args, kwargs)
        if isinstance(function, _Method):
            known = UNKNOWN not in args and UNKNOWN not in kwargs.values()
            return _guarded(function.call, *args, **kwargs) if known else UNKNOWN
        if callable(function):
            return self._call_builtin(function, args, kwargs)
        return UNKNOWN

    def _call_function(self, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = (self._world, function.node, function.bound, args, tuple(kwargs.items()))
        try:
            hash(key)
        except TypeError:
            return self._run_function(function, args, kwargs)
        calls = self._calls.setdefault(function.module, {})
        if key not in calls:
            try:
                calls[key] = self._run_function(function, args, kwargs)
            except Raises as error:
                calls[key] = Raises(error.kind)
        result = calls[key]
        if isinstance(result, Raises):
            raise Raises(result.kind)
        return result

    def _run_function(self, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        node = function.node
        if node.args.vararg or node.args.kwarg:
            raise _GiveUp
        if function.bound is not None:
            args = (function.bound, *args)
        positional = [*node.args.posonlyargs, *node.args.args]
        names = [a.arg for a in [*positional, *node.args.kwonlyargs]]
        if len(args) > len(positional):
            raise Raises("TypeError")
        variables: dict[str, Any] = {}
        scope = Scope(function.module, None if isinstance(node, ast.Lambda) else node, variables)
        defaults = node.args.defaults
        for parameter, default in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
            variables[parameter.arg] = self._eval(default, Scope(function.module))
        for keyword, kw_default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if kw_default is not None:
                variables[keyword.arg] = self._eval(kw_default, Scope(function.module))
        variables.update(zip(names, args, strict=False))
        variables.update(kwargs)
        if any(name not in variables for name in names):
            raise Raises("TypeError")
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _GiveUp
        try:
            result = self._eval(node.body, scope) if isinstance(node, ast.Lambda) else self._run(node.body, scope)
        finally:
            self._depth -= 1
        return None if result is _FELL_THROUGH else result

    def _construct(self, cls: _Class, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instance = _Instance(cls)
        for node in cls.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                self._run_function(_Function(cls.module, node, bound=instance), args, kwargs)
        return instance

    def _call_external(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world = self._world
        if name in ("functools.lru_cache", "functools.cache"):
            return args[0] if args and not isinstance(args[0], int | None) else _Method(lambda wrapped: wrapped)
        if name == "functools.partial" and args:
            return _Partial(args[0], args[1:], kwargs)
        if name == "torch.cuda.is_available":
            return world.kind != "cpu"
        if name == "torch.cuda.is_initialized":
            return world.kind != "cpu"
        if name == "torch.cuda.get_device_capability":
            if world.capability is None:
                raise Raises("RuntimeError")
            return world.capability
        if name == "torch.cuda.get_device_properties":
            if world.capability is None:
                raise Raises("RuntimeError")
            return SM(*world.capability)
        if name in ("torch.hpu.is_available", "torch.xpu.is_available", "torch.mps.is_available"):
            return False
        return UNKNOWN

    def _call_builtin(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function in (hasattr, getattr) and len(args) >= 2 and isinstance(args[1], str):
            return self._reflect(function is hasattr, args[0], args[1], args[2:])
        if UNKNOWN in args or UNKNOWN in kwargs.values() or any(_opaque(arg) for arg in args):
            return UNKNOWN
        if function in (int, str, bool, tuple, list, set, len, any, all, max, min, abs, float, sorted):
            return _guarded(function, *args, **kwargs)
        if function is map and len(args) == 2 and args[0] in (int, str):
            return _guarded(lambda: [args[0](item) for item in args[1]])
        return UNKNOWN

    def _reflect(self, asks: bool, value: Any, name: str, default: tuple[Any, ...]) -> Any:
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(value, _External):
            # torch has these everywhere; other names of torch.version exist on other vendors' builds only.
            if value.name == "torch" and name in ("cuda", "version", "xpu", "mps"):
                return True if asks else self._attribute(value, name)
            if value.name in ("torch", "torch.version") and name in ("hip", "musa", "hpu", "npu", "xpu"):
                exists = value.name == "torch.version" and name in ("hip", "xpu")
                return exists if asks else UNKNOWN
            return UNKNOWN
        if asks:
            return UNKNOWN
        return self._attribute(value, name)

    # -- statements ----------------------------------------------------------------------------------------------

    def _run(self, body: list[ast.stmt], scope: Scope) -> Any:
        """Run statements; the returned value, or _FELL_THROUGH."""
        for position, node in enumerate(body):
            self._steps += 1
            if self._steps > _STEP_LIMIT:
                raise _GiveUp
            rest = body[position + 1 :]
            if isinstance(node, ast.Return):
                return self._eval(node.value, scope) if node.value else None
            if isinstance(node, ast.If):
                return self._run_if(node, rest, scope)
            if isinstance(node, ast.Try):
                return self._run_try(node, rest, scope)
            if isinstance(node, ast.Raise):
                raise Raises(_exception_name(node))
            self._run_simple(node, scope)
        return _FELL_THROUGH

    def _run_if(self, node: ast.If, rest: list[ast.stmt], scope: Scope) -> Any:
        test = _truth(self._eval(node.test, scope))
        if test is not None:
            return self._run([*(node.body if test else node.orelse), *rest], scope)
        results = []
        for branch in (node.body, node.orelse):
            fork = Scope(scope.module, scope.function, dict(scope.variables or {}))
            try:
                results.append(self._run([*branch, *rest], fork))
            except Raises:
                results.append(UNKNOWN)
        return results[0] if _same(*results) else UNKNOWN

    def _run_try(self, node: ast.Try, rest: list[ast.stmt], scope: Scope) -> Any:
        if node.finalbody:
            raise _GiveUp
        try:
            result = self._run([*node.body, *node.orelse], scope)
        except Raises as error:
            for handler in node.handlers:
                caught = ast.unparse(handler.type) if handler.type else "Exception"
                if error.kind in caught or "Exception" in caught:
                    return self._run([*handler.body, *rest], scope)
            raise
        return self._run(rest, scope) if result is _FELL_THROUGH else result

    def _run_simple(self, node: ast.stmt, scope: Scope) -> None:
        assert scope.variables is not None
        if isinstance(node, ast.Expr):
            self._run_expression(node.value, scope)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
            for name in bound_names(node):
                scope.variables[name] = self._bound_value(node, name, scope)
        elif isinstance(node, ast.Assert):
            if _truth(self._eval(node.test, scope)) is False:
                raise Raises("AssertionError")
        elif not isinstance(node, ast.Pass | ast.Global):
            raise _GiveUp

    def _run_expression(self, node: ast.expr, scope: Scope) -> None:
        # A class that sets its fields past its own __setattr__ does not reassign them; ``self.x = …`` is a variable.
        if isinstance(node, ast.Call) and _is_objects(node.func, "__setattr__") and len(node.args) == 3:
            target, name = self._eval(node.args[0], scope), self._eval(node.args[1], scope)
            if isinstance(target, _Instance) and isinstance(name, str):
                target.fields[name] = self._eval(node.args[2], scope)
        # Any other bare call (logging, warnings) has no bearing on the value.


class _FellThrough:
    pass


_FELL_THROUGH = _FellThrough()


def is_function(value: Any) -> bool:
    """Whether an evaluated value is a function of the engine, partial ones included."""
    return isinstance(value, _Function | _Partial)


def _known(parts: Any) -> Any:
    return UNKNOWN if any(part is UNKNOWN for part in parts) else parts


def _opaque(value: Any) -> bool:
    return isinstance(value, _External | _Function | _Class | _Partial | _Method | Module)


def _truth(value: Any) -> bool | None:
    """The truth of a value, None when it is not known (something outside the source may be anything)."""
    if value is UNKNOWN or isinstance(value, _External):
        return None
    return True if _opaque(value) or isinstance(value, _Instance) else bool(value)


def foreign(value: Any) -> bool:
    """Whether a value is not known, or is a module or something from outside the tree."""
    return value is UNKNOWN or isinstance(value, _External | Module)


def _same(left: Any, right: Any) -> bool:
    if left is UNKNOWN or right is UNKNOWN:
        return False
    if isinstance(left, _Function) and isinstance(right, _Function):
        return left.node is right.node
    return left is right or (type(left) is type(right) and bool(left == right))


def _guarded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise Raises(type(error).__name__) from error


def _is_objects(node: ast.expr, name: str) -> bool:
    """Whether an expression is ``object.<name>``."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "object"
    )


def _exception_name(node: ast.Raise) -> str:
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return ast.unparse(raised) if raised else "Exception"
