"""The gates there are: every module of ``patches/<engine>/``, imported once, and the third-party packs opted in."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from types import ModuleType

from patcher.errors import BadAssumption, RecipeError, UnknownEngine, UnknownGate, UnknownPack
from patcher.gate import Engine, Gate


@cache
def engines() -> dict[str, Engine]:
    """The engines by name."""
    import patches

    found = {}
    for module in pkgutil.iter_modules(patches.__path__):
        if module.ispkg:
            engine: Engine = _import(f"patches.{module.name}").ENGINE
            found[engine.name] = engine
    return found


def gates(engine: str) -> dict[str, type[Gate]]:
    """The gates of one engine by id, in order of id, those of the packs opted in included.

    Raises RecipeError naming a recipe or a pack that does not import or does not fit, UnknownPack.
    """
    return _gates(engine, _packs)


@cache
def _gates(engine: str, packs: tuple[str, ...]) -> dict[str, type[Gate]]:
    found: dict[str, type[Gate]] = {}
    for module in _modules(f"patches.{engine}"):
        _collect(module, found)
    for name in packs:
        for module in pack_modules(name):
            _collect(module, found, engine)
    return dict(sorted(found.items()))


def data(engine: str, name: str) -> ModuleType | None:
    """A module of facts beside an engine's recipes (``patches/<engine>/_<name>.py``), or None. Loaded lazily."""
    full = f"patches.{engine}._{name}"
    if importlib.util.find_spec(full) is None:
        return None
    return _import(full)


def _modules(name: str) -> list[ModuleType]:
    """A module and, where it is a package, those in it that are not private."""
    module = _import(name)
    inner = pkgutil.iter_modules(getattr(module, "__path__", ()))
    return [module, *(_import(f"{name}.{info.name}") for info in inner if not info.name.startswith("_"))]


def _collect(module: ModuleType, found: dict[str, type[Gate]], engine: str = "") -> None:
    """Adds the gates that a module defines (of ``engine`` only, where it is named)."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Gate) and value.__module__ == module.__name__:
            missing = [name for name in _FACTS if not hasattr(value, name)]
            if missing:
                what = f"the recipe {value.__name__} does not say its {', '.join(missing)}"
                raise RecipeError(what, where=module.__name__)
            if engine and value.engine != engine:
                continue
            if value.id in found:
                raise RecipeError(f"two recipes are called {value.id}", where=module.__name__)
            found[value.id] = value


_FACTS = ("id", "engine", "family", "title", "action", "level", "targets", "sites")


# -- third-party packs ---------------------------------------------------------------------------------------------

PACK_GROUP = "sm_patch.gates"
_packs: tuple[str, ...] = ()


def opt_in(names: Sequence[str]) -> None:
    """Use the gates of these third-party packs, and of no others, in this process."""
    global _packs
    _packs = tuple(dict.fromkeys(names))


def opted_in() -> tuple[str, ...]:
    """The names of the packs whose gates are used."""
    return _packs


def pack_modules(name: str) -> list[ModuleType]:
    """The modules of an installed pack. Raises UnknownPack, RecipeError naming a pack that does not import."""
    import importlib_metadata as metadata

    points = {point.name: point for point in metadata.entry_points(group=PACK_GROUP)}
    if name not in points:
        installed = ", ".join(sorted(points)) or "none"
        hint = f"packs are installed beside sm-patch (entry point group {PACK_GROUP}); installed: {installed}"
        raise UnknownPack(f"there is no pack '{name}'", hint=hint)
    try:
        modules = _modules(points[name].module)
        engine_names = engines()
        for module in modules:
            found: dict[str, type[Gate]] = {}
            _collect(module, found)
            for gate in found.values():
                if gate.engine not in engine_names:
                    raise RecipeError(f"{gate.id} is for '{gate.engine}', no engine of sm-patch", where=module.__name__)
    except RecipeError as error:
        error.what = f"the pack '{name}' cannot be used: {error.what}"
        raise
    return modules


def pack_files() -> list[str]:
    """The files and folders that the opted-in packs were read from."""
    files: list[str] = []
    for name in _packs:
        for module in pack_modules(name):
            files += [*getattr(module, "__path__", ()), *([module.__file__] if module.__file__ else [])]
    return files


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise RecipeError(f"the recipe module does not import: {error!r}", where=name) from error


def engine_named(name: str) -> Engine:
    """The engine of that name. Raises UnknownEngine."""
    known = engines()
    if name not in known:
        raise UnknownEngine(f"'{name}' is not an engine that sm-patch knows", hint=f"one of {', '.join(known)}")
    return known[name]


def require_asked_about(distributions: Iterable[str]) -> None:
    """Raises BadAssumption, with the nearest name, for a distribution that no requirement of any gate asks about.

    The ones that belong beside an engine may be named as well: ``doctor`` looks at them.
    """
    beside = {name for engine in engines().values() for name in engine.related}
    if beside.issuperset(distributions):
        return  # recipes take time to load
    every = [gate for engine in engines() for gate in gates(engine).values()]
    requirements = [requirement for gate in every for requirement in (*gate.requires, *gate.upstream_checks)]
    asked = {name for requirement in requirements if (name := getattr(requirement, "distribution", ""))}
    for name in distributions:
        if name not in asked | beside:
            near = get_close_matches(name, sorted(asked | beside), n=3, cutoff=0.6)
            likely = [*(n for n in near if n in asked), *near][:1]
            meant = f"did you mean {likely[0]}? " if likely else ""
            hint = f"{meant}Asked about are {', '.join(sorted(asked | beside))}"
            raise BadAssumption(f"no gate asks about a distribution '{name}'", hint=hint)


def select(names: Sequence[str], among: dict[str, type[Gate]]) -> list[type[Gate]]:
    """The named gates. Raises UnknownGate with the nearest names."""
    chosen = []
    for name in names:
        if name not in among:
            near = get_close_matches(name, among, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else "'sm-patch status --all' lists them"
            raise UnknownGate(f"'{name}' is not a gate of the catalogue", hint=hint)
        chosen.append(among[name])
    return chosen
