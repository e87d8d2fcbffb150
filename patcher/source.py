"""A Python source file as bytes: encoding, lines, digest, definitions and the byte span of any node.

Positions: ``ast`` counts columns in UTF-8 bytes and lines after \\r\\n, \\r and \\n only, so a span found
here cuts the very bytes of the file, whatever its newlines.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import FileIO
from itertools import accumulate
from pathlib import Path

from patcher import outline
from patcher.errors import IOFailure, Unparsable

BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff][^\r\n]*")
_WORD = re.compile(rb"[\w\x80-\xff]")
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def digest(data: bytes) -> str:
    """The SHA-256 of ``data`` in hex."""
    return hashlib.sha256(data).hexdigest()


def occurrences(data: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The byte offsets at which an identifier stands as a whole word (in code, a string or a comment)."""
    wanted = name.encode()
    at = data.find(wanted, start, end)
    while at >= 0:
        after = at + len(wanted)
        if not _WORD.match(data, after) and not (at and _WORD.match(data, at - 1)):
            yield at
        at = data.find(wanted, after, end)


class Source:
    """One file's bytes and what can be read from them.

    ``name`` is the path shown to people. Raises Unparsable (on first use of ``tree``, or of a definition's body)
    when the bytes are not UTF-8 Python that this interpreter's ``ast`` reads. ``whole``: parse it all at once, so
    that an error anywhere in it is told.
    """

    def __init__(self, name: str, data: bytes, whole: bool = False) -> None:
        self.name = name
        self.data = data
        self.whole = whole

    @cached_property
    def digest(self) -> str:
        return digest(self.data)

    @cached_property
    def tree(self) -> ast.Module:
        self._refuse_other_encodings()
        return self._read(self.data) if self.whole else outline.parse(self.data, self._read, self.line_starts)

    def _read(self, data: bytes) -> ast.Module:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            raise Unparsable(
                f"the file does not parse: {getattr(error, 'msg', None) or error}",
                where=f"{self.name}:{line}" if line else self.name,
                hint="if it uses syntax newer than this Python, run sm-patch with the engine's own Python",
            ) from error

    def _refuse_other_encodings(self) -> None:
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unparsable(
                f"the file is not UTF-8 (byte {error.start})",
                where=self.name,
                hint="sm-patch edits UTF-8 sources only",
            ) from error
        for line in self.data.removeprefix(BOM).split(b"\n", 2)[:2]:
            cookie = _COOKIE.match(line)
            if cookie and cookie[1].lower().replace(b"_", b"-") not in (b"utf-8", b"utf8", b"ascii", b"us-ascii"):
                declared = cookie[1].decode("ascii", "replace")
                raise Unparsable(
                    f"the file declares the encoding {declared}",
                    where=self.name,
                    hint="sm-patch edits UTF-8 sources only",
                )

    @cached_property
    def line_starts(self) -> list[int]:
        """Byte offset of the start of each line (line 1 first)."""
        lines = self.data.splitlines(keepends=True)
        starts = list(accumulate(map(len, lines), initial=0))
        return starts if not lines or lines[-1].endswith((b"\r", b"\n")) else starts[:-1]

    def lines_with(self, name: str, within: ast.stmt | None = None) -> list[int]:
        """The numbers of the lines (of a statement) on which an identifier stands or may stand, in order.

        Python takes some characters for others (NFKC), so a line with any beyond ASCII is one of them.
        """
        first, last = (within.lineno, within.end_lineno or within.lineno) if within else (1, self.line_count)
        end = self.line_starts[last] if last < self.line_count else len(self.data)
        found = occurrences(self.data, name, self.line_starts[first - 1], end)
        lines = {bisect_right(self.line_starts, at) for at in found}
        lines.update(
            self._beyond_ascii[bisect_left(self._beyond_ascii, first) : bisect_right(self._beyond_ascii, last)]
        )
        return sorted(lines)

    @cached_property
    def _beyond_ascii(self) -> list[int]:
        if self.data.isascii():
            return []
        return [bisect_right(self.line_starts, found.start()) for found in _BEYOND_ASCII.finditer(self.data)]

    @cached_property
    def newline(self) -> bytes:
        """The file's first line ending; inserted lines get the same."""
        match = _LINE_END.search(self.data)
        return match[0] if match else b"\n"

    def offset(self, line: int, column: int) -> int:
        """Byte offset of an ``ast`` position (line from 1, column in UTF-8 bytes)."""
        bom = len(BOM) if line == 1 and self.data.startswith(BOM) else 0
        return self.line_starts[line - 1] + column + bom

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Byte span of a node, without parentheses around an expression."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def line(self, number: int) -> bytes:
        """The bytes of a line without its ending."""
        start = self.line_starts[number - 1]
        end = self.line_starts[number] if number < len(self.line_starts) else len(self.data)
        return self.data[start:end].rstrip(b"\r\n")

    @property
    def line_count(self) -> int:
        return len(self.line_starts)

    def defined(self, qualname: str) -> list[Definition]:
        """The functions and classes of a qualified name (``Class.method``): several when it is defined twice."""
        if qualname not in self._defined:
            *outer, name = qualname.rsplit(".", 1)
            holders = [node.body for node in self.defined(outer[0])] if outer else [self.tree.body]
            self._defined[qualname] = [node for body in holders for node in definitions(body) if node.name == name]
        return self._defined[qualname]

    @cached_property
    def _defined(self) -> dict[str, list[Definition]]:
        return {}


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """The definitions of a body, those under its ``if``, ``try`` and the like included."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        elif not isinstance(node, _SIMPLE):
            for inner in bodies(node):
                yield from definitions(inner)


_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Import, ast.ImportFrom, ast.Return, ast.Assert, ast.Raise)


_BODIES = ("body", "handlers", "orelse", "finalbody", "cases")


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly below a statement (body, handlers, orelse, cases), in their order."""
    for name in _BODIES:
        value = getattr(node, name, None)
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                yield value
            else:
                for part in value:
                    yield part.body


def first_line(node: ast.stmt) -> int:
    """The line on which a statement begins, its decorators included."""
    decorators = getattr(node, "decorator_list", None)
    return min(node.lineno, decorators[0].lineno) if decorators else node.lineno


def spanning(
    body: list[ast.stmt], lines: Sequence[int], around: tuple[Definition, ...] = ()
) -> Iterator[tuple[ast.stmt, tuple[Definition, ...]]]:
    """The statements of a body that span any of the lines (sorted), outer ones first, with the definitions around."""
    stack = [(body, around)]
    while stack:
        block, around = stack.pop()
        for node in block:
            at = bisect_left(lines, first_line(node))
            if at == len(lines) or lines[at] > (node.end_lineno or node.lineno):
                continue
            yield node, around
            inside = (*around, node) if isinstance(node, Definition) else around
            stack.extend((inner, inside) for inner in bodies(node))


class SourceTree:
    """The files below one folder, read once each; ``overlay`` stands in for files not written yet, parsed whole.

    ``read`` files are remembered (``seen``), so that a cached answer can name everything it depends on.
    """

    def __init__(self, root: Path, overlay: Mapping[str, bytes] | None = None, base: SourceTree | None = None) -> None:
        self.root = root
        self._root = str(root)
        self._base = base
        self._sources: dict[str, Source | None] = {}
        for path, data in (overlay or {}).items():
            self._sources[path] = Source(path, data, whole=True)

    def get(self, path: str) -> Source | None:
        """The file at ``path`` (relative, with ``/``), or None when there is none. Raises IOFailure."""
        if path not in self._sources:
            self._sources[path] = self._base.get(path) if self._base else self.read(path)
        return self._sources[path]

    def read(self, path: str) -> Source | None:
        """The file as it is on disk now, not remembered. Raises IOFailure."""
        try:
            with FileIO(f"{self._root}/{path}") as file:  # a scan reads thousands
                return Source(path, file.readall())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise IOFailure(
                f"cannot read the file: {error.strerror}", where=str(self.root / path), hint="check its permissions"
            ) from error

    def with_overlay(self, overlay: Mapping[str, bytes]) -> SourceTree:
        """The same tree with some files replaced; all others are read and parsed once for both."""
        return SourceTree(self.root, overlay, base=self)

    @property
    def seen(self) -> tuple[str, ...]:
        """Every path asked for so far, found or not."""
        return tuple(self._sources)
