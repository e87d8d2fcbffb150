"""Runs functions of a real release without importing it: only what is executed is linked, from source.

Names are looked up when they are used: a module's own statement for the name is executed, names imported from the
package are linked the same way, other modules are stand-ins or really imported. So a function of an engine runs
with its real predicates and aliases, while torch and everything heavy is a stand-in.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from patcher.arch import SM
from patcher.predicate import Module, Predicates
from patcher.source import Definition, SourceTree


class Anything:
    """A stand-in that may be called, subscripted and asked for anything (annotations, base classes)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a decorator it gives the function back.
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Anything()

    def __getitem__(self, item: Any) -> Any:
        return Anything()

    __iter__ = None  # it has no end

    def __or__(self, other: Any) -> Any:
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[()]:
        return ()


def torch_on(sm: SM, **more: Any) -> Any:
    """A stand-in for torch on a CUDA 12.9 machine with GPUs of one SM."""
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_device_capability=lambda device=None: (sm.major, sm.minor),
        get_device_properties=lambda device=None: SimpleNamespace(major=sm.major, minor=sm.minor),
        get_device_name=lambda device=None: "GPU",
        current_device=lambda: 0,
        device_count=lambda: 1,
    )
    torch = Anything()
    values = {"cuda": cuda, "version": SimpleNamespace(cuda="12.9", hip=None), **more}
    for name, value in values.items():
        setattr(torch, name, value)
    return torch


@cache
def _tree(root: Path) -> SourceTree:
    return SourceTree(root)


class Linker:
    """One release (``root`` holds the package), some files replaced, some names stood in for.

    ``stand_ins``: by ``module:name`` (that very name), by bare ``name`` (in whatever module), or by the name of a
    top-level module (``torch``).
    """

    def __init__(
        self, root: Path, package: str, stand_ins: Mapping[str, Any], overlay: Mapping[str, bytes] | None = None
    ) -> None:
        self.package = package
        self.stand_ins = dict(stand_ins)
        self.modules = Predicates(_tree(root).with_overlay(overlay or {}), package)
        self.namespaces: dict[str, _Namespace] = {}

    def get(self, module: str, name: str) -> Any:
        """``module.name``, executed for real. ``name`` may be ``Class.method``."""
        first, *rest = name.split(".")
        value = self.namespace(module)[first]
        for part in rest:
            value = getattr(value, part)
        return value

    def namespace(self, module: str) -> _Namespace:
        if module not in self.namespaces:
            found = self.modules.module(module)
            if found is None:
                raise ImportError(module)
            self.namespaces[module] = _Namespace(self, found)
        return self.namespaces[module]

    def outside(self, module: str, name: str | None) -> Any:
        """A module that is not of the package, or a name in it: a stand-in, else really imported, else anything."""
        top, *path = module.split(".")
        if top in self.stand_ins:
            value = self.stand_ins[top]
            for part in path:
                value = getattr(value, part)
        else:
            try:
                value = importlib.import_module(module)
            except ImportError:
                return Anything()
        return value if name is None else getattr(value, name)


class _Proxy:
    """A module of the package as an object."""

    def __init__(self, linker: Linker, module: str) -> None:
        self.__dict__["_linker"] = linker
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        try:
            return self._linker.namespace(self._module)[name]
        except (ImportError, KeyError):
            if self._linker.modules.module(f"{self._module}.{name}"):
                return _Proxy(self._linker, f"{self._module}.{name}")
            raise AttributeError(name) from None


class _Namespace(dict[str, Any]):
    """A module's globals; a name is linked when it is first used."""

    def __init__(self, linker: Linker, module: Module) -> None:
        super().__init__(__name__=module.name)
        self.linker = linker
        self.module = module
        self["__builtins__"] = {**vars(builtins), "__import__": self._import}

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level:
            name = self.module.absolute(ast.ImportFrom(module=name or None, names=[], level=level))
        if name.split(".")[0] != self.linker.package:
            value = self.linker.outside(name, None)
            return value if fromlist else self.linker.outside(name.split(".")[0], None)
        return _Proxy(self.linker, name if fromlist else name.split(".")[0])

    def __missing__(self, name: str) -> Any:
        stand_ins = self.linker.stand_ins
        for key in (f"{self.module.name}:{name}", name):
            if key in stand_ins:
                return stand_ins[key]
        bindings = self.module.bindings.get(name, [])
        chosen = next((b for b in reversed(bindings) if not b.guards), bindings[-1] if bindings else None)
        if chosen is None:
            return self._from_star(name)
        node = chosen.node
        if isinstance(node, ast.ImportFrom):
            alias = next(a for a in node.names if (a.asname or a.name) == name)
            self[name] = self._imported(self.module.absolute(node), alias.name)
        elif isinstance(node, ast.Import):
            alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
            target = alias.name if alias.asname else alias.name.split(".")[0]
            inside = target.split(".")[0] == self.linker.package
            self[name] = _Proxy(self.linker, target) if inside else self.linker.outside(target, None)
        elif isinstance(node, Definition | ast.Assign | ast.AnnAssign):
            exec(compile(ast.Module([node], []), self.module.source.name, "exec"), self)
        else:
            raise KeyError(name)
        return self[name]

    def _imported(self, module: str, name: str) -> Any:
        if module.split(".")[0] != self.linker.package:
            return self.linker.outside(module, name)
        return getattr(_Proxy(self.linker, module), name)

    def _from_star(self, name: str) -> Any:
        for star in reversed(self.module.stars):
            origin = self.module.absolute(star)
            if not name.startswith("_") and self.linker.modules.module(origin):
                try:
                    return self.linker.namespace(origin)[name]
                except KeyError:
                    continue
        raise KeyError(name)
