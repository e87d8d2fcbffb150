"""Every architecture gate of an engine's installed source, catalogued or not, and whom each lets through.

Reads files only. A file is parsed when an identifier in it speaks of an SM (``vocabulary``); of its tree only the
statements around such identifiers, and around names derived from them, are looked at.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from patcher import parallel, vocabulary
from patcher.arch import ALL_SMS, SM
from patcher.bindings import bound_names
from patcher.condition import FALSE, RAISE, TRUE, Formula, Truth, join, negate, truth
from patcher.errors import IOFailure, SmPatchError
from patcher.gate import Engine, Gate
from patcher.predicate import Module, Predicates, Raises, Scope, World, cuda_world
from patcher.sites import view_of
from patcher.source import Definition, Source, SourceTree, occurrences, spanning


class Kind(str, Enum):
    """What a gate's condition decides."""

    DISPATCH = "dispatch"
    RAISE = "raise"
    ASSERT = "assert"
    DEFAULT = "default"
    TUNING = "tuning"
    TABLE = "table"
    LITERAL = "literal"
    CONSTANT = "import-time constant"
    PREDICATE = "predicate"


@dataclass(frozen=True)
class Sighting:
    """One architecture gate as it stands in a file.

    ``truths``: for each SM whether it gets through (past a raise or assert; into the branch of a dispatch).
    ``recipe``: the gate of the catalogue that covers it, or an empty string.
    """

    path: str
    line: int
    end_line: int
    within: str
    kind: Kind
    condition: str
    truths: tuple[Truth, ...]
    recipe: str = ""

    def truth(self, sm: SM) -> Truth:
        return self.truths[ALL_SMS.index(sm)]

    def admits(self, sm: SM) -> bool:
        return self.truth(sm) in (Truth.ALWAYS, Truth.DEPENDS)

    @property
    def decides(self) -> bool:
        """Whether it is known to treat some SMs differently from others."""
        return len(set(self.truths)) > 1


@dataclass(frozen=True)
class Unread:
    """A file that was not read, and why."""

    path: str
    error: SmPatchError


@dataclass
class Scan:
    """What a scan found."""

    sightings: list[Sighting] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    files: int = 0
    parsed: int = 0


@dataclass(frozen=True)
class Candidate:
    """A file in which an identifier speaks of an SM."""

    path: str
    data: bytes
    lines: tuple[tuple[int, int], ...]


# -- finding files -------------------------------------------------------------------------------------------


def python_files(root: Path, package: str, closed: list[OSError] | None = None) -> list[str]:
    """The package's .py files, relative to ``root``, sorted. ``closed`` gets the errors of folders not let into."""
    found: list[str] = []
    pending = [package]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".py"):
                        if entry.is_symlink() or entry.is_file():  # not a pipe, say, which would keep one waiting
                            found.append(f"{folder}/{entry.name}")
                    elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                        pending.append(f"{folder}/{entry.name}")
        except OSError as error:
            if closed is not None:
                closed.append(error)
    return sorted(found)


def candidates(root: Path, paths: Iterable[str], unread: list[Unread]) -> Iterator[Candidate | None]:
    """For each path the file to look at more closely, or None."""
    tree = SourceTree(root)
    for path in paths:
        try:
            source = tree.read(path)
        except SmPatchError as error:
            unread.append(Unread(path, error))
            yield None
            continue
        if source is not None and vocabulary.might_speak(source.data):
            lines = vocabulary.lines(source.data)
            if lines:
                yield Candidate(path, source.data, tuple(lines))
                continue
        yield None


# -- one file ------------------------------------------------------------------------------------------------


_PLATFORM = re.compile(r"(?i)_*(?:is|on|has|use)_(?:cuda|hip|rocm|npu|xpu|musa|hpu|mps|cpu|sail|flashinfer)\w*")
_NAMED_SM = re.compile(r"(?i)(?:sm|compute)_?((?:[789]\d|1[012]\d)[af]?)")
_MAJORS = frozenset(sm.major for sm in ALL_SMS)
_NUMBERS = frozenset(sm.major * 10 + sm.minor for sm in ALL_SMS)
_HIDDEN_NUMBERS = _NUMBERS | {107}
_DERIVED_ROUNDS = 3


class FileScan:
    """The gates of one file."""

    def __init__(self, module: Module, lines: Sequence[tuple[int, int]], predicates: Predicates) -> None:
        self.source = module.source
        self.module = module
        self.predicates = predicates
        self.derived: set[str] = set()
        self.properties: set[str] = set()  # names of what get_device_properties gave: of it only the capability counts
        self.found: list[Sighting] = []
        self._atoms: dict[ast.expr, Formula] = {}
        self._of_gpu: dict[ast.expr, bool] = {}
        self._own_fields: dict[ast.expr, list[tuple[ast.expr, tuple[ast.expr, tuple[Definition, ...]]]]] = {}
        self._scopes: dict[ast.expr, Scope] = {}
        self._names: dict[ast.AST, set[str]] = {}
        self._fields: dict[ast.ClassDef, dict[str, list[tuple[ast.expr, ast.AST]]]] = {}
        self._hits = self._lines(start for start, _ in lines)
        self._spread()

    def _lines(self, offsets: Iterable[int]) -> list[int]:
        """The line numbers of byte offsets, sorted."""
        data = self.source.data
        if b"\r" in data:
            return sorted({bisect_left(self.source.line_starts, offset + 1) for offset in offsets})
        found: dict[int, None] = {}
        line, last = 1, 0
        for offset in sorted(offsets):
            line += data.count(b"\n", last, offset)
            last = offset
            found[line] = None
        return list(found)

    # -- names derived from the SM ---------------------------------------------------------------------------

    def _spread(self) -> None:
        """Names assigned from the SM speak of it too, and so do names assigned from those."""
        fresh = self._hits
        for _ in range(_DERIVED_ROUNDS):
            names = {name for node, _ in self._statements(fresh) for name in self._derives(node)}
            names -= self.derived
            if not names:
                return
            self.derived |= names
            fresh = self._lines(at for name in names for at in occurrences(self.source.data, name))
            self._hits = sorted({*self._hits, *fresh})

    def _derives(self, node: ast.stmt) -> list[str]:
        """The names (and fields of ``self``) that a statement derives from the SM."""
        if isinstance(node, ast.FunctionDef):
            returns = [n.value for n in node.body if isinstance(n, ast.Return) and n.value is not None]
            return [node.name] if any(self._is_boolean(v) and self.speaks(v) for v in returns) else []
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and _called(value).endswith(vocabulary.PROPERTIES):
            self.properties.update(bound_names(node))
            return bound_names(node)
        if value is None or not self._hands_on(value):
            return []
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        names = [name for name in bound_names(node) if name not in ("_", "self")]
        names += [
            t.attr
            for t in targets
            if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id in ("self", "cls")
        ]
        return names

    def _hands_on(self, value: ast.expr) -> bool:
        """Whether an assigned value is the SM or a truth about it (not something merely chosen by it)."""
        if isinstance(value, ast.Call):
            name = _called(value)
            if name in ("int", "bool", "tuple", "str", "getattr"):
                return any(self.speaks(argument) for argument in value.args)
            return vocabulary.speaks(name) or name in self.derived
        if isinstance(value, ast.IfExp):
            return any(self._hands_on(side) for side in (value.body, value.orelse))
        if isinstance(value, ast.Lambda | ast.Dict | ast.List | ast.Set | ast.JoinedStr | ast.Constant):
            return False
        return self.speaks(value)

    def _is_boolean(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp | ast.Compare):
            return True
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not)
        if isinstance(node, ast.Call):
            name = _called(node)
            return name == "bool" or (name.lstrip("_").startswith(("is_", "has_")) and name != vocabulary.PROPERTIES)
        return isinstance(node, ast.Attribute | ast.Name) and self._names_truth(node)

    @staticmethod
    def _names_truth(node: ast.Attribute | ast.Name) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return name.lstrip("_").startswith(("is_", "has_", "use_"))

    def speaks(self, node: ast.AST) -> bool:
        """Whether an expression mentions the SM or a name derived from it."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if (part.id in self.derived and part.id not in self.properties) or vocabulary.speaks(part.id):
                    return True
            elif isinstance(part, ast.Attribute):
                if vocabulary.speaks(part.attr):
                    return True
                if part.attr in self.derived and isinstance(part.value, ast.Name):
                    return True
                if part.attr in ("major", "minor") and self._is_properties(part.value):
                    return True
        return False

    def _is_properties(self, node: ast.expr) -> bool:
        return _called(node).endswith(vocabulary.PROPERTIES) or getattr(node, "id", "") in self.properties

    # -- walking ---------------------------------------------------------------------------------------------

    def _statements(self, hits: Sequence[int]) -> Iterator[tuple[ast.stmt, tuple[Definition, ...]]]:
        """The statements that span a hit line, outermost first, with the definitions around each."""
        return spanning(self.source.tree.body, hits)

    def run(self) -> list[Sighting]:
        for node, around in self._statements(self._hits):
            self._look(node, around)
        self.found.sort(key=lambda s: (s.line, s.end_line))
        return self.found

    def _look(self, node: ast.stmt, around: tuple[Definition, ...]) -> None:
        if isinstance(node, ast.If | ast.While):
            if self.speaks(node.test):
                self._condition(node.test, self._branch_kind(node), around)
        elif isinstance(node, ast.Assert):
            if self.speaks(node.test):
                self._condition(node.test, Kind.ASSERT, around)
        elif isinstance(node, ast.Match):
            if self.speaks(node.subject):
                self._opaque(node.subject, Kind.TABLE, around)
        elif isinstance(node, ast.FunctionDef):
            self._minimum(node, around)
        elif isinstance(node, ast.Return):
            if node.value is not None and self._is_boolean(node.value) and self.speaks(node.value):
                self._condition(node.value, Kind.PREDICATE, around)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            self._assignment(node, node.value, around)
        for expression in _own_expressions(node):
            self._inside(expression, around)

    def _assignment(self, node: ast.Assign | ast.AnnAssign, value: ast.expr, around: tuple[Definition, ...]) -> None:
        if isinstance(value, ast.BoolOp | ast.Compare | ast.UnaryOp | ast.Call | ast.Attribute | ast.Subscript):
            if not self.speaks(value):
                return
            if not any(not isinstance(d, ast.ClassDef) for d in around):
                self._condition(value, Kind.CONSTANT, around)
            elif self._is_boolean(value):
                self._condition(value, Kind.DISPATCH, around)

    def _inside(self, root: ast.expr, around: tuple[Definition, ...]) -> None:
        """The gates that are parts of an expression: conditional expressions, filters, tables, literals."""
        for node in ast.walk(root):
            if isinstance(node, ast.IfExp):
                if self.speaks(node.test):
                    plain = all(_is_number(side) for side in (node.body, node.orelse))
                    self._condition(node.test, Kind.TUNING if plain else Kind.DISPATCH, around)
            elif isinstance(node, ast.comprehension):
                for test in node.ifs:
                    if self.speaks(test):
                        self._condition(test, Kind.DISPATCH, around)
            elif isinstance(node, ast.Dict):
                sms = _listed([key for key in node.keys if key is not None])
                if len(node.keys) > 1 and sms is not None:
                    self._listing(node, Kind.TABLE, sms, around)
            elif isinstance(node, ast.keyword):
                if node.arg and vocabulary.speaks(node.arg) and isinstance(node.value, ast.List | ast.Tuple | ast.Set):
                    self._listing(node.value, Kind.LITERAL, _listed(node.value.elts), around)
            elif isinstance(node, ast.Call):
                self._arguments(node, around)

    def _arguments(self, node: ast.Call, around: tuple[Definition, ...]) -> None:
        name = _called(node)
        if name and vocabulary.speaks(name):
            for argument in node.args:
                if isinstance(argument, ast.List | ast.Tuple | ast.Set) and argument.elts:
                    self._listing(argument, Kind.LITERAL, _listed(argument.elts), around)

    def _minimum(self, node: ast.FunctionDef, around: tuple[Definition, ...]) -> None:
        """``def get_min_capability(…): return 70``: a least capability."""
        last = node.body[-1]
        if "min_capability" in node.name and isinstance(last, ast.Return) and isinstance(last.value, ast.Constant):
            least = last.value.value
            if isinstance(least, int):
                sms = {sm for sm in ALL_SMS if sm.major * 10 + sm.minor >= least}
                self._listing(last.value, Kind.LITERAL, sms, (*around, node))

    def _branch_kind(self, node: ast.If | ast.While) -> Kind:
        last = node.body[-1]
        if isinstance(last, ast.Raise):
            return Kind.RAISE
        values = [s.value for s in node.body if isinstance(s, ast.Assign)]
        if len(values) == len(node.body) and isinstance(node, ast.If):
            if all(_is_number(value) for value in values):
                return Kind.TUNING
            targets = [t for s in node.body if isinstance(s, ast.Assign) for t in s.targets]
            plain = all(isinstance(value, ast.Constant | ast.Attribute) for value in values)
            if plain and all(isinstance(t, ast.Attribute) for t in targets):
                return Kind.DEFAULT
        return Kind.DISPATCH

    # -- what was found --------------------------------------------------------------------------------------

    def _add(self, node: ast.expr, kind: Kind, around: Sequence[Definition], truths: Iterable[Truth]) -> None:
        within = ".".join(definition.name for definition in around)
        end = node.end_lineno or node.lineno
        text = " ".join(ast.unparse(node).split())
        self.found.append(Sighting(self.source.name, node.lineno, end, within, kind, text, tuple(truths)))

    def _opaque(self, node: ast.expr, kind: Kind, around: Sequence[Definition]) -> None:
        self._add(node, kind, around, [Truth.DEPENDS] * len(ALL_SMS))

    def _listing(self, node: ast.expr, kind: Kind, sms: set[SM] | None, around: Sequence[Definition]) -> None:
        if sms is None:
            self._opaque(node, kind, around)
        else:
            self._add(node, kind, around, [Truth.ALWAYS if sm in sms else Truth.NEVER for sm in ALL_SMS])

    def _condition(self, node: ast.expr, kind: Kind, around: tuple[Definition, ...]) -> None:
        truths = []
        for sm in ALL_SMS:
            formula = self._reduce(node, around, cuda_world(sm))
            truths.append(truth(negate(formula) if kind is Kind.RAISE else formula))
        self._add(node, kind, around, truths)

    def _reduce(self, node: ast.expr, around: tuple[Definition, ...], world: World, depth: int = 0) -> Formula:
        """``reduce``, reading only what speaks of a GPU, and following ``self.x`` to its one assignment."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negate(self._reduce(node.operand, around, world, depth))
        if isinstance(node, ast.BoolOp):
            op = "or" if isinstance(node.op, ast.Or) else "and"
            return join(op, [self._reduce(part, around, world, depth) for part in node.values])
        if isinstance(node, ast.NamedExpr):
            return self._reduce(node.value, around, world, depth)
        atom = self._atom(node)
        if not self._speaks_of_gpu(node):  # not read: whatever it says
            return atom
        origin = self._field(node, around) if depth < _DERIVED_ROUNDS else None
        if origin is not None:
            value, place = origin
            return self._reduce(value, place, world, depth + 1)
        read = self._with_fields(node, around, world, depth)
        try:
            known = self.predicates.truth(read, self._scope(node, around), world)
        except Raises:
            return RAISE
        except (SmPatchError, RecursionError):
            return atom
        return atom if known is None else TRUE if known else FALSE

    def _atom(self, node: ast.expr) -> Formula:
        if node not in self._atoms:
            self._atoms[node] = Formula("atom", atom=ast.unparse(node))
        return self._atoms[node]

    def _speaks_of_gpu(self, node: ast.expr) -> bool:
        if node not in self._of_gpu:
            self._of_gpu[node] = self.speaks(node) or _platform(node)
        return self._of_gpu[node]

    def _with_fields(self, node: ast.expr, around: tuple[Definition, ...], world: World, depth: int) -> ast.expr:
        """The expression with each ``self.x`` that is assigned once, and known, replaced by its value."""
        if node not in self._own_fields:
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part is not node]
            self._own_fields[node] = [(p, origin) for p in parts if (origin := self._field(p, around)) is not None]
        fields = self._own_fields[node]
        values: dict[ast.AST, ast.expr] = {}
        for part, (value, place) in fields if depth < _DERIVED_ROUNDS else ():
            with contextlib.suppress(SmPatchError, RecursionError, Raises):
                inner = self._with_fields(value, place, world, depth + 1)
                known = self.predicates.value(inner, self._scope(value, place), world)
                if known is None or isinstance(known, bool | int | str | tuple):
                    values[part] = ast.copy_location(ast.Constant(known), part)  # type: ignore[arg-type]
        return _replaced(node, values) if values else node

    def _scope(self, node: ast.expr, around: tuple[Definition, ...]) -> Scope:
        """Where the names of an expression are looked up: the nearest function around that binds one of them."""
        if node not in self._scopes:
            functions = [d for d in around if isinstance(d, ast.FunctionDef | ast.AsyncFunctionDef)]
            chosen = functions[-1] if functions else None
            if len(functions) > 1:
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                chosen = next((f for f in reversed(functions) if not names.isdisjoint(self._bound(f))), chosen)
            self._scopes[node] = Scope(self.module, chosen)
        return self._scopes[node]

    def _bound(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
        """The names that a function binds itself."""
        if function not in self._names:
            arguments = function.args
            names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
            for part in ast.walk(function):
                if isinstance(part, ast.Name):
                    if isinstance(part.ctx, ast.Store):
                        names.add(part.id)
                elif isinstance(part, ast.Import | ast.ImportFrom):
                    names.update(bound_names(part))
            self._names[function] = names
        return self._names[function]

    def _field(self, node: ast.expr, around: tuple[Definition, ...]) -> tuple[ast.expr, tuple[Definition, ...]] | None:
        """The value of ``self.x``, where the class around assigns it exactly once, and where that stands."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"):
            return None
        place = max((i for i, d in enumerate(around) if isinstance(d, ast.ClassDef)), default=-1)
        if place < 0:
            return None
        cls = around[place]
        assert isinstance(cls, ast.ClassDef)
        if cls not in self._fields:
            self._fields[cls] = _fields(cls)
        assigned = self._fields[cls].get(node.attr, [])
        if len(assigned) != 1:
            return None
        value, method = assigned[0]
        assert isinstance(method, ast.FunctionDef)
        return value, (*around[: place + 1], method)


def _replaced(node: Any, values: dict[ast.AST, ast.expr]) -> Any:
    """A copy of a tree with some nodes replaced; the original is left as it is."""
    if isinstance(node, list):
        return [_replaced(part, values) for part in node]
    if not isinstance(node, ast.AST):
        return node
    if node in values:
        return values[node]
    return type(node)(**{name: _replaced(value, values) for name, value in ast.iter_fields(node)})


def _fields(cls: ast.ClassDef) -> dict[str, list[tuple[ast.expr, ast.AST]]]:
    found: dict[str, list[tuple[ast.expr, ast.AST]]] = {}
    for method in cls.body:
        if isinstance(method, ast.FunctionDef):
            for node in ast.walk(method):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                            found.setdefault(target.attr, []).append((node.value, method))
    return found


def _platform(node: ast.expr) -> bool:
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if name and _PLATFORM.fullmatch(name):
            return True
    return False


def _called(node: ast.expr) -> str:
    """The last part of the name of what is called; an empty string where nothing is."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_number(part) for part in node.elts)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _listed(nodes: Sequence[ast.expr]) -> set[SM] | None:
    """The SMs that literals name: 90, 9, (9, 0), "sm_90a"; None when one of them is something else."""
    found: set[SM] = set()
    numbers = []
    for node in nodes:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            parts = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
            if len(parts) != 2 or parts[0] not in _MAJORS:
                return None
            found.add(SM(*parts))
        elif isinstance(value, str) and (match := _NAMED_SM.fullmatch(value)):
            digits = match[1].rstrip("af")
            found.add(SM(int(digits[:-1]), int(digits[-1])))
        elif isinstance(value, int) and not isinstance(value, bool):
            numbers.append(value)
        else:
            return None
    if numbers and set(numbers) <= _HIDDEN_NUMBERS:
        return found | {SM(*divmod(n, 10)) for n in numbers}
    if numbers and set(numbers) <= _MAJORS and max(numbers) > 7:
        return found | {sm for sm in ALL_SMS if sm.major in numbers}
    return None if numbers else found


def _own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without those of the statements inside it."""
    for _, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.expr):
                yield part
            elif isinstance(part, ast.withitem):
                yield part.context_expr
            elif isinstance(part, ast.arguments):
                yield from (d for d in (*part.defaults, *part.kw_defaults) if d is not None)
            elif isinstance(part, ast.keyword):
                yield part.value


# -- the whole package ---------------------------------------------------------------------------------------


_SHARE = 64  # files


class Scanner:
    """Scans one installed engine. ``version`` chooses the catalogue's sites for the column of recipes."""

    def __init__(self, engine: Engine, root: Path, version: str | None, gates: Iterable[type[Gate]] = ()) -> None:
        self.engine = engine
        self.root = root
        self.predicates = Predicates(SourceTree(root), engine.package)
        self.closed: list[Unread] = []
        """The folders of the last ``paths`` that cannot be read."""
        self._sites: dict[str, list[tuple[str, object]]] = {}
        for gate in gates:
            for site in gate.sites_for(version):
                self._sites.setdefault(f"{engine.package}/{site.path}", []).append((gate.id, site))

    def paths(self) -> list[str]:
        errors: list[OSError] = []
        found = python_files(self.root, self.engine.package, errors)
        self.closed = [
            Unread(str(error.filename), IOFailure(f"the folder cannot be read: {error.strerror}")) for error in errors
        ]
        return found

    def scan(
        self, paths: Sequence[str] | None = None, workers: int = 1, tick: Callable[[int], None] | None = None
    ) -> Scan:
        """Scan the package (or some of its files). ``tick`` hears how many files were dealt with."""
        chosen = list(self.paths() if paths is None else paths)
        result = Scan(files=len(chosen), unread=list(self.closed))
        # Files of one folder in different shares, for some folders are much more work than others.
        shares = [chosen[i::step] for i in range(step)] if (step := -(-len(chosen) // _SHARE)) else []
        for part in parallel.each(self._part, shares, workers):
            result.sightings += part.sightings
            result.unread += part.unread
            result.parsed += part.parsed
            if tick is not None:
                tick(part.files)
        result.sightings.sort(key=lambda s: (s.path, s.line, s.end_line))
        return result

    def _part(self, paths: Sequence[str]) -> Scan:
        part = Scan(files=len(paths))
        for candidate in candidates(self.root, paths, part.unread):
            if candidate is not None:
                part.parsed += 1
                try:
                    part.sightings += self.file(candidate)
                except SmPatchError as error:
                    part.unread.append(Unread(candidate.path, error))
        return part

    def file(self, candidate: Candidate) -> list[Sighting]:
        """The gates of one file. Raises Unparsable."""
        module = self._module(candidate)
        found = FileScan(module, candidate.lines, self.predicates).run()
        if self.predicates.known_module(module.name) is not module:
            self.predicates.forget(module)
        return [replace(s, recipe=self._recipe(s)) for s in found] if candidate.path in self._sites else found

    def _module(self, candidate: Candidate) -> Module:
        """The file as a module; not kept: few files are imported by others that a gate depends on."""
        name = candidate.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        kept = self.predicates.known_module(name)
        if kept is not None and kept.source.name == candidate.path:
            return kept
        return Module(name, Source(candidate.path, candidate.data), candidate.path.endswith("/__init__.py"))

    def _recipe(self, sighting: Sighting) -> str:
        for gate, first, last in self._places(sighting.path):
            if first <= sighting.end_line and sighting.line <= last:
                return gate
        return ""

    def _places(self, path: str) -> list[tuple[str, int, int]]:
        found: list[tuple[str, int, int]] = []
        for gate, site in self._sites[path]:
            view = view_of(self.engine, path.removeprefix(f"{self.engine.package}/"), self.predicates)
            if view is None:
                continue
            try:
                found += [(gate, place.line, place.end_line) for place in site.find(view)]  # type: ignore[attr-defined]
            except (SmPatchError, Raises):
                continue
        return found


# -- comparing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What differs between two scans; a gate is the same when its condition is, wherever its lines moved to."""

    added: list[Sighting]
    removed: list[Sighting]
    moved: list[tuple[Sighting, Sighting]]
    changed: list[tuple[Sighting, Sighting]]
    """The same condition in the same place that lets other SMs through, or another condition in its place."""


def compare(before: Sequence[Sighting], after: Sequence[Sighting]) -> Comparison:
    """What changed from ``before`` to ``after``."""
    gone, new = list(before), list(after)

    def pairs(key: Callable[[Sighting], tuple[object, ...]]) -> list[tuple[Sighting, Sighting]]:
        waiting: dict[tuple[object, ...], list[Sighting]] = {}
        for sighting in gone:
            waiting.setdefault(key(sighting), []).append(sighting)
        found = []
        for sighting in list(new):
            match = waiting.get(key(sighting))
            if match:
                found.append((match.pop(0), sighting))
        matched_before = {id(a) for a, _ in found}
        matched_after = {id(b) for _, b in found}
        gone[:] = [s for s in gone if id(s) not in matched_before]
        new[:] = [s for s in new if id(s) not in matched_after]
        return found

    same = pairs(lambda s: (s.path, s.within, s.kind, s.condition))
    # A number by itself says nothing of where it came from.
    moved = pairs(lambda s: (s.within.rpartition(".")[2], s.kind, s.condition, s.path if s.condition.isdigit() else ""))
    rewritten = pairs(lambda s: (s.path, s.within, s.kind)) + pairs(lambda s: (s.path, s.within))
    changed = [(a, b) for a, b in (*same, *moved) if a.truths != b.truths]
    still = {id(b) for _, b in changed}
    return Comparison(new, gone, [(a, b) for a, b in moved if id(b) not in still], [*changed, *rewritten])
