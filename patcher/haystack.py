"""All the Python files of a package: how common a name is in them, and which of them a trace may have gone to."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from patcher.errors import SmPatchError, Unparsable
from patcher.scan import python_files
from patcher.sites import View, view_of
from patcher.source import SourceTree
from patcher.traces import Kind, Spot, Trace, traces, words

if TYPE_CHECKING:
    from patcher.plan import Inspector

_FILES = 24
"""How many files are read closely, by what they hold and by how they are called."""
_NAMED = 8


class Haystack:
    """All the Python files of a package, as bytes, and the spots in those that were looked at."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        tree = inspector.predicates.tree
        self.files = dict(_files(tree, inspector.engine.package))
        self._read: dict[tuple[str, Kind], tuple[View, list[tuple[Spot, Trace]]] | None] = {}
        self._counts: dict[str, int] = {}

    def count(self, name: str) -> int:
        """In how many files a name occurs, as part of another one too."""
        if name not in self._counts:
            needle = name.encode()
            self._counts[name] = sum(1 for data in self.files.values() if needle in data)
        return self._counts[name]

    def weight(self, name: str) -> float:
        """How much a name tells: much when few files hold it."""
        return math.log((len(self.files) + 1) / (self.count(name) + 1)) + 0.1

    def has(self, name: str) -> bool:
        """Whether any file holds the name as a word of its own."""
        whole = re.compile(rb"\b" + re.escape(name.encode()) + rb"\b")
        return self.count(name) > 0 and any(whole.search(data) for data in self.files.values())

    def holding(self, name: str) -> list[str]:
        """The files that hold a name."""
        needle = name.encode()
        return [path for path, data in self.files.items() if needle in data]

    def view(self, path: str) -> View | None:
        """A file as sites see it, or None where it is not there or does not read."""
        inspector = self.inspector
        try:
            return view_of(inspector.engine, path.removeprefix(f"{inspector.engine.package}/"), inspector.predicates)
        except SmPatchError:
            return None

    def spots(self, path: str, kind: Kind) -> tuple[View, list[tuple[Spot, Trace]]] | None:
        """The file's spots of one kind with their traces; None where it does not parse."""
        if (path, kind) not in self._read:
            view = self.view(path)
            try:
                self._read[path, kind] = (view, traces(path, view.source, kind)) if view else None
            except Unparsable:  # a definition's body is read when it is looked into
                self._read[path, kind] = None
        return self._read[path, kind]

    def readers(self, path: str) -> list[tuple[Spot, Trace]]:
        """Where the file's own values are read: its conditions, and calls that stand alone."""
        _, conditions = self.spots(path, "condition") or (None, [])
        _, statements = self.spots(path, "statement") or (None, [])
        return [*conditions, *((spot, seen) for spot, seen in statements if isinstance(spot.node, ast.Expr))]

    def likely_files(self, wanted: Trace, subject: frozenset[str] = frozenset()) -> list[str]:
        """The files that hold most of what a trace names, rare names first, and those named like the subject."""
        context = sorted(wanted.context, key=self.weight, reverse=True)[:30]
        names = {*wanted.names, *wanted.effects, wanted.within.rpartition(".")[2], *context} - {""}
        weights = {name.encode(): self.weight(name) for name in names}
        scores = {path: sum(w for name, w in weights.items() if name in data) for path, data in self.files.items()}
        ranked = sorted((path for path, score in scores.items() if score), key=lambda p: -scores[p])
        same = [wanted.path] if wanted.path in self.files else []
        return list(dict.fromkeys((*same, *ranked[:_FILES], *self._named(subject))))

    def _named(self, subject: frozenset[str]) -> list[str]:
        """The files whose paths have the most words of the subject, those of few paths counting more."""
        counts = Counter(word for told in self._told.values() for word in told & subject)
        scores = {
            path: sum(math.log((len(self._told) + 1) / (counts[word] + 1)) for word in told & subject)
            for path, told in self._told.items()
        }
        return sorted((path for path, score in scores.items() if score), key=lambda p: -scores[p])[:_NAMED]

    @cached_property
    def _told(self) -> dict[str, frozenset[str]]:
        return {path: words(path.removesuffix(".py")) for path in self.files}


def _files(tree: SourceTree, package: str) -> Iterator[tuple[str, bytes]]:
    """Folder by folder, a folder's files before those of the folders in it."""

    def place(path: str) -> list[tuple[int, str]]:
        *folders, name = path.split("/")
        return [*((1, folder) for folder in folders), (0, name)]

    for path in sorted(python_files(tree.root, package), key=place):
        try:
            source = tree.read(path)
        except SmPatchError:
            continue  # what cannot be read cannot be patched either
        if source is not None:
            yield path, source.data
