"""Where a name of an engine is defined, how it is imported, whom it admits and who uses it: from source alone.

Follows what people get wrong: predicates that are assignments and not ``def``s, packages that re-export with a star,
names behind a name map (``get_platform().is_sm100``), modules that moved.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from patcher import vocabulary
from patcher.arch import ALL_SMS, SM
from patcher.errors import SmPatchError, UsageError
from patcher.gate import Engine
from patcher.predicate import (
    OTHER_WORLDS,
    UNKNOWN,
    Binding,
    Module,
    Predicates,
    Raises,
    Scope,
    World,
    cuda_world,
    is_function,
)
from patcher.scan import FileScan, Sighting, python_files
from patcher.source import Definition, Source, SourceTree, bodies, occurrences

CUDA_VERSIONS: tuple[str, ...] = (
    *(f"11.{n}" for n in range(9)),
    *(f"12.{n}" for n in range(10)),
    "13.0",
    "13.1",
    "13.2",
)
_WITNESS = cuda_world(SM(10, 0))


class UnknownSymbol(SmPatchError):
    id = "unknown-symbol"


@dataclass(frozen=True)
class Meaning:
    """What a name is worth by SM (on a CUDA 12.9 machine), and on which CUDA versions it holds at all.

    ``values``: True, False, a number or tuple; a text where it raises or cannot be told from source.
    """

    values: Mapping[SM, Any]
    elsewhere: Mapping[str, Any]
    cuda: str
    note: str = ""

    @property
    def truth(self) -> bool:
        """Whether it is a predicate: true or false on every SM."""
        return all(isinstance(value, bool) for value in self.values.values())

    @property
    def told(self) -> bool:
        """Whether its value is known on every SM."""
        return not self.note and not any(isinstance(value, str) for value in self.values.values())

    @property
    def admits(self) -> list[SM]:
        return [sm for sm, value in self.values.items() if value is True]


@dataclass(frozen=True)
class Use:
    """One place that reads the name. ``via``: the alias it is read through; ``gate``: the condition it is part of."""

    module: str
    path: str
    line: int
    within: str
    via: str = ""
    gate: Sighting | None = None


@dataclass
class Found:
    """One definition of the name."""

    name: str
    module: str
    path: str
    line: int
    form: str
    text: str
    meaning: Meaning | None = None
    imports: list[str] = field(default_factory=list)
    """Statements that bring it in, the home module's first; each also says how it is then written, after ``;``."""
    also: list[str] = field(default_factory=list)
    """Modules that import it for themselves: importing it from them works and is not meant."""
    gates: list[Sighting] = field(default_factory=list)
    """The architecture gates inside it (for a function or class)."""
    uses: list[Use] = field(default_factory=list)
    leads_to: str = ""
    """For an entry of a name map: the name that it stands for."""
    expression: bool = False
    """Whether ``name`` is an expression: of a name map, or as asked for."""
    lines: Sequence[int] = ()
    """The lines of a function or class in which gates are looked for."""


@dataclass
class Answer:
    """What is known about a symbol. ``remarks``: what was wrong in the question."""

    symbol: str
    found: list[Found]
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Question:
    """A symbol as people write it: a name, a dotted path, an import statement, an expression."""

    name: str
    module: str = ""
    attribute: str = ""
    """For ``get_platform().is_sm100``: what follows the name."""


def read_question(text: str, package: str) -> Question:
    """Read ``is_sm120_supported``, ``pkg.mod.name``, ``pkg.mod:name``, ``from pkg.mod import name`` or
    ``get_platform().is_sm100``. Raises UsageError."""
    text = text.strip()
    statement = re.fullmatch(r"from\s+([\w.]+)\s+import\s+\(?\s*(\w+)(?:\s+as\s+\w+)?\s*\)?", text)
    if statement:
        return Question(statement[2], statement[1])
    colon = re.fullmatch(r"([\w.]+):(\w+)", text)
    if colon:
        return Question(colon[2], colon[1])
    try:
        node = ast.parse(text.removeprefix("import "), mode="eval").body
    except SyntaxError as error:
        raise UsageError(f"'{text}' does not read as a name", hint=_HOW) from error
    names: list[str] = []
    part: ast.expr = node
    while isinstance(part, ast.Attribute):
        names.append(part.attr)
        part = part.value
    names.reverse()
    if isinstance(part, ast.Call) and isinstance(node, ast.Call):  # is_sm120_supported()
        part = part.func
        while isinstance(part, ast.Attribute):
            names.insert(0, part.attr)
            part = part.value
    if isinstance(part, ast.Name):
        if part.id == package or not names:
            dotted = [part.id, *names]
            return Question(dotted[-1], ".".join(dotted[:-1]))
        return Question(part.id, attribute="." + ".".join(names))
    head = next((n.id for n in ast.walk(part) if isinstance(n, ast.Name)), None)
    if head is None:
        raise UsageError(f"'{text}' does not read as a name", hint=_HOW)
    return Question(head, attribute=ast.unparse(node).removeprefix(head))


_HOW = "write it like is_sm120_supported, get_platform().is_sm100 or sglang.srt.utils.is_sm120_supported"


class Finder:
    """Answers questions about one installed engine. Every file is read once."""

    def __init__(self, engine: Engine, root: Path, history: Mapping[str, Sequence[tuple[str, str, str]]] | None = None):
        self.engine = engine
        self.root = root
        self.tree = SourceTree(root)
        self.predicates = Predicates(self.tree, engine.package)
        self.history = history or {}

    @cached_property
    def files(self) -> dict[str, bytes]:
        found = {}
        for path in python_files(self.root, self.engine.package):
            try:
                source = self.tree.read(path)
            except SmPatchError:
                continue
            if source is not None:
                found[path] = source.data
        return found

    # -- the answer ---------------------------------------------------------------------------------------

    def where(self, text: str) -> Answer:
        """Raises UsageError, and UnknownSymbol with the nearest names and the releases that have it."""
        answer = self.definitions(text)
        for one in answer.found:
            self._add_uses(one)
        return answer

    def definitions(self, text: str) -> Answer:
        """As ``where``, without what is inside the definitions and who uses them."""
        question = read_question(text, self.engine.package)
        if question.attribute:
            return self._expression(text, question)
        if self._is_module(question):
            return self._module_answer(text, question)
        found = self._definitions(question.name)
        maps = self._name_maps(question.name)
        if not found and not maps:
            raise self._unknown(question.name)
        answer = Answer(text, [self._describe(module, name, node, form) for module, name, node, form in found])
        answer.found += maps
        if question.module:
            self._judge_module(question, answer)
        answer.found.sort(
            key=lambda f: (f.module.rpartition(".")[0].count("test"), not f.imports, f.name.startswith("_"))
        )
        return answer

    def _judge_module(self, question: Question, answer: Answer) -> None:
        """Whether the module named in the question has the name; if not, which do."""
        statement = f"from {question.module} import {question.name}"
        matching = [f for f in answer.found if statement in f.imports or question.module in f.also]
        right = [f.imports[0] for f in (matching or answer.found) if f.imports]
        if matching:
            answer.found = matching
            return
        if self.predicates.module(question.module) is None:
            answer.remarks.append(f"there is no module {question.module} here; right is: {right[0] if right else '?'}")
        else:
            answer.remarks.append(f"{question.module} does not have it; right is: {right[0] if right else '?'}")

    def _is_module(self, question: Question) -> bool:
        dotted = f"{question.module}.{question.name}" if question.module else question.name
        if not dotted.startswith(self.engine.package):
            return False
        if self.predicates.module(dotted) is not None:
            return True
        if self._definitions(question.name) or self._name_maps(question.name):
            return False
        # A name of another release, or one that is nearly right, is no module that is missing.
        return question.name not in self.history and not self._alike(question.name, 0.85)

    def _module_answer(self, text: str, question: Question) -> Answer:
        dotted = f"{question.module}.{question.name}" if question.module else question.name
        module = self.predicates.module(dotted)
        if module is not None:
            return Answer(
                text, [Found(dotted, dotted, module.source.name, 1, "module", "", imports=[f"import {dotted}"])]
            )
        names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in self.files]
        parent = dotted.rpartition(".")[0]
        near = [name for name in (parent,) if name in names] + get_close_matches(dotted, names, n=3, cutoff=0.6)
        raise UnknownSymbol(
            f"there is no module {dotted} in this {self.engine.name}",
            where=str(self.root),
            hint=f"nearest: {', '.join(dict.fromkeys(near))}" if near else "",
        )

    def _unknown(self, name: str) -> UnknownSymbol:
        lines = []
        eras = self.history.get(name, ())
        if eras:
            spans = ", ".join(f"{a} to {b} in {path}" if a != b else f"{a} in {path}" for a, b, path in eras)
            lines.append(f"it exists in {self.engine.name} {spans}")
        near = self._alike(name, 0.6)
        if near:
            lines.append(f"nearest names here: {', '.join(near)}")
        return UnknownSymbol(
            f"nothing in this {self.engine.name} defines {name}", where=str(self.root), hint="\n".join(lines)
        )

    def _alike(self, name: str, cutoff: float) -> list[str]:
        return get_close_matches(name, self._all_names(), n=5, cutoff=cutoff)

    def _all_names(self) -> list[str]:
        pattern = re.compile(
            rb"^[ \t]*(?:async def|def|class) (\w+)|^(\w+)(?: *:[^=\n]+)? *=|^    \"(\w+)\":", re.MULTILINE
        )
        names = {b"".join(match.groups(b"")) for data in self.files.values() for match in pattern.finditer(data)}
        return sorted(name.decode() for name in names)

    def reached(self, name: str) -> list[tuple[str, str]]:
        """Every way to a module-level predicate: the import statement, and the expression that asks it."""
        ways = []
        for module, qualname, node, _ in self._definitions(name):
            if "." in qualname or name.startswith("_"):
                continue
            found = self._describe_imports(module, qualname, node)
            ways += [way for way in found if way not in ways]
        return ways

    def _describe_imports(self, module: Module, name: str, node: ast.stmt) -> list[tuple[str, str]]:
        meaning = self._meaning(name, node, module)
        if meaning is None or meaning.note:
            return []
        called = f"{name}()" if self._is_called(name, node, module) else name
        ways = []
        for line in self._imports(module, name, everyone=False)[0]:
            statement, _, expression = line.partition("; ")
            ways.append((statement, expression or called))
        return ways

    # -- definitions --------------------------------------------------------------------------------------

    def _holding(self, name: str) -> list[str]:
        wanted = name.encode()
        return [p for p, data in self.files.items() if wanted in data and any(occurrences(data, name))]

    def _module_at(self, path: str) -> Module | None:
        """The module of a file; None when it does not parse."""
        try:
            module = self.predicates.module_at(path)
        except SmPatchError:
            return None
        return module if module is not None and module.source.name == path else None

    def _definitions(self, name: str) -> list[tuple[Module, str, ast.stmt, str]]:
        """The module-level definitions and methods of a name: module, qualified name, statement, form."""
        binds = re.compile(
            rb"(?:^|\n)[ \t]*(?:async def|def|class) +%b\b|(?:^|\n|= *|, *)[ \t]*%b *(?::[^=\n]+)?[=,]"
            % (re.escape(name.encode()), re.escape(name.encode()))
        )
        found = []
        for path in self._holding(name):
            if not binds.search(self.files[path]):
                continue
            module = self._module_at(path)
            if module is None:
                continue
            nodes = [binding.node for binding in module.bindings.get(name, ())]
            found += [(module, name, n, form_of(n)) for n in nodes if not isinstance(n, ast.Import | ast.ImportFrom)]
            found += [
                (module, f"{owner}.{name}", method, f"method, {form_of(method)}")
                for owner, method in _methods(module.source.tree, name)
            ]
        return found

    def _describe(self, module: Module, name: str, node: ast.stmt, form: str) -> Found:
        source = module.source
        found = Found(name, module.name, source.name, node.lineno, form, _shown(source, node))
        if "." not in name:
            found.meaning = self._meaning(name, node, module)
            found.imports, found.also = self._imports(module, name)
        if isinstance(node, Definition) and (found.meaning is None or not found.meaning.admits):
            found.lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return found

    def _add_uses(self, found: Found) -> None:
        if found.expression:
            found.uses = list(self._map_uses(found.name))
        elif found.imports and found.form != "module":
            found.uses = list(self._uses(found.name, {found.module, *found.also, *_modules(found.imports)}))
        if found.lines:
            found.gates = [sighting for sighting in self._sightings(found.path) if sighting.line in found.lines]

    # -- meaning ------------------------------------------------------------------------------------------

    def _meaning(self, name: str, node: ast.stmt, module: Module) -> Meaning | None:
        if isinstance(node, ast.ClassDef):
            return None
        return self.meaning(f"{name}()" if self._is_called(name, node, module) else name, module)

    def _is_called(self, name: str, node: ast.stmt, module: Module) -> bool:
        """Whether the name is a function (a ``def``, or an assignment of one)."""
        if isinstance(node, ast.Assign | ast.AnnAssign):
            try:
                value = self.predicates.value(ast.Name(name, ast.Load()), Scope(module), _WITNESS)
            except Raises:
                return False
            return is_function(value)
        return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)

    def meaning(self, text: str, module: Module) -> Meaning | None:
        """What an expression is worth where ``module`` is; None when its value does not depend on the GPU at all."""
        expression = ast.parse(text, mode="eval").body

        def value(world: World) -> Any:
            try:
                found = self.predicates.value(expression, Scope(module), world)
            except Raises as error:
                return f"raises {error.kind}"
            if found is UNKNOWN or not isinstance(found, bool | int | float | str | tuple | list | type(None)):
                return "not known from source"
            return found

        values = {sm: value(cuda_world(sm)) for sm in ALL_SMS}
        elsewhere = {str(world): value(world) for world in OTHER_WORLDS}
        if all(v == "raises TypeError" for v in values.values()):
            return Meaning(values, elsewhere, "", "takes arguments")
        if all(v == "not known from source" for v in values.values()):
            return None
        return Meaning(values, elsewhere, self._cuda(value))

    @staticmethod
    def _cuda(value: Any) -> str:
        """The CUDA versions on which it is true for the SMs that it is ever true for."""
        wanted = set()
        for sm in ALL_SMS:
            holds = tuple(version for version in CUDA_VERSIONS if value(cuda_world(sm, version)) is True)
            if holds:
                wanted.add(holds)
        return "; ".join(sorted(_versions(holds) for holds in wanted))

    # -- import paths -------------------------------------------------------------------------------------

    def _imports(self, home: Module, name: str, everyone: bool = True) -> tuple[list[str], list[str]]:
        """The statements that bring a name in on purpose, and the modules that merely imported it for themselves.

        Without ``everyone`` the latter are looked for only where a re-export is likely.
        """
        public: dict[str, str] = {home.name: f"from {home.name} import {name}"}
        private: list[str] = []
        again = f"{name} as {name}".encode()
        holding = [
            path
            for path in self._holding(name)
            if everyone or path.endswith("/__init__.py") or b"__all__" in self.files[path] or again in self.files[path]
        ]
        importers = [m for path in holding if (m := self._module_at(path)) is not None]
        reached = {(home.name, name): True}
        grown = True
        while grown:
            grown = False
            for module, exported, on_purpose in self._reexports(importers, reached):
                if (module.name, exported) not in reached:
                    reached[module.name, exported] = on_purpose
                    grown = True
                    if on_purpose:
                        public[module.name] = f"from {module.name} import {exported}"
                    else:
                        private.append(module.name)
        statements = [public.pop(home.name), *sorted(public.values())]
        if name.startswith("_"):
            return [statements[0]], sorted(private)
        return [*statements, *self._map_expressions(name, {home.name})], sorted(private)

    def _reexports(
        self, importers: Sequence[Module], reached: Mapping[tuple[str, str], bool]
    ) -> Iterator[tuple[Module, str, bool]]:
        for module in self._with_stars:
            for star in module.stars:
                origin = module.absolute(star)
                for (source_module, exported), meant in list(reached.items()):
                    if source_module == origin and self._starred(origin, exported) and exported not in module.bindings:
                        yield module, exported, meant
        for module in importers:
            listed = _dunder_all(module)
            for bindings in list(module.bindings.values()):
                for binding in bindings:
                    if isinstance(binding.node, ast.ImportFrom):
                        origin = module.absolute(binding.node)
                        for alias in binding.node.names:
                            if (origin, alias.name) in reached:
                                exported = alias.asname or alias.name
                                inner = module.is_package and origin.startswith(f"{module.name}.")
                                meant = inner or exported in listed or alias.asname == alias.name
                                yield module, exported, meant

    @cached_property
    def _with_stars(self) -> list[Module]:
        paths = [path for path, data in self.files.items() if b"import *" in data]
        return [module for path in paths if (module := self._module_at(path)) is not None and module.stars]

    def _starred(self, origin: str, name: str) -> bool:
        module = self.predicates.module(origin)
        listed = _dunder_all(module) if module is not None else set()
        return name in listed if listed else not name.startswith("_")

    # -- name maps ----------------------------------------------------------------------------------------

    @cached_property
    def _maps(self) -> list[tuple[Module, int, str, str, str]]:
        """Entries of name maps behind attributes: module, line, expression (``get_platform().is_sm100``), key, name."""
        found = []
        for path, data in self.files.items():
            if b"def __getattr__(self" not in data or b"getattr(" not in data:
                continue
            module = self._module_at(path)
            if module is not None:
                found += list(self._maps_of(module))
        return found

    def _maps_of(self, module: Module) -> Iterator[tuple[Module, int, str, str, str]]:
        for handle in _handles(module):
            for name, bindings in module.bindings.items():
                value = bindings[-1].node.value if isinstance(bindings[-1].node, ast.Assign | ast.AnnAssign) else None
                if not isinstance(value, ast.Dict) or not name.isidentifier():
                    continue
                for key, mapped in zip(value.keys, value.values, strict=True):
                    key_text, mapped_text = _string(key), _string(mapped)
                    if key is not None and key_text.isidentifier() and mapped_text:
                        expression = f"{handle}.{key_text}"
                        meaning = self.meaning(expression, module)
                        if meaning is not None and meaning.told:
                            yield module, key.lineno, expression, key_text, mapped_text

    def _name_maps(self, key: str) -> list[Found]:
        found = []
        for module, line, expression, name, mapped in self._maps:
            if name == key:
                head = expression.split("(")[0].split(".")[0]
                entry = Found(expression, module.name, module.source.name, line, "name map", f'"{name}": "{mapped}"')
                entry.meaning = self.meaning(expression, module)
                entry.leads_to = mapped
                entry.imports = [f"from {module.name} import {head}; {expression}"]
                entry.expression = True
                found.append(entry)
        return found

    def _map_expressions(self, name: str, homes: set[str]) -> list[str]:
        """The expressions by which name maps lead to a name of one of the modules."""
        return [
            f"from {module.name} import {expression.split('(')[0].split('.')[0]}; {expression}"
            for module, _, expression, _, mapped in self._maps
            if mapped == name and _leads_into(module, homes)
        ]

    def _expression(self, text: str, question: Question) -> Answer:
        """``get_platform().is_sm100``: the map entry, or what the expression is worth where its head is defined."""
        wanted = ast.unparse(ast.parse(f"{question.name}{question.attribute}", mode="eval").body)
        maps = [f for f in self._name_maps(wanted.rpartition(".")[2]) if f.name == wanted]
        if maps:
            answer = Answer(text, maps)
            leads = [self._describe(*entry) for entry in self._definitions(maps[0].leads_to) if "." not in entry[1]]
            answer.found += [found for found in leads if maps[0].imports[0] in found.imports]
            return answer
        homes = self._definitions(question.name)
        if not homes:
            raise self._unknown(question.name)
        found = []
        for module, name, node, form in homes:
            if "." in name:
                continue
            meaning = self.meaning(wanted, module)
            usable = meaning is not None and not all(
                isinstance(value, str) and value.startswith("raises") for value in meaning.values.values()
            )
            if usable:
                entry = Found(wanted, module.name, module.source.name, node.lineno, form, _shown(module.source, node))
                entry.meaning = meaning
                entry.imports = [f"{s}; {wanted}" for s in self._imports(module, name)[0] if ";" not in s]
                entry.expression = True
                found.append(entry)
        if not found:
            last = wanted.rpartition(".")[2]
            known = [expression for _, _, expression, _, _ in self._maps if expression.startswith(question.name)]
            near = get_close_matches(wanted, known, n=3, cutoff=0.6) or get_close_matches(last, self._all_names(), n=3)
            raise UnknownSymbol(
                f"{question.name} is defined here, but {wanted} is worth nothing that can be told from source",
                where=str(self.root),
                hint=f"nearest: {', '.join(near)}" if near else "",
            )
        return Answer(text, found)

    # -- users --------------------------------------------------------------------------------------------

    def _sightings(self, path: str) -> list[Sighting]:
        if path not in self._seen:
            data = self.files[path]
            module = self._module_at(path)
            lines = vocabulary.lines(data) if vocabulary.might_speak(data) else []
            self._seen[path] = FileScan(module, lines, self.predicates).run() if module is not None and lines else []
        return self._seen[path]

    @cached_property
    def _seen(self) -> dict[str, list[Sighting]]:
        return {}

    def _uses(self, name: str, modules: set[str]) -> Iterator[Use]:
        """Reads of the name in the modules that have it, through module-level aliases too."""
        for path in self._holding(name):
            module = self._module_at(path)
            if module is None:
                continue
            own = {name: "", **_aliases(module, name)} if module.name in modules else {}
            yield from self._reads(module, own, name)
        for expression in self._map_expressions(name, modules):
            yield from self._map_uses(expression.partition("; ")[2])

    def _map_uses(self, expression: str) -> Iterator[Use]:
        attribute = expression.rpartition(".")[2]
        for path in self._holding(attribute):
            module = self._module_at(path)
            if module is None or expression.encode() not in self.files[path].replace(b"\n", b""):
                continue
            for node, within in _walk(module.source.tree):
                if isinstance(node, ast.Attribute) and node.attr == attribute and ast.unparse(node) == expression:
                    yield self._use(module, node, within, expression)
            aliases = {
                alias: expression
                for alias, bindings in module.bindings.items()
                if any(_value(b) is not None and expression in ast.unparse(_value(b)) for b in bindings)  # type: ignore[arg-type]
            }
            if aliases:
                yield from self._reads(module, aliases, "")

    def _reads(self, module: Module, names: Mapping[str, str], attribute: str) -> Iterator[Use]:
        for node, within in _walk(module.source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                yield self._use(module, node, within, node.id if names[node.id] or node.id != attribute else "")
            elif attribute and isinstance(node, ast.Attribute) and node.attr == attribute:
                base = ast.unparse(node.value)
                if base != "self" and "(" not in base and self._names_module(base, module):
                    yield self._use(module, node, within, f"{base}.{attribute}")

    def _names_module(self, base: str, module: Module) -> bool:
        try:
            value = self.predicates.value(ast.parse(base, mode="eval").body, Scope(module), _WITNESS)
        except (Raises, SyntaxError, SmPatchError):
            return False
        return isinstance(value, Module)

    def _use(self, module: Module, node: ast.expr, within: str, via: str) -> Use:
        path = module.source.name
        gate = next((s for s in self._sightings(path) if s.line <= node.lineno <= s.end_line), None)
        return Use(module.name, path, node.lineno, within, via, gate)


def _methods(tree: ast.AST, name: str, owner: str = "", in_class: bool = False) -> Iterator[tuple[str, Definition]]:
    """The functions of that name that are methods, each with its class's qualified name."""
    for block in bodies(tree):
        for node in block:
            if isinstance(node, Definition):
                if node.name == name and in_class:
                    yield owner, node
                qualname = f"{owner}.{node.name}" if owner else node.name
                yield from _methods(node, name, qualname, isinstance(node, ast.ClassDef))
            else:
                yield from _methods(node, name, owner, in_class)


def form_of(node: ast.stmt) -> str:
    """How a statement defines a name: ``def``, ``def @lru_cache(maxsize=1)``, ``assign``, ``class``, ``import``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return " ".join(["def", *(f"@{ast.unparse(d)}" for d in node.decorator_list)])
    if isinstance(node, ast.ClassDef):
        return "class"
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "import"
    return "assign"


def _value(binding: Binding) -> ast.expr | None:
    node = binding.node
    return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None


def _string(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _aliases(module: Module, name: str) -> dict[str, str]:
    """Module-level names assigned from an expression that reads ``name``."""
    return {
        alias: name
        for alias, bindings in module.bindings.items()
        for binding in bindings
        if alias != name
        and (value := _value(binding)) is not None
        and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
    }


def _handles(module: Module) -> Iterator[str]:
    """Expressions that give an object whose class has a ``__getattr__``: ``get_platform()``, ``_PLATFORM``."""
    classes = {
        name
        for name, bindings in module.bindings.items()
        for b in bindings
        if isinstance(b.node, ast.ClassDef)
        and any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in b.node.body)
    }
    objects = {
        name
        for name, bindings in module.bindings.items()
        for b in bindings
        if isinstance(value := _value(b), ast.Call) and isinstance(value.func, ast.Name) and value.func.id in classes
    }
    for name, bindings in module.bindings.items():
        node = bindings[-1].node
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[-1], ast.Return):
            returned = node.body[-1].value
            if isinstance(returned, ast.Name) and returned.id in objects:
                yield f"{name}()"
    yield from (name for name in objects if not name.startswith("_"))


def _leads_into(module: Module, homes: set[str]) -> bool:
    """Whether the ``__getattr__`` behind a module's name maps may look a name up in one of these modules."""
    imported = {
        name
        for node in ast.walk(module.source.tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        for part in ast.walk(node)
        if isinstance(part, ast.ImportFrom)
        for alias in part.names
        for name in (f"{module.absolute(part)}.{alias.name}", module.absolute(part))
    }
    return not imported or any(home == name or home.startswith(f"{name}.") for home in homes for name in imported)


def _dunder_all(module: Module | None) -> set[str]:
    if module is None:
        return set()
    names: set[str] = set()
    for binding in module.bindings.get("__all__", ()):
        value = _value(binding)
        if isinstance(value, ast.List | ast.Tuple):
            names |= {e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)}
    return names


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node with the qualified name of the definition around it."""
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, within = stack.pop()
        yield node, within
        inner = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{within}.{node.name}" if within else node.name
        stack.extend((child, inner) for child in ast.iter_child_nodes(node))


def _modules(statements: Iterable[str]) -> set[str]:
    return {statement.split()[1] for statement in statements if statement.startswith("from ")}


def _shown(source: Source, node: ast.stmt) -> str:
    """The statement's text: whole when short, else its first lines."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    last = min(node.end_lineno or node.lineno, first + 11)
    return "\n".join(source.line(number).decode("utf-8", "replace") for number in range(first, last + 1))


def _versions(holds: tuple[str, ...]) -> str:
    """Ranges of the CUDA versions in which something holds, in words."""
    if holds == CUDA_VERSIONS:
        return "any CUDA version"
    runs: list[list[str]] = []
    for version in CUDA_VERSIONS:
        if version in holds:
            before = CUDA_VERSIONS.index(version) - 1
            if runs and before >= 0 and runs[-1][-1] == CUDA_VERSIONS[before]:
                runs[-1].append(version)
            else:
                runs.append([version])
    texts = []
    for run in runs:
        if run[-1] == CUDA_VERSIONS[-1]:
            texts.append(f"CUDA >= {run[0]}")
        elif run[0] == CUDA_VERSIONS[0]:
            texts.append(f"CUDA <= {run[-1]}")
        else:
            texts.append(f"CUDA {run[0]} to {run[-1]}")
    return " or ".join(texts)
