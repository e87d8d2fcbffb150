"""A gate's real functions, original and patched, linked side by side on a GPU of one SM."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from patcher.arch import SM, parse_sm
from patcher.catalogue import gates
from patcher.plan import FileChange
from patcher.predicate import Predicates
from patcher.source import SourceTree
from scripts import releases
from scripts.matrix import inspector_of
from tests.releases.linker import Linker, torch_on

SMS = [parse_sm(text) for text in ("80", "90", "100", "103", "110", "120", "121")]
TARGETS = {SM(12, 0), SM(12, 1)}


class Settings(SimpleNamespace):
    """Server arguments: what is not set is None, and methods give nothing."""

    def __getattr__(self, name: str) -> Any:
        return None


@cache
def changes(gate: str, release: str) -> Mapping[str, FileChange]:
    """What applying one gate, the way its action says, changes in a release."""
    recipe = gates("sglang")[gate]
    return inspector_of(release).plan({recipe: recipe.direction()}).changes


def pair(
    gate: str, release: str, sm: SM, module: str, name: str, stand_ins: Mapping[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``module.name`` as released and as patched. ``Class.method`` gives the bare function, its class not made."""
    root = releases.unpacked("sglang", release)
    found = []
    for tree in _trees(gate, release):
        linker = Linker(root, "sglang", {"torch": torch_on(sm), **stand_ins})
        linker.modules = Predicates(tree, "sglang")
        found.append(_function(linker, module, name))
    original, after = found
    return original, after


@cache
def _trees(gate: str, release: str) -> tuple[SourceTree, SourceTree]:
    """A release as it is and as patched, each file parsed once for all SMs."""
    patched = {path: change.after for path, change in changes(gate, release).items()}
    assert patched, "the gate changes nothing here"
    original = SourceTree(releases.unpacked("sglang", release))
    return original, original.with_overlay(patched)


def _function(linker: Linker, module: str, name: str) -> Callable[..., Any]:
    if "." not in name:
        function: Callable[..., Any] = linker.get(module, name)
        return function
    namespace = linker.namespace(module)
    (node,) = namespace.module.source.defined(name)
    assert isinstance(node, ast.FunctionDef)
    alone = copy.copy(node)
    alone.decorator_list = []
    alone.returns = None
    held: dict[str, Any] = {}
    exec(
        compile(ast.fix_missing_locations(ast.Module([alone], [])), namespace.module.source.name, "exec"),
        namespace,
        held,
    )
    made: Callable[..., Any] = held[node.name]
    return made


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call gives: its value, or the exception's kind and text."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
