"""Value sites: numbers that are wrong for the target, found and proven by running the function that gives them.

The function is cut out of the installed source and run with stand-ins: what its module knows about the GPU is
filled in for one world, triton's arithmetic is real, a kernel launch is recorded instead of made. The engine is
not imported and no GPU is needed.
"""

from __future__ import annotations

import ast
import builtins
import dis
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import CodeType, MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

from patcher.arch import SM
from patcher.bindings import bound_names
from patcher.condition import Truth
from patcher.errors import SmPatchError, Unrecognised
from patcher.gate import Direction
from patcher.predicate import UNKNOWN, Raises, Scope, World
from patcher.sites import (
    Place,
    Site,
    Splice,
    Target,
    View,
    guard_text,
    indent_step,
    is_guard,
    mentioned,
    spell_target,
)
from patcher.source import Definition

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Tensor:
    """Stands in for a tensor: a shape and an element size in bytes."""

    shape: tuple[int, ...]
    itemsize: int = 2

    def element_size(self) -> int:
        return self.itemsize

    def stride(self, axis: int) -> int:
        size = 1
        for extent in self.shape[axis + 1 :] if axis >= 0 else self.shape[len(self.shape) + axis + 1 :]:
            size *= extent
        return size

    def size(self, axis: int) -> int:
        return self.shape[axis]

    def dim(self) -> int:
        return len(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel() * self.itemsize

    @property
    def device(self) -> str:
        return "the GPU"

    @property
    def dtype(self) -> str:
        return dtype_of(self.itemsize)


def dtype_of(itemsize: int) -> str:
    """Stands in for a dtype whose elements have ``itemsize`` bytes."""
    return f"dtype of {itemsize} bytes"


@dataclass(frozen=True)
class Launch:
    """A kernel launch that was recorded instead of made."""

    kernel: str
    grid: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass
class Run:
    """What one run of the function showed: the value it gave, the launches it made, the exception it raised."""

    result: Any = None
    launches: list[Launch] = field(default_factory=list)
    raised: str = ""

    def same_as(self, other: Run, except_for: frozenset[str] = frozenset()) -> bool:
        """Whether both showed the same, but for the named keyword arguments of launches (and the grid, if any).

        ``return`` stands for the value that the function gives.
        """
        if len(self.launches) != len(other.launches) or self.raised != other.raised:
            return False
        if "return" not in except_for and self.result != other.result:
            return False
        for mine, theirs in zip(self.launches, other.launches, strict=True):
            if mine.kernel != theirs.kernel or mine.args != theirs.args or set(mine.kwargs) != set(theirs.kwargs):
                return False
            if not except_for and mine.grid != theirs.grid:
                return False
            if any(mine.kwargs[k] != theirs.kwargs[k] for k in mine.kwargs if k not in except_for):
                return False
        return True


def _nothing(world: World) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class ValueCheck:
    """How a recipe checks a function's values: pure data and pure functions.

    ``cases``: every kind of input that the function can get. ``arguments``: the stand-in arguments of one.
    ``needed``: what the launches of a run take, in the unit of ``limits``, for one case. ``limits``: the most that
    each SM has. ``varies``: the keyword arguments of a launch that the fix may change (``return``: what is given
    back). ``given``: stand-ins for names of the module by world, for what the source alone does not tell (settings,
    what the driver says of a GPU).
    """

    cases: Sequence[Case]
    arguments: Callable[[Case], Mapping[str, Any]]
    needed: Callable[[Run, Case], int]
    limits: Mapping[SM, int]
    varies: frozenset[str]
    given: Callable[[World], Mapping[str, Any]] = _nothing

    def within_limits(self, view: View, function: str, world: World) -> bool:
        """Whether every case stays within the limit of this world's SM. Raises Unrecognised."""
        limited = world.sm is not None and world.sm in self.limits
        return not limited or self.fits(self.runs(view, function, world), world)

    def fits(self, runs: Sequence[Run], world: World) -> bool:
        """Whether these runs, one for each case, stay within the limit. Raises Unrecognised when one raised."""
        failed = next((run.raised for run in runs if run.raised), "")
        if failed:
            raise Unrecognised(f"the function cannot be run with stand-ins: {failed}")
        limit = self.limits[world.sm] if world.sm is not None else 0
        return all(self.needed(run, case) <= limit for run, case in zip(runs, self.cases, strict=True))

    def runs(self, view: View, function: str, world: World) -> list[Run]:
        """Run every case in one world. Raises Unrecognised when the function cannot be run with stand-ins."""
        return run_cases(view, function, world, [self.arguments(case) for case in self.cases], self.given(world))


@dataclass(frozen=True)
class ValueSite(Site):
    """Values that a function chooses by SM: behind the statement that binds ``names``, the targets get their own.

    ``body`` is source of the recipe's own, unindented, that assigns ``names`` and nothing else. ``inside``: names that
    the test of the ``if`` around the statement mentions; without it the statement stands in the function's own body.
    """

    versions: str
    path: str
    within: str
    names: tuple[str, ...]
    body: str
    check: ValueCheck
    inside: tuple[str, ...] = ()
    kind: ClassVar[str] = "value"

    def find(self, view: View) -> list[Place]:
        definition = self.definition(view)
        places = []
        for body in self._bodies(definition):
            for number, statement in enumerate(body):
                if _returns(statement) or is_guard(statement, self.body):
                    continue
                if set(self.names) <= all_bound(statement):
                    guarded = number + 1 < len(body) and is_guard(body[number + 1], self.body)
                    shown = body[number + 1] if guarded else statement
                    places.append(self._place(statement, shown, view, definition))
        return self.exactly_one(places, view, f"statements that bind {', '.join(self.names)}")

    def _bodies(self, definition: Definition | None) -> list[list[ast.stmt]]:
        body = definition.body if definition is not None else []
        if not self.inside:
            return [body]
        return [n.body for n in body if isinstance(n, ast.If) and set(self.inside) <= mentioned(n.test)]

    def _place(self, statement: ast.stmt, shown: ast.stmt, view: View, definition: Definition | None) -> Place:
        def admits(world: World) -> Truth:
            return Truth.ALWAYS if self.check.within_limits(view, self.within, world) else Truth.NEVER

        text = view.source.line(shown.lineno).decode("utf-8").strip()
        end = shown.end_lineno or shown.lineno
        return Place(view.path, shown.lineno, end, text, admits, statement, definition)

    def change(self, place: Place, view: View, direction: Direction, target: Target) -> list[Splice]:
        from patcher import edits

        if direction is not Direction.FIX:
            raise Unrecognised("values can only be fixed", where=f"{place.path}:{place.line}")
        inserted, splices = spell_target(view, target)
        statement, source = place.node, view.source
        assert isinstance(statement, ast.stmt)
        start = source.offset(statement.lineno, 0)
        last = statement.end_lineno or statement.lineno
        end = source.line_starts[last] if last < source.line_count else len(source.data)
        if source.line(statement.lineno)[: statement.col_offset].strip():
            raise Unrecognised("the statement shares its line", where=f"{place.path}:{statement.lineno}")
        step = indent_step(place.definition, source)
        text, guard = source.data[start:end].decode("utf-8"), guard_text(inserted, self.body)
        new = edits.insert_statement(text, guard, target.comment, step, behind=True)
        return [*splices, Splice(start, end, new.encode())]


def all_bound(statement: ast.stmt) -> set[str]:
    """The names that a statement and those inside it bind."""
    return {name for node in ast.walk(statement) if isinstance(node, ast.stmt) for name in bound_names(node)}


def _returns(statement: ast.stmt) -> bool:
    """Whether what a statement binds is never seen behind it: an ``if`` that ends by leaving the function."""
    return isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], ast.Return)


# -- running with stand-ins ------------------------------------------------------------------------------------


def run_cases(
    view: View,
    function: str,
    world: World,
    cases: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any] = MappingProxyType({}),
) -> list[Run]:
    """Run a module-level function of ``view`` in one world, once for each set of keyword arguments.

    ``given``: stand-ins for names of the module. Raises Unrecognised when the function does something that no
    stand-in covers.
    """
    launches: list[Launch] = []
    namespace = _namespace(view, function, world, launches, given)
    runs = []
    for arguments in cases:
        launches.clear()
        try:
            run = Run(namespace[function](**arguments))
        except SmPatchError:
            raise
        except Exception as error:
            run = Run(raised=type(error).__name__)
        run.launches = list(launches)
        runs.append(run)
    return runs


class _Kernel:
    """Stands in for a compiled kernel; ``kernel[grid](…)`` is recorded."""

    def __init__(self, name: str, launches: list[Launch]) -> None:
        self.name = name
        self.launches = launches

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            self.launches.append(Launch(self.name, grid(kwargs) if callable(grid) else grid, args, kwargs))

        return launch


class _Opaque:
    """Stands in for anything else; it may be passed on, and nothing may be decided by it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> _Opaque:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Opaque(f"{self.name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> _Opaque:
        return _Opaque(f"{self.name}()")

    def __bool__(self) -> bool:
        raise Unrecognised(f"what the function does depends on {self.name}, for which there is no stand-in")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


# What a function that computes sizes may call; nothing that reaches files, modules or other code.
_BUILTINS = (
    *("abs", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min", "range"),
    *("round", "set", "sorted", "str", "sum", "tuple", "zip", "ValueError", "RuntimeError", "AssertionError"),
)

_TRITON = SimpleNamespace(
    next_power_of_2=lambda n: 1 << max(0, n - 1).bit_length(),
    cdiv=lambda a, b: -(-a // b),
)


def _namespace(
    view: View, function: str, world: World, launches: list[Launch], given: Mapping[str, Any]
) -> dict[str, Any]:
    functions = {node.name: node for node in view.source.tree.body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        raise Unrecognised(f"{function} is not a function of the module", where=view.path)
    allowed = {name: getattr(builtins, name) for name in _BUILTINS}
    namespace: dict[str, Any] = {**given, "__builtins__": allowed}
    wanted = [function]
    while wanted:
        name = wanted.pop()
        if name in namespace:
            continue
        definition = functions.get(name)
        if definition is not None and (name == function or not definition.decorator_list):
            made = ast.Module([_filled_in(definition, view, world)], [])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # about values that were filled in
                code = compile(made, view.path, "exec", dont_inherit=True)
            if _imports(code):
                raise Unrecognised(f"{name} imports something while it runs", where=view.path)
            exec(code, namespace)  # noqa: S102
            wanted += _names(code)
        elif definition is not None:
            namespace[name] = _Kernel(name, launches)
        elif name == "triton":
            namespace[name] = _TRITON
        elif name in view.module.bindings:
            namespace[name] = _Opaque(name)
    return namespace


def _names(code: CodeType) -> list[str]:
    """Every global name and attribute that code and the functions in it read."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names(part)]
    return [*code.co_names, *inner]


def _imports(code: CodeType) -> bool:
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return any(step.opname == "IMPORT_NAME" for step in dis.get_instructions(code)) or any(map(_imports, inner))


def _filled_in(definition: ast.FunctionDef, view: View, world: World) -> ast.FunctionDef:
    """The function without decorators and annotations, with all that is known of the GPU in ``world`` filled in."""
    source = view.source
    lines = [source.line(number) for number in range(definition.lineno, (definition.end_lineno or 0) + 1)]
    (made,) = ast.parse(b"\n".join(lines)).body  # parsing again is faster than copying
    assert isinstance(made, ast.FunctionDef)
    made.returns = None
    for argument in ast.walk(made.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    filler = _Fill(view, world, definition)
    made.args.defaults = [filler.visit(default) for default in made.args.defaults]
    made.body = [filler.visit(statement) for statement in made.body]
    return made


class _Fill(ast.NodeTransformer):
    """Replaces what is known in a world by its value: names of the module, and what is asked of them."""

    def __init__(self, view: View, world: World, definition: ast.FunctionDef) -> None:
        self.predicates = view.predicates
        self.scope = Scope(view.module, definition)
        self.world = world

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and self._of_module(node):
            try:
                value = self.predicates.value(node, self.scope, self.world)
            except Raises:
                value = UNKNOWN
            if value is not UNKNOWN and _is_plain(value):
                return ast.copy_location(ast.Constant(value), node)
        return self.generic_visit(node)

    def _of_module(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in self.scope.module.bindings


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str)
