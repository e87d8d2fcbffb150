"""Requirements read from any installed text: a line that says which GPUs the code around it takes."""

from __future__ import annotations

from dataclasses import dataclass

from patcher.arch import SM
from patcher.gate import Facts, Finding
from patcher.source import Source


@dataclass(frozen=True)
class Stated:
    """An installed file holds a line with ``text`` (behind one with ``after``), which admits the SM or does not.

    Unlike ListedMajor it reads no meaning: the recipe says whom the line ``admits``. It points people at the
    very line downstream that decides, C++ headers included. Where that line is gone the requirement is unmet.
    """

    distribution: str
    path: str
    text: str
    because: str
    after: str = ""
    link: str = ""
    admits: frozenset[SM] = frozenset()

    def check(self, facts: Facts, sm: SM) -> Finding:
        wanted = f"{self.path} takes SM{sm}"
        needs = f"a {self.distribution} with kernels for SM{sm}"

        def finding(met: bool, found: str, line: int = 0) -> Finding:
            where = f"{self.path}:{line}" if line else ""
            return Finding(met, wanted, found, where, needs, self.because, self.link)

        tree = facts.tree(self.path.split("/")[0])
        source = tree.get(self.path) if tree else None
        if source is None:
            return finding(False, f"no {self.path} here")
        line = self._line(source)
        if not line:
            return finding(False, f"no line with '{self.text}'")
        shown = source.line(line).decode("utf-8", "replace").strip()
        return finding(sm in self.admits, shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…", line)

    def _line(self, source: Source) -> int:
        """The number of the line, 0 when there is none."""
        text, after = self.text.encode(), self.after.encode()
        behind = not after
        for number in range(1, source.line_count + 1):
            line = source.line(number)
            if behind and text in line:
                return number
            behind = behind or after in line
        return 0


_SHOWN = 90
