"""The gates there are: every module of ``patches/<engine>/``, imported once."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from types import ModuleType

from patcher.errors import RecipeError, UnknownEngine, UnknownGate
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


@cache
def gates(engine: str) -> dict[str, type[Gate]]:
    """The gates of one engine by id, in order of id. Raises RecipeError naming a recipe that does not import."""
    package = _import(f"patches.{engine}")
    found: dict[str, type[Gate]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = _import(f"patches.{engine}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Gate) and value.__module__ == module.__name__:
                if value.id in found:
                    raise RecipeError(f"two recipes are called {value.id}", where=module.__name__)
                found[value.id] = value
    return dict(sorted(found.items()))


def data(engine: str, name: str) -> ModuleType | None:
    """A module of facts beside an engine's recipes (``patches/<engine>/_<name>.py``), or None. Loaded lazily."""
    full = f"patches.{engine}._{name}"
    if importlib.util.find_spec(full) is None:
        return None
    module: ModuleType = _import(full)
    return module


def _import(name: str):  # type: ignore[no-untyped-def]
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise RecipeError(f"the recipe module does not import: {error}", where=name) from error


def engine_named(name: str) -> Engine:
    """The engine of that name. Raises UnknownEngine."""
    known = engines()
    if name not in known:
        raise UnknownEngine(f"'{name}' is not an engine that sm-patch knows", hint=f"one of {', '.join(known)}")
    return known[name]


def select(names: Sequence[str], among: dict[str, type[Gate]]) -> list[type[Gate]]:
    """The named gates. Raises UnknownGate with the nearest names."""
    chosen = []
    for name in names:
        if name not in among:
            near = get_close_matches(name, among, n=3, cutoff=0.4) or list(among)[:5]
            raise UnknownGate(f"'{name}' is not a gate of the catalogue", hint=f"did you mean {', '.join(near)}?")
        chosen.append(among[name])
    return chosen
