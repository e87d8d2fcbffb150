"""A file's syntax tree in which a definition is parsed when somebody looks into it.

Most of a large file is the bodies of functions that nobody asks about. The tree is the one that ``ast.parse`` gives,
position by position; only that the body of a definition at the top level, and of a method of a class there, is read
on the first use of ``body``. What is found in a definition that is never looked into, an error say, is not seen.

How the bodies are found: in Python that parses, a line that begins with ``def`` or ``class`` begins a statement,
unless it is in a string; and only a string in triple quotes holds a line's beginning. What is unclear is parsed whole.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

Read = Callable[[bytes], ast.Module]
"""``ast.parse``, with errors told as the reader wants them."""

_SMALL = 4_000  # bytes; a file below is parsed whole
_SHORT = 160  # bytes; likewise a body
_INDENT = b"    "
_QUOTED = re.compile(rb'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_WORDS = (b"def ", b"class ", b"async def ")
# The next statement at the level of a definition or above: a line that does not end a bracket or only comments.
_NEXT = {b"": re.compile(rb"\n(?=[^\s#)\]}])"), _INDENT: re.compile(rb"\n {0,4}(?=[^\s#)\]}])")}
# Where the head of a definition ends that takes several lines, the bracket on a line of its own.
_HEAD_ENDS = {b"": re.compile(rb"\n\)[^\n]*:(?=\n)"), _INDENT: re.compile(rb"\n    \)[^\n]*:(?=\n)")}


def parse(data: bytes, read: Read, lines: Sequence[int]) -> ast.Module:
    """The tree of a file. ``lines``: the byte offset of the start of each line.

    Raises what ``read`` raises, here or on the first use of a definition's ``body``.
    """
    plain = len(data) >= _SMALL and not any(sign in data for sign in (b"\r", b"\f", b"\xef\xbb\xbf"))
    strings = _strings(data) if plain else None
    if strings is None:
        return read(data)
    return _Text(data, strings, read, lines).outlined()


def _strings(data: bytes) -> list[tuple[int, int]] | None:
    """Where the strings in triple quotes are, in order; None where it is not clear."""
    found: list[tuple[int, int]] = []
    at = {quote: data.find(quote) for quote in (b'"""', b"'''")}
    place = 0
    while True:
        for quote, here in at.items():
            if 0 <= here < place:
                at[quote] = data.find(quote, place)
        openers = [(here, quote) for quote, here in at.items() if here >= 0]
        if not openers:
            return found
        start, quote = min(openers)
        before = _QUOTED.sub(b"", data[max(place, data.rfind(b"\n", 0, start) + 1) : start])
        if b"#" in before:  # in a comment
            place = data.find(b"\n", start)
            if place < 0:
                return found
            continue
        if b'"' in before or b"'" in before:
            return None
        end = data.find(quote, start + 3)
        while end >= 0 and _escaped(data, end):
            end = data.find(quote, end + 1)
        if end < 0:
            return None
        place = end + 3
        found.append((start, place))


def _escaped(data: bytes, at: int) -> bool:
    count = 0
    while data[at - 1 - count : at - count] == b"\\":
        count += 1
    return count % 2 == 1


class _Cut(NamedTuple):
    """A definition of which the body is left out: its first byte, the end of its head, its end, all in the file."""

    start: int
    head: int
    end: int


class _Text:
    """A file of which definitions are left for later. ``strings``: where those in triple quotes are."""

    def __init__(self, data: bytes, strings: list[tuple[int, int]], read: Read, lines: Sequence[int]) -> None:
        self.data = data
        self.strings = strings
        self.read = read
        self.lines = lines

    def outlined(self) -> ast.Module:
        cuts = list(self._cuts(b"", 0, len(self.data)))
        if cuts:
            try:
                tree = ast.parse(self._without(cuts, 0, len(self.data)))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return self.read(self.data)
            if self._left_for_later(tree.body, cuts, b""):
                return tree
        return self.read(self.data)

    # -- finding ---------------------------------------------------------------------------------------------

    def _in_string(self, at: int) -> int:
        """The end of the string that holds a byte, 0 when none does."""
        index = bisect_right(self.strings, (at, len(self.data))) - 1
        if index >= 0:
            start, end = self.strings[index]
            if start < at < end:
                return end
        return 0

    def _cuts(self, indent: bytes, start: int, end: int) -> Iterator[_Cut]:
        place = start
        for at in sorted(self._begins(indent, start, end)):
            if at < place or self._in_string(at) or self.data[at - 2 : at - 1] == b"\\":
                continue
            stop = self._end(indent, at, end)
            place = stop
            head = self._head(indent, at, stop)
            if head and stop - head > _SHORT:
                yield _Cut(at, head, stop)

    def _begins(self, indent: bytes, start: int, end: int) -> Iterator[int]:
        for word in _WORDS:
            wanted = b"\n" + indent + word
            at = self.data.find(wanted, start, end)
            while at >= 0:
                yield at + 1
                at = self.data.find(wanted, at + 1, end)

    def _end(self, indent: bytes, at: int, end: int) -> int:
        """Where the statement after a definition begins."""
        while True:
            found = _NEXT[indent].search(self.data, at + 1, end)
            if found is None:
                return end
            after = self._in_string(found.start() + 1)
            if not after:
                return found.start() + 1
            at = after - 1

    def _head(self, indent: bytes, at: int, end: int) -> int:
        """Where the head of a definition ends, with its colon; 0 where that is not clear."""
        line = self.data.find(b"\n", at, end)
        if line < 0:
            return 0
        if self.data[line - 1 : line] == b":":
            return line
        found = _HEAD_ENDS[indent].search(self.data, at, end)
        return found.end() if found and not self._in_string(found.start() + 1) else 0

    # -- parsing ---------------------------------------------------------------------------------------------

    def _without(self, cuts: list[_Cut], start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end`` without the bodies of the cuts; every line keeps its number."""
        parts = []
        for cut in cuts:
            parts += [self.data[start : cut.head], b" pass", b"\n" * (self._line(cut.end) - self._line(cut.head))]
            start = cut.end
        return b"".join([*parts, self.data[start:end]])

    def _line(self, at: int) -> int:
        return bisect_right(self.lines, at)

    def _left_for_later(self, body: list[ast.stmt], cuts: list[_Cut], indent: bytes) -> bool:
        """Make the definitions of the cuts such as read their bodies later; False when they are not all there."""
        waiting = {self._line(cut.start): cut for cut in cuts}
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.lineno in waiting:
                cut = waiting.pop(node.lineno)
                node.end_lineno = self._last_line(cut)
                del node.body, node.end_col_offset
                node.__dict__["_later"] = (self, cut, indent)
                node.__class__ = _LATER[type(node)]
        return not waiting

    def _last_line(self, cut: _Cut) -> int:
        """The line on which a definition ends: its last that is neither empty nor a comment."""
        end = cut.end
        while True:
            start = self.data.rfind(b"\n", 0, end - 1) + 1
            line = self.data[start:end].strip()
            if (line and not line.startswith(b"#")) or self._in_string(start):
                return self._line(start)
            end = start

    def body_of(self, cut: _Cut, indent: bytes) -> Any:
        """The definition of a cut, parsed; the methods of a class are left for later in turn."""
        inner = []
        if not indent and self.data.startswith(b"class ", cut.start):
            inner = [found for found in self._cuts(_INDENT, cut.head, cut.end) if found.end < cut.end]  # its end counts
        before = self._line(cut.start) - 1
        opening = b"\n" * before if not indent else b"\n" * (before - 1) + b"if 1:\n"
        for cuts in (inner, []) if inner else ([],):
            try:
                parsed = self.read(opening + self._without(cuts, cut.start, cut.end))
            except Exception:
                if cuts:
                    continue
                raise
            holder: Any = parsed.body[0] if indent else parsed
            (node,) = holder.body
            if not cuts or self._left_for_later(node.body, cuts, _INDENT):
                return node
        raise AssertionError("the loop returns or raises")


def _loaded(node: Any) -> Any:
    """A definition with its body, from now on like any other."""
    text, cut, indent = node._later
    parsed = text.body_of(cut, indent)
    node.__class__ = type(parsed)
    del node._later
    node.body, node.end_lineno, node.end_col_offset = parsed.body, parsed.end_lineno, parsed.end_col_offset
    return node


def _later(kind: type[ast.stmt]) -> type[Any]:
    """A kind of definition, by its own name, that reads its body on first use."""
    return type(kind.__name__, (kind,), {name: property(partial(_unread, name=name)) for name in _UNREAD})


def _unread(node: Any, name: str) -> Any:
    return getattr(_loaded(node), name)


_UNREAD = ("body", "end_col_offset")
_LATER = {kind: _later(kind) for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)}
