"""What an expression of an installed engine is worth on a given GPU, read from source alone.

A small interpreter for the shapes that predicates have: functions, ``lru_cache(partial(...))`` assignments,
re-exports (star imports included), aliases, properties behind a name map, class methods along the lines of
inheritance, enumerations, named tuples, tuples and arithmetic on the compute capability. It follows names through
the installed source, never imports it, and answers ``UNKNOWN`` wherever it cannot be sure. What torch says in a
given world (an SM on a CUDA machine, an AMD GPU, no GPU) is the only thing it takes for granted.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from patcher.arch import ALL_SMS, SM
from patcher.bindings import (
    ANY,
    READS,
    Locals,
    Members,
    bound_names,
    changed_by,
    is_cache,
    never_surely,
    rebound_globals,
    walrus_names,
)
from patcher.source import Definition, Source, SourceTree, bodies, first_line, spanning

_STEP_LIMIT = 20_000
_DEPTH_LIMIT = 60


@dataclass(frozen=True, eq=False)
class World:
    """What torch reports: ``kind`` is cuda, hip, xpu, hpu, mps or cpu; ``capability`` the device capability.

    Part of nearly every key, so each is made once and is equal to itself only.
    """

    kind: str
    capability: tuple[int, int] | None
    cuda: str | None = None
    hip: str | None = None
    initialized: bool = True
    """Whether this process has used the GPU yet (``torch.cuda.is_initialized``)."""

    @property
    def sm(self) -> SM | None:
        """The SM on a CUDA machine, else None."""
        return SM(*self.capability) if self.kind == "cuda" and self.capability else None

    def __str__(self) -> str:
        if self.sm is not None:
            untouched = "" if self.initialized else " before its first use"
            return f"SM{self.sm}{untouched}" if self.cuda == _CUDA else f"SM{self.sm} under CUDA {self.cuda}"
        if self.capability:
            name = f"AMD gfx{self.capability[0]}{self.capability[1]}"
            return name if self.hip == _HIP else f"{name} under HIP {self.hip}"
        return "no GPU" if self.kind == "cpu" else f"{self.kind.upper()} device"


_CUDA, _HIP = "12.9", "6.4"


def cuda_world(sm: SM, cuda: str = _CUDA) -> World:
    """A CUDA machine with one GPU of this SM; 12.9 is new enough for every check, and not yet 13."""
    return _cuda_world(sm.major, sm.minor, cuda)


@cache
def _cuda_world(major: int, minor: int, cuda: str) -> World:
    return World("cuda", (major, minor), cuda)


# AMD GPUs report capabilities in the same range (RDNA4 says (12, 0)): an edit must not reach them.
OTHER_WORLDS: tuple[World, ...] = (
    World("hip", (9, 4), hip=_HIP),
    World("hip", (11, 0), hip=_HIP),
    World("hip", (12, 0), hip=_HIP),
    World("cpu", None),
)
ALL_WORLDS: tuple[World, ...] = (*(cuda_world(sm) for sm in ALL_SMS), *OTHER_WORLDS)

# What a proof asks besides: other versions of CUDA and HIP, other vendors, and SMs that no known product has.
UNKNOWN_SMS = (SM(6, 0), SM(8, 8), SM(12, 9), SM(13, 0), SM(20, 0))
_BLACKWELL_NEEDS = "12.8"


def _proof_worlds() -> tuple[World, ...]:
    versions = ("12.4", "12.8", "13.0")
    more = [cuda_world(sm, _CUDA) for sm in UNKNOWN_SMS]
    # The versions are asked on one SM of each major: what reads both must be a declared spelling anyway.
    more += [
        cuda_world(sm, cuda)
        for sm in {known.major: known for known in ALL_SMS}.values()
        for cuda in versions
        if sm.major < 10 or cuda >= _BLACKWELL_NEEDS
    ]
    amd = [World("hip", world.capability, hip="6.3") for world in OTHER_WORLDS if world.kind == "hip"]
    return (*ALL_WORLDS, *more, *amd, World("xpu", None), World("hpu", None), World("mps", None))


PROOF_WORLDS = _proof_worlds()
# Before its first use some engines ask the driver for the SM, which nothing here can answer.
UNTOUCHED_WORLDS = tuple(World("cuda", (sm.major, sm.minor), _CUDA, initialized=False) for sm in ALL_SMS)


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth")


UNKNOWN = _Unknown()


class Raises(Exception):
    """The interpreted code raises: ``kind`` is the exception's name, ``builtin`` the class if it is Python's own."""

    def __init__(self, kind: str, builtin: type[BaseException] | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        own = getattr(builtins, kind, None)
        self.builtin = builtin or (own if isinstance(own, type) and issubclass(own, BaseException) else None)

    def again(self) -> Raises:
        """The same without its traceback, which keeps every frame."""
        return Raises(self.kind, self.builtin)


class NotHere(Raises):
    """The code belongs to an object that there is none of in this world, so it does not run there."""

    def __init__(self) -> None:
        super().__init__("NotHere")

    def again(self) -> NotHere:
        return NotHere()


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


@dataclass(frozen=True)
class _Member:
    """A member of an enumeration."""

    enumeration: ast.ClassDef
    name: str


@dataclass(frozen=True)
class _Device:
    """The GPU of this world as torch.device (the CPU where there is none)."""

    type: str
    index: int = 0


class _Record(tuple[Any, ...]):
    """An instance of a named tuple of the source: it compares and unpacks like any tuple."""

    cls: _Class

    @staticmethod
    def of(cls: _Class, values: Iterable[Any]) -> _Record:
        record = _Record(values)
        record.cls = cls
        return record


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
    """One place that binds a module-level name. ``guards``: the if-tests around it, with their side.

    ``straight``: where they hold it is surely executed; not so under ``try``, in a loop, in a ``match``.
    """

    node: ast.stmt
    guards: tuple[tuple[ast.expr, bool], ...]
    straight: bool = True


class Module:
    """One source file as a module: its bindings by name, and its star imports."""

    def __init__(self, name: str, source: Source, is_package: bool) -> None:
        self.name = name
        self.source = source
        self.is_package = is_package
        self.bindings: dict[str, list[Binding]] = {}
        self.stars: list[ast.ImportFrom] = []
        # A name that some function rebinds is a variable: what the module first gave it says nothing.
        self.rebound = rebound_globals(source.data)
        self._walrus = [bisect_right(source.line_starts, w.start()) for w in re.finditer(b":=", source.data)]
        self._changes: dict[tuple[str, bool], bool] = {}
        self._collect(source.tree.body, (), True)

    def owner(self, method: ast.stmt) -> ast.ClassDef | None:
        """The class that a method is defined in."""
        for node, around in spanning(self.source.tree.body, [method.lineno]):
            if node is method:
                last = around[-1] if around else None
                return last if isinstance(last, ast.ClassDef) else None
        return None

    def _collect(self, body: list[ast.stmt], guards: tuple[tuple[ast.expr, bool], ...], straight: bool) -> None:
        for node in body:
            names = bound_names(node)
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                self.stars.append(node)
                names = [ANY]
            for name in names:
                sure = straight and not never_surely(node)
                self.bindings.setdefault(name, []).append(Binding(node, guards, sure))
            for name in walrus_names(node) if self._holds_walrus(node) else ():
                # Not the statement itself: it binds the name in passing, to what is not followed here.
                passing = ast.copy_location(ast.Pass(), node)
                self.bindings.setdefault(name, []).append(Binding(passing, guards, False))
            if isinstance(node, ast.If):
                self._collect(node.body, (*guards, (node.test, True)), straight)
                self._collect(node.orelse, (*guards, (node.test, False)), straight)
            elif not isinstance(node, Definition):
                for inner in bodies(node):
                    self._collect(inner, guards, False)

    def _holds_walrus(self, node: ast.stmt) -> bool:
        at = bisect_left(self._walrus, first_line(node))
        return at < len(self._walrus) and self._walrus[at] <= (node.end_lineno or node.lineno)

    def changes(self, name: str, container: bool) -> bool:
        """Whether the module's own code changes the container or the object behind a name of it in place."""
        if (name, container) not in self._changes:
            found = [changed_by(node) for node, _ in spanning(self.source.tree.body, self.source.lines_with(name))]
            self._changes[name, container] = any(
                name in changed.stored or (container and name in changed.called) for changed in found
            )
        return self._changes[name, container]

    def absolute(self, node: ast.ImportFrom) -> str:
        """The absolute name of the module that a ``from`` import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        keep = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join([*parts[:keep], *([node.module] if node.module else [])])


@dataclass
class Scope:
    """Where a name is looked up: a module and, inside a function, that function or a call's variables.

    ``line``: in a statement of the module itself, its line; what is bound further down is not yet there.
    """

    module: Module
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    variables: dict[str, Any] | None = None
    line: int = 0


Objects = Mapping[str, Mapping[str, str]]
"""Objects made at run time, by dotted name: kind of world → dotted name of the class that they are of there."""


class Predicates:
    """Evaluates expressions of one source tree in one world at a time. Keeps what it has worked out."""

    def __init__(self, tree: SourceTree, package: str, objects: Objects | None = None) -> None:
        self.tree = tree
        self.package = package  # names are followed inside this package only
        self.objects = objects or {}
        self._modules: dict[str, Module | None] = {}
        # What was worked out, by the module it belongs to (so that a module can be forgotten).
        self._values: dict[Module, dict[tuple[World, str, int], Any]] = {}
        self._calls: dict[Module, dict[tuple[Any, ...], tuple[Any, int]]] = {}
        self._locals: dict[Module, dict[ast.AST, Locals]] = {}
        self._members: dict[Module, dict[ast.AST, Members]] = {}
        self._reads: dict[Module, set[Module]] = {}  # module → the modules that what was worked out in it rests on
        self._within: list[Module] = []
        self._steps = 0
        self._doubts = 0  # how often something was met that may as well raise
        self._depth = 0
        self._world = ALL_WORLDS[0]

    def replaced(self, overlay: Mapping[str, bytes]) -> Predicates:
        """The same for the tree with some files replaced. What was parsed of the other files is shared."""
        other = Predicates(self.tree.with_overlay(overlay), self.package, self.objects)
        other._modules = {
            name: module for name, module in self._modules.items() if module and module.source.name not in overlay
        }
        other._locals = self._locals
        # What was worked out in a module stays true as long as no file is replaced that it was read from.
        stale = {module for module in self._modules.values() if module and module.source.name in overlay}
        while more := {module for module, read in self._reads.items() if module not in stale and read & stale}:
            stale |= more
        other._values = {module: dict(kept) for module, kept in self._values.items() if module not in stale}
        other._calls = {module: dict(kept) for module, kept in self._calls.items() if module not in stale}
        other._reads = {module: set(read) for module, read in self._reads.items() if module not in stale}
        return other

    def _read_from(self, module: Module) -> None:
        """Note that what is being worked out in one module rests on another."""
        if self._within and self._within[-1] is not module:
            self._reads.setdefault(self._within[-1], set()).add(module)

    # -- modules ---------------------------------------------------------------------------------------

    def module(self, name: str) -> Module | None:
        """The module ``a.b.c`` of the tree, or None. Raises Unparsable, IOFailure."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def _load(self, name: str) -> Module | None:
        source = self._source_of(name)
        return Module(name, source, source.name.endswith("/__init__.py")) if source else None

    def _source_of(self, name: str) -> Source | None:
        if name.split(".")[0] != self.package:
            return None
        base = name.replace(".", "/")
        return self.tree.get(f"{base}.py") or self.tree.get(f"{base}/__init__.py")

    def forget(self, module: Module) -> None:
        """Let go of a module that no other refers to, and of what was worked out in it."""
        for kept in (self._values, self._calls, self._locals, self._members):
            kept.pop(module, None)

    def known_module(self, name: str) -> Module | None:
        """The module when it was read already, else None."""
        return self._modules.get(name)

    def module_at(self, path: str) -> Module | None:
        """The module of the file at ``path``."""
        return self.module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))

    @property
    def relied_on(self) -> set[tuple[str, str]]:
        """Every module-level name that an answer so far rests on: module and name."""
        return {(module.name, name) for module, values in self._values.items() for _, name, _ in values}

    # -- the public question -----------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: Scope, world: World) -> Any:
        """The value of an expression in ``scope``, or UNKNOWN. Raises Raises when evaluating it raises."""
        self._world, self._steps, self._depth, self._within = world, 0, 0, [scope.module]
        try:
            return self._eval(node, scope)
        except _GiveUp:
            return UNKNOWN

    def truth(self, node: ast.expr, scope: Scope, world: World) -> bool | None:
        """The truth of an expression, or None when it is not known. Raises Raises."""
        return _truth(self.value(node, scope, world))

    def exported(self, module: str, name: str, world: World) -> Any:
        """The value of ``module.name``, or UNKNOWN; Raises('ImportError') when the module does not bind it."""
        self._world, self._steps, self._depth, self._within = world, 0, 0, []
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
        if scope.function is not None:
            local = self._local(name, scope)
            if local is not None:
                return local[0]
        return self._global(name, scope.module, scope.line)

    def _local_names(self, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Locals:
        kept = self._locals.setdefault(module, {})
        if function not in kept:
            kept[function] = Locals(function, module.source)
        return kept[function]

    def _local(self, name: str, scope: Scope) -> tuple[Any] | None:
        """A function's own name: known when it is bound exactly once, by a plain assignment or import."""
        assert scope.function is not None
        own = self._local_names(scope.function, scope.module)
        if name not in own:
            return None
        found = own.binders(name)
        # In a running call what is bound so far is in its variables; the rest is bound in ways not followed.
        if scope.variables is not None or len(found) != (name not in own.parameters):
            return (UNKNOWN,)
        if not found:
            value = self._parameter(name, scope.function, scope.module)
        elif isinstance(found[0], ast.Assign | ast.Import | ast.ImportFrom) and name in bound_names(found[0]):
            value = self._bound_value(found[0], name, scope)
        else:
            return (UNKNOWN,)
        if isinstance(value, _CHANGING):
            changes = own.changed.stored | (own.changed.called if isinstance(value, _CONTAINERS) else set())
            return (UNKNOWN if name in changes else value,)
        return (value,)

    def receivers(self, method: ast.AST) -> set[str]:
        """The name of a method's receiver (``self``, ``cls``), if it has one."""
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            return set()
        positional = [*method.args.posonlyargs, *method.args.args]
        return {positional[0].arg} if positional else set()

    def _parameter(self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Any:
        """What is known of a parameter that nobody has given a value: a receiver, the GPU, its capability."""
        positional = [*function.args.posonlyargs, *function.args.args]
        owner = module.owner(function)
        if owner is not None and positional and positional[0].arg == name:
            return self._receiver(_Class(module, owner), function)
        parameter = next((a for a in [*positional, *function.args.kwonlyargs] if a.arg == name), None)
        return self._of_type(parameter.annotation if parameter else None, module)

    def _receiver(self, owner: _Class, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        """``self`` or ``cls`` of a method: known where the object made in this world is of the method's class."""
        kinds = {self._decorator(decorator, Scope(owner.module)) for decorator in function.decorator_list}
        if "staticmethod" in kinds:
            return UNKNOWN
        for name, classes in self.objects.items():
            made = {kind: cls for kind, dotted in classes.items() if (cls := self._class_called(dotted))}
            of_owner = {kind for kind, cls in made.items() if self._is_kind_of(cls, owner)}
            if self._world.kind in of_owner:
                here = self._module_attribute_of(name)
                return here.cls if "classmethod" in kinds and isinstance(here, _Instance) else here
            if of_owner and self._world.kind in made:
                raise NotHere
        return UNKNOWN

    def _is_kind_of(self, cls: _Class, above: _Class) -> bool:
        return any(known is not None and known.node is above.node for known in self._lineage(cls))

    def _module_attribute_of(self, dotted: str) -> Any:
        module, _, name = dotted.rpartition(".")
        found = self.module(module)
        return self._module_attribute(found, name) if found else UNKNOWN

    def _class_called(self, dotted: str) -> _Class | None:
        try:
            value = self._module_attribute_of(dotted)
        except Raises:
            return None
        return value if isinstance(value, _Class) else None

    def _of_type(self, annotation: ast.expr | None, module: Module) -> Any:
        """A value of this type where the type tells it: a device is the GPU, a (major, minor) its capability."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return UNKNOWN
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            annotation = annotation.left
        elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).endswith("Optional"):
            annotation = annotation.slice
        if not isinstance(annotation, ast.Name | ast.Attribute) or self._tells_nothing(annotation, module):
            return UNKNOWN
        try:
            kind = self._annotated(annotation, module)
        except Raises:
            return UNKNOWN
        if kind == _External("torch.device"):
            return _Device("cuda" if self._world.kind in ("cuda", "hip") else self._world.kind)
        capability = self._world.capability
        if isinstance(kind, _Class) and capability is not None and self._fields(kind) == ["major", "minor"]:
            return _Record.of(kind, capability)
        return UNKNOWN

    def _tells_nothing(self, annotation: ast.Name | ast.Attribute, module: Module) -> bool:
        """Whether a type is a class from a file of the tree that has no named tuple: it need not be parsed for that."""
        bindings = module.bindings.get(annotation.id, []) if isinstance(annotation, ast.Name) else []
        node = bindings[-1].node if bindings else None
        if not isinstance(node, ast.ImportFrom):
            return False
        alias = next((a.name for a in node.names if (a.asname or a.name) == ast.unparse(annotation)), "")
        source = self._source_of(module.absolute(node))
        return source is not None and f"class {alias}".encode() in source.data and b"NamedTuple" not in source.data

    def _annotated(self, annotation: ast.Name | ast.Attribute, module: Module) -> Any:
        try:
            return self._eval(annotation, Scope(module))
        except Raises:
            found = module.bindings.get(annotation.id) if isinstance(annotation, ast.Name) else None
            if not found:
                raise
            # What is imported for type checkers only is no name at run time, but it says what the type is.
            return self._bound_value(found[-1].node, ast.unparse(annotation), Scope(module))

    def _global(self, name: str, module: Module, line: int = 0) -> Any:
        if name == "__debug__":
            return UNKNOWN
        try:
            if module.bindings.keys().isdisjoint((name, ANY)) and module.rebound.isdisjoint((name, ANY)):
                raise Raises("NameError")
            return self._module_attribute(module, name, line)
        except Raises:
            if hasattr(builtins, name):
                return getattr(builtins, name)
            raise Raises("NameError") from None

    def _module_attribute(self, module: Module, name: str, line: int = 0) -> Any:
        if line and len(module.bindings.get(name, ())) < 2:
            line = 0
        self._read_from(module)
        key = (self._world, name, line)
        values = self._values.setdefault(module, {})
        if key not in values:
            values[key] = UNKNOWN  # a cycle of imports or definitions ends here
            doubts = self._doubts
            self._within.append(module)
            try:
                values[key] = self._find_module_attribute(module, name, line)
            except Raises as error:
                values[key] = error.again()
            except _GiveUp:
                values[key] = UNKNOWN
            finally:
                self._within.pop()
            self._doubts = doubts  # the module was executed long before
        value = values[key]
        if isinstance(value, Raises):
            raise value.again()
        return value

    def _find_module_attribute(self, module: Module, name: str, line: int) -> Any:
        if f"{module.name}.{name}" in self.objects:
            return self._made(f"{module.name}.{name}")
        if name in module.rebound or ANY in module.rebound:
            return UNKNOWN
        values: list[Any] = []
        for binding in self._last_first(module, name):
            if line and binding.node.lineno >= line:
                continue
            sides = [self._side(test, side, module) for test, side in binding.guards]
            if False in sides:
                continue
            if isinstance(binding.node, ast.ImportFrom) and binding.node.names[0].name == ANY:
                given = self._from_star(binding.node, name, module)
                if given is None:
                    continue
                values.append(given[0])
            else:
                scope = Scope(module, line=binding.node.lineno)
                try:
                    values.append(self._bound_value(binding.node, name, scope))
                except Raises:
                    if binding.straight:
                        raise
                    values.append(UNKNOWN)  # what happens then is up to the code around it
            if binding.straight and None not in sides:
                break  # surely executed: what came before is overwritten
        else:
            if values:
                return UNKNOWN  # perhaps none of them was executed
        if values:
            value = values[0] if all(_same(value, values[0]) for value in values) else UNKNOWN
            changing = isinstance(value, _CHANGING) and module.changes(name, isinstance(value, _CONTAINERS))
            return UNKNOWN if changing else value
        submodule = self.module(f"{module.name}.{name}") if module.is_package else None
        if submodule is not None:
            return submodule
        if "__getattr__" in module.bindings or any(self.module(module.absolute(star)) is None for star in module.stars):
            return UNKNOWN  # it may come from a module outside the tree, or be made when asked for
        raise Raises("ImportError")

    def _made(self, dotted: str) -> Any:
        """An object made at run time, of the class that it has in this world, as far as the engine says."""
        cls = self._class_called(self.objects[dotted].get(self._world.kind, ""))
        return _Instance(cls) if cls else UNKNOWN

    def _last_first(self, module: Module, name: str) -> list[Binding]:
        """What may bind a name, star imports included, the last one first."""
        found = module.bindings.get(name, [])
        if not module.stars:
            return found[::-1]
        if found and found[-1].straight and not found[-1].guards and found[-1].node.lineno > module.stars[-1].lineno:
            return found[::-1]
        return sorted((*found, *module.bindings[ANY]), key=lambda binding: -binding.node.lineno)

    def _from_star(self, node: ast.ImportFrom, name: str, module: Module) -> tuple[Any] | None:
        """What a star import gives for a name; None when it gives no such name."""
        origin = self.module(module.absolute(node))
        if origin is None:
            return (UNKNOWN,) if name in module.bindings and not name.startswith("_") else None
        if origin is module:
            return None
        if "__all__" in origin.bindings:
            listed = self._module_attribute(origin, "__all__")
            if not isinstance(listed, list | tuple):
                return (UNKNOWN,)
            if name not in listed:
                return None
        elif name.startswith("_"):
            return None
        try:
            return (self._module_attribute(origin, name),)
        except Raises:
            return None

    def _side(self, test: ast.expr, side: bool, module: Module) -> bool | None:
        """Whether an if-test takes this side; None when not known."""
        try:
            truth = _truth(self._eval(test, Scope(module, line=test.lineno)))
        except (Raises, _GiveUp):
            return None
        return None if truth is None else truth is side

    def _bound_value(self, node: ast.stmt, name: str, scope: Scope) -> Any:
        if isinstance(node, ast.FunctionDef):
            return self._decorated(node, scope)
        if isinstance(node, ast.ClassDef):
            plain = all(self._decorator(d, scope) in _PLAIN_CLASS for d in node.decorator_list)
            return _Class(scope.module, node) if plain else UNKNOWN
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
        # A cache gives what the function gives; any other decorator may give anything.
        if any(self._decorator(d, scope) not in ("cache", "staticmethod", "classmethod") for d in node.decorator_list):
            return UNKNOWN
        return _Function(scope.module, node)

    def _decorator(self, node: ast.expr, scope: Scope) -> str:
        """What a decorator is, by what its name is bound to: ``cache``, a builtin, a dotted name, or nothing known."""
        called = node.func if isinstance(node, ast.Call) else node
        try:
            value = self._eval(called, scope)
        except (Raises, _GiveUp):
            return ""
        if isinstance(value, _External):
            return "cache" if value.name in _CACHES else value.name
        if isinstance(value, _Function) and called is node and is_cache(value.node):
            return "cache"
        return value.__name__ if value in (property, staticmethod, classmethod) else ""

    def _imported_module(self, node: ast.Import, name: str) -> Any:
        for alias in node.names:
            if alias.asname == name:
                self._imports(alias.name)
                return self.module(alias.name) or _External(alias.name)
            if alias.asname is None and alias.name.split(".")[0] == name:
                self._imports(alias.name)
                return self.module(name) or _External(name)
        return UNKNOWN

    def _imported_name(self, module: str, name: str) -> Any:
        self._imports(module)
        if f"{module}.{name}" in self.objects:
            return self._made(f"{module}.{name}")
        found = self.module(module)
        if found is None:
            return self.module(f"{module}.{name}") or self._external(f"{module}.{name}")
        return self._module_attribute(found, name)

    def _imports(self, module: str) -> None:
        """An import may fail, but for torch, which every answer takes for granted, and Python's own modules."""
        if module.split(".")[0] not in ("torch", *sys.stdlib_module_names):
            self._doubts += 1

    # -- expressions -------------------------------------------------------------------------------------------

    def _eval(self, node: ast.expr, scope: Scope) -> Any:
        self._steps += 1
        if self._steps > _STEP_LIMIT:
            raise _GiveUp
        method = self._EVALUATED.get(type(node))
        value = method(self, node, scope) if method else UNKNOWN
        if value is UNKNOWN:
            self._doubts += 1
        return value

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
        if isinstance(value, dict | list | set) and name not in READS:
            raise _GiveUp  # it changes the container
        if isinstance(value, str) and name in ("split", "startswith", "strip", "lower"):
            return _Method(getattr(value, name))
        if isinstance(value, SM) and name in ("major", "minor"):
            return getattr(value, name)
        if isinstance(value, _Device) and name in ("type", "index"):
            return getattr(value, name)
        if isinstance(value, _Record):
            return self._record_attribute(value, name)
        if isinstance(value, _Class):
            return self._class_attribute(value, value, name)
        if isinstance(value, _Member) and name == "name":
            return value.name
        return UNKNOWN

    def _external_attribute(self, value: _External, name: str) -> Any:
        found = self._external(f"{value.name}.{name}")
        if isinstance(found, _External) and (not found.name.startswith("torch.") or found.name.count(".") > 1):
            self._doubts += 1  # it may not be there
        return found

    def _external(self, dotted: str) -> Any:
        facts: dict[str, Any] = {
            "torch.version.cuda": self._world.cuda,
            "torch.version.hip": self._world.hip,
            "typing.TYPE_CHECKING": False,
        }
        return facts.get(dotted, _External(dotted))

    def _instance_attribute(self, value: _Instance, name: str) -> Any:
        if any(self._resets(above, name) for above in self._lineage(value.cls)):
            return UNKNOWN
        if name in value.fields:
            return value.fields[name]
        if self._member(value.cls, name) is not None:
            return self._class_attribute(value.cls, value, name)
        found = self._member(value.cls, "__getattr__")
        if found is not None:
            owner, node = found
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                return self._call(_Function(owner.module, node, bound=value), (name,), {})
        return UNKNOWN

    def _members_of(self, cls: _Class) -> Members:
        self._read_from(cls.module)
        kept = self._members.setdefault(cls.module, {})
        if cls.node not in kept:
            kept[cls.node] = Members(cls.node, cls.module.source)
        return kept[cls.node]

    # -- classes ---------------------------------------------------------------------------------------------

    def _lineage(self, cls: _Class) -> list[_Class | None]:
        """A class and those it inherits from, nearest first; None where one outside the source stands between."""
        found: list[_Class | None] = [cls]
        for base in cls.node.bases:
            value = self._lazy(base, Scope(cls.module, line=cls.node.lineno))
            if isinstance(value, _Class):
                found += self._lineage(value)
            elif value is not object and not (isinstance(value, _External) and value.name in _BARE_BASES):
                found.append(None)
        nodes = [above.node for above in found if above]
        return found if len(nodes) == len(set(nodes)) else [cls, None]  # a diamond: its order is not followed

    def _resets(self, cls: _Class | None, name: str) -> bool:
        """Whether an attribute may be another than the class says; what is outside the source is not asked."""
        own = self._members_of(cls) if cls else None
        return own is not None and ("__getattribute__" in own.bound or own.resets(name))

    def _member(self, cls: _Class, name: str) -> tuple[_Class, ast.stmt | None] | None:
        """What binds a name in the class nearest to ``cls``, None for the statement when it may be another's.

        None altogether when no class binds it.
        """
        for above in self._lineage(cls):
            if above is None:
                return cls, None
            bound = self._members_of(above).bound.get(name)
            if bound:
                node, sure = bound[-1]
                sure = sure and (len(bound) == 1 or isinstance(node, ast.FunctionDef))
                return above, node if sure else None
        return None

    def _outer_bases(self, cls: _Class) -> set[str]:
        """The classes outside the source that a class names as its bases, by dotted name."""
        values = [self._lazy(base, Scope(cls.module, line=cls.node.lineno)) for base in cls.node.bases]
        return {value.name for value in values if isinstance(value, _External)}

    def _fields(self, cls: _Class) -> list[str]:
        """The fields of a named tuple, in order; empty for any other class."""
        if self._outer_bases(cls) != {_NAMED_TUPLE}:
            return []
        nodes = [node for node in cls.node.body if isinstance(node, ast.AnnAssign)]
        return [node.target.id for node in nodes if isinstance(node.target, ast.Name)]

    def _class_attribute(self, cls: _Class, receiver: _Class | _Instance | _Record, name: str) -> Any:
        """``receiver.name`` as the class and those above it define it; UNKNOWN when they do not."""
        found = self._member(cls, name)
        if found is None or any(self._resets(above, name) for above in self._lineage(cls)):
            return UNKNOWN
        owner, node = found
        if isinstance(node, ast.FunctionDef):
            return self._method(_Function(owner.module, node), cls, receiver)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            return UNKNOWN
        if self._outer_bases(owner) == {_ENUM}:
            return self._enumerated(owner, name)
        own = self._members_of(owner).bound
        if any(isinstance(part, ast.Name) and part.id in own for part in ast.walk(node.value)):
            return UNKNOWN  # another name of the class's body
        value = self._bound_value(node, name, Scope(owner.module, line=node.lineno))
        return UNKNOWN if isinstance(value, _CHANGING) else value

    def _enumerated(self, cls: _Class, name: str) -> Any:
        """A member of an enumeration in which no two members are one and the same."""
        own = self._members_of(cls).bound
        values = [node.value for bound in own.values() for node, _ in bound if isinstance(node, ast.Assign)]
        fixed = [ast.dump(value) for value in values if isinstance(value, ast.Constant)]
        made = [self._lazy(v.func, Scope(cls.module)) for v in values if isinstance(v, ast.Call) and not v.args]
        plain = len(fixed) == len(set(fixed)) and all(value == _External("enum.auto") for value in made)
        plain = plain and (len(values) in (len(fixed), len(made))) and len(cls.node.bases) == 1
        return _Member(cls.node, name) if plain and own.keys().isdisjoint(_OWN_COMPARISON) else UNKNOWN

    def _method(self, function: _Function, cls: _Class, receiver: _Class | _Instance | _Record) -> Any:
        assert isinstance(function.node, ast.FunctionDef)
        scope = Scope(function.module, line=function.node.lineno)
        kinds = {self._decorator(decorator, scope) for decorator in function.node.decorator_list} - {"cache"}
        if kinds == {"staticmethod"}:
            return function
        if kinds == {"classmethod"}:
            return _Function(function.module, function.node, bound=cls)
        if isinstance(receiver, _Class):
            return function if not kinds else UNKNOWN
        bound = _Function(function.module, function.node, bound=receiver)
        if not kinds:
            return bound
        return self._call(bound, (), {}) if kinds <= {"property", "functools.cached_property"} else UNKNOWN

    def _record_attribute(self, value: _Record, name: str) -> Any:
        fields = self._fields(value.cls)
        if name in fields:
            return value[fields.index(name)]
        return self._class_attribute(value.cls, value, name)

    # -- calls -----------------------------------------------------------------------------------------------

    def _eval_Call(self, node: ast.Call, scope: Scope) -> Any:
        if _is_of_object(node.func, "__getattribute__") and len(node.args) == 2:
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
        self._read_from(function.module)
        key = (self._world, function.node, _typed(function.bound), _typed(args), _typed(tuple(kwargs.items())))
        try:
            hash(key)
        except TypeError:
            return self._run_function(function, args, kwargs)
        calls = self._calls.setdefault(function.module, {})
        if key not in calls:
            before = self._doubts
            self._within.append(function.module)
            try:
                result = self._run_function(function, args, kwargs)
            except Raises as error:
                result = error.again()
            finally:
                self._within.pop()
            calls[key] = (result, self._doubts - before)
        else:
            self._doubts += calls[key][1]
        result = calls[key][0]
        if isinstance(result, Raises):
            raise result.again()
        return result

    def _run_function(self, function: _Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        node = function.node
        if node.args.vararg or node.args.kwarg:
            raise _GiveUp
        if isinstance(node, ast.Lambda) and any(isinstance(part, ast.NamedExpr | ast.Yield) for part in ast.walk(node)):
            raise _GiveUp
        if not isinstance(node, ast.Lambda) and self._local_names(node, function.module).generator:
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
        if any(name not in variables for name in names) or not set(kwargs) <= set(names):
            raise Raises("TypeError")
        for parameter in [*positional, *node.args.kwonlyargs]:
            if variables[parameter.arg] is UNKNOWN:
                variables[parameter.arg] = self._of_type(parameter.annotation, function.module)
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _GiveUp
        try:
            result = self._eval(node.body, scope) if isinstance(node, ast.Lambda) else self._run(node.body, scope)
        finally:
            self._depth -= 1
        return None if result is _FELL_THROUGH else result

    def _construct(self, cls: _Class, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fields = self._fields(cls)
        if fields:
            values = dict(zip(fields, args, strict=False)) | kwargs
            whole = list(values) == fields and UNKNOWN not in values.values()
            return _Record.of(cls, values.values()) if whole else UNKNOWN
        own = self._members_of(cls)
        if "__new__" in own.bound or cls.node.keywords or _ENUM in self._outer_bases(cls):
            return UNKNOWN
        instance = _Instance(cls)
        if "__init__" in own.bound:
            node, sure = own.bound["__init__"][-1]
            if not sure or not isinstance(node, ast.FunctionDef) or node.decorator_list:
                return UNKNOWN
            self._run_function(_Function(cls.module, node, bound=instance), args, kwargs)
        return instance

    _EVALUATED: dict[type[ast.expr], Callable[[Predicates, Any, Scope], Any]] = {
        ast.Attribute: _eval_Attribute,
        ast.BinOp: _eval_BinOp,
        ast.BoolOp: _eval_BoolOp,
        ast.Call: _eval_Call,
        ast.Compare: _eval_Compare,
        ast.Constant: _eval_Constant,
        ast.Dict: _eval_Dict,
        ast.IfExp: _eval_IfExp,
        ast.Lambda: _eval_Lambda,
        ast.List: _eval_List,
        ast.Name: _eval_Name,
        ast.Set: _eval_Set,
        ast.Subscript: _eval_Subscript,
        ast.Tuple: _eval_Tuple,
        ast.UnaryOp: _eval_UnaryOp,
    }

    def _call_external(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world = self._world
        if name in ("functools.lru_cache", "functools.cache"):
            return args[0] if args and not isinstance(args[0], int | None) else _Method(lambda wrapped: wrapped)
        if name == "functools.partial" and args:
            return _Partial(args[0], args[1:], kwargs)
        if name == "torch.cuda.is_available":
            return world.capability is not None
        if name == "torch.cuda.is_initialized":
            return world.initialized and world.capability is not None
        if name == "torch.cuda.get_device_capability":
            if world.capability is None:
                raise Raises("RuntimeError")
            return world.capability
        if name == "torch.cuda.get_device_properties":
            if world.capability is None:
                raise Raises("RuntimeError")
            return SM(*world.capability)
        if name in _OTHER_VENDORS:
            return world.kind == _OTHER_VENDORS[name]
        if name in ("packaging.version.parse", "packaging.version.Version") and args and isinstance(args[0], str):
            from packaging.version import Version

            return _guarded(Version, args[0])
        return UNKNOWN

    def _call_builtin(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function in (hasattr, getattr) and len(args) >= 2 and isinstance(args[1], str):
            return self._reflect(function is hasattr, args[0], args[1], args[2:])
        if function is isinstance and len(args) == 2:
            return self._is_instance(*args)
        if UNKNOWN in args or UNKNOWN in kwargs.values() or any(_opaque(arg) for arg in args):
            return UNKNOWN
        if function in (int, str, bool, tuple, list, set, len, any, all, max, min, abs, float, sorted):
            return _guarded(function, *args, **kwargs)
        if function is map and len(args) == 2 and args[0] in (int, str):
            return _guarded(lambda: [args[0](item) for item in args[1]])
        return UNKNOWN

    def _is_instance(self, value: Any, kind: Any) -> Any:
        if isinstance(kind, _Class) and isinstance(value, _Record | _Instance):
            if self._is_kind_of(value.cls, kind):
                return True
            return UNKNOWN if None in self._lineage(value.cls) else False
        plain = isinstance(value, int | str | tuple | list | dict | None) and not _opaque(value)
        if plain and kind in (int, str, tuple, list, dict, bool, float):
            return isinstance(value, kind)
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
                exists = exists or (value.name == "torch" and name == self._world.kind)
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
                raise self._raised(node, scope)
            self._run_simple(node, scope)
        return _FELL_THROUGH

    def _run_if(self, node: ast.If, rest: list[ast.stmt], scope: Scope) -> Any:
        test = _truth(self._eval(node.test, scope))
        if test is not None:
            return self._run([*(node.body if test else node.orelse), *rest], scope)
        return self._either([[*node.body, *rest], [*node.orelse, *rest]], scope)

    def _either(self, ways: list[list[ast.stmt]], scope: Scope, lost: Sequence[str] = ()) -> Any:
        """Run each of the ways that may be taken, ``lost`` names not known; what they agree on is known."""
        results, ends = [], []
        for way in ways:
            fork = Scope(scope.module, scope.function, dict(scope.variables or {}))
            assert fork.variables is not None
            fork.variables.update(dict.fromkeys(lost, UNKNOWN))
            try:
                results.append(self._run(way, fork))
            except Raises:
                self._doubts += 1
                results.append(UNKNOWN)
            ends.append(fork.variables)
        self._join(scope, ends)
        return results[0] if all(_same(result, results[0]) for result in results) else UNKNOWN

    def _join(self, scope: Scope, ends: list[dict[str, Any]]) -> None:
        assert scope.variables is not None
        for name in set().union(*ends):
            values = [end.get(name, UNKNOWN) for end in ends]
            scope.variables[name] = values[0] if all(_same(value, values[0]) for value in values) else UNKNOWN

    def _run_try(self, node: ast.Try, rest: list[ast.stmt], scope: Scope) -> Any:
        assert scope.variables is not None
        if node.finalbody:
            raise _GiveUp
        before, doubts = dict(scope.variables), self._doubts
        caught: ast.ExceptHandler | None = None
        result: Any = _FELL_THROUGH
        try:
            result = self._run(node.body, scope)
        except Raises as error:
            if self._doubts == doubts:
                caught = self._handler(node.handlers, error, scope)
                if caught is None:
                    raise
                scope.variables[_RAISED] = error
        if self._doubts != doubts:
            # Something in the body may have raised, so each handler may run, from anywhere in the body.
            bound = [
                n for s in node.body for part in ast.walk(s) if isinstance(part, ast.stmt) for n in bound_names(part)
            ]
            names = [handler.name for handler in node.handlers if handler.name]
            start = Scope(scope.module, scope.function, before)
            handled = self._either([[*h.body, *rest] for h in node.handlers], start, [*bound, *names, _RAISED])
            ended = result if result is not _FELL_THROUGH else self._either([[*node.orelse, *rest]], scope)
            assert start.variables is not None
            self._join(scope, [scope.variables, start.variables])
            return ended if _same(ended, handled) else UNKNOWN
        if caught is not None:
            if caught.name:
                scope.variables[caught.name] = UNKNOWN
            return self._run([*caught.body, *rest], scope)
        return self._run([*node.orelse, *rest], scope) if result is _FELL_THROUGH else result

    def _handler(self, handlers: list[ast.ExceptHandler], error: Raises, scope: Scope) -> ast.ExceptHandler | None:
        """The handler that takes an exception; gives up where its classes are not Python's own."""
        for handler in handlers:
            if handler.type is None:
                return handler
            listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            classes = [self._eval(part, scope) for part in listed]
            if error.builtin is None or not all(_is_exception(cls) for cls in classes):
                raise _GiveUp
            if issubclass(error.builtin, tuple(classes)):
                return handler
        return None

    def _raised(self, node: ast.Raise, scope: Scope) -> Raises:
        assert scope.variables is not None
        if node.exc is None:
            error = scope.variables.get(_RAISED)
            if not isinstance(error, Raises):
                raise _GiveUp
            return error
        named = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        cls = self._eval(named, scope)
        if _is_exception(cls):
            return Raises(cls.__name__, cls)
        return Raises(f"{ast.unparse(named)} (not a builtin)")

    def _run_simple(self, node: ast.stmt, scope: Scope) -> None:
        assert scope.variables is not None
        if isinstance(node, ast.Expr):
            self._run_expression(node.value, scope)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
            for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
                self._store(target, scope)
            for name in bound_names(node):
                scope.variables[name] = self._bound_value(node, name, scope)
        elif isinstance(node, ast.Assert):
            truth = _truth(self._eval(node.test, scope))
            if truth is False:
                raise Raises("AssertionError")
        elif not isinstance(node, ast.Pass | ast.Global):
            raise _GiveUp

    def _store(self, target: ast.expr | None, scope: Scope) -> None:
        """An attribute that is set becomes a variable; a container that is changed is followed no further."""
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._store(part, scope)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            value = self._eval(target.value, scope)
            if isinstance(value, _Instance) and isinstance(target, ast.Attribute):
                value.fields[target.attr] = UNKNOWN
            elif value is not UNKNOWN and not isinstance(value, _External):
                raise _GiveUp
        elif isinstance(target, ast.Starred):
            raise _GiveUp

    def _run_expression(self, node: ast.expr, scope: Scope) -> None:
        # A class that sets its fields past its own __setattr__ does not reassign them; ``self.x = …`` is a variable.
        if isinstance(node, ast.Call) and _is_of_object(node.func, "__setattr__") and len(node.args) == 3:
            target, name = self._eval(node.args[0], scope), self._eval(node.args[1], scope)
            if isinstance(target, _Instance) and isinstance(name, str):
                target.fields[name] = self._eval(node.args[2], scope)
            return
        if isinstance(node, ast.Constant):
            return
        # Any other bare call (logging, warnings) has no bearing on the value, unless it raises or changes something.
        try:
            self._eval(node, scope)
        except _GiveUp:
            if not isinstance(node, ast.Call) or self._reaches_state(node, scope):
                raise
            self._doubts += 1
        if isinstance(node, ast.Call) and any(isinstance(a, ast.Name) for a in node.args):
            given = [self._name(a.id, scope) for a in node.args if isinstance(a, ast.Name)]
            if any(isinstance(value, _CONTAINERS) for value in given):
                raise _GiveUp

    def _reaches_state(self, node: ast.Call, scope: Scope) -> bool:
        """Whether a call is made on, or is given, something that it could change."""
        parts = [*node.args, *(k.value for k in node.keywords)]
        if isinstance(node.func, ast.Attribute):
            parts.append(node.func.value)
        for part in parts:
            try:
                value = self._eval(part, scope)
            except _GiveUp:
                return True
            if isinstance(value, _CHANGING):
                return True
        return False


class _FellThrough:
    pass


_FELL_THROUGH = _FellThrough()


_CONTAINERS = (dict, list, set)
_CHANGING = (dict, list, set, _Instance, _Class)
_RAISED = " raised"  # no identifier: the exception that a handler is handling
_ENUM, _NAMED_TUPLE = "enum.Enum", "typing.NamedTuple"
_BARE_BASES = (_ENUM, _NAMED_TUPLE, "abc.ABC", "typing.Protocol")  # they give a class no attribute that is asked for
_OWN_COMPARISON = ("__eq__", "__ne__", "__bool__", "__new__", "_missing_", "_generate_next_value_")
_CACHES = ("functools.lru_cache", "functools.cache")
_PLAIN_CLASS = ("dataclasses.dataclass", "functools.total_ordering", "enum.unique", "typing.final")
_OTHER_VENDORS = {
    "torch.hpu.is_available": "hpu",
    "torch.xpu.is_available": "xpu",
    "torch.mps.is_available": "mps",
    "torch.backends.mps.is_available": "mps",
}


def _is_of_object(node: ast.expr, name: str) -> bool:
    """Whether an expression is ``object.name``."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "object"
    )


def _typed(value: Any) -> Any:
    """A key in which ``1``, ``1.0`` and ``True`` differ, and a named tuple from a plain one."""
    if isinstance(value, tuple):
        return (value.cls.node if isinstance(value, _Record) else tuple, *map(_typed, value))
    return (type(value), value)


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


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
    if isinstance(value, _Instance):  # it may have a truth of its own, or inherit one
        own = {getattr(node, "name", "") for node in ast.walk(value.cls.node)}
        return None if value.cls.node.bases or own & {"__bool__", "__len__"} else True
    if isinstance(value, _Class) and (value.node.keywords or value.node.bases):
        return None
    return True if _opaque(value) else bool(value)


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
