"""Requirements that read what another package's installed source says, beside those in ``patcher.gate``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from patcher.arch import SM
from patcher.gate import Facts, Finding, Gate
from patcher.predicate import Module
from patcher.versions import in_range


@dataclass(frozen=True)
class Exports:
    """A module of another package binds all these names. ``since`` stands in where its version is assumed."""

    distribution: str
    path: str
    names: Sequence[str]
    since: str
    because: str
    link: str = ""

    def check(self, facts: Facts, sm: SM) -> Finding:
        wanted = f"{self.path} has {', '.join(self.names)}"
        needs = f"{self.distribution}{self.since}"
        assumed = _assumed(facts, self.distribution, self.since)
        if assumed is not None:
            found = f"assumed from {self.distribution} {facts.version(self.distribution)}"
            return Finding(assumed, wanted, found, "", needs, self.because, self.link)
        tree = facts.tree(self.path.split("/")[0])
        source = tree.get(self.path) if tree else None
        if source is None:
            return Finding(False, wanted, f"{self.path} is not installed", self.path, needs, self.because, self.link)
        bound = Module(self.path, source, is_package=False).bindings
        missing = [name for name in self.names if name not in bound]
        found = f"no {', '.join(missing)}" if missing else "all of them"
        return Finding(not missing, wanted, found, self.path, needs, self.because, self.link)


@dataclass(frozen=True)
class OtherGate:
    """A gate of another engine in the same environment lets the SM through, as its installed source has it.

    Where the distribution's version is assumed, its source is not there to read: ``since`` (a version range)
    stands in for it.
    """

    gate: type[Gate]
    distribution: str
    since: str
    because: str
    link: str = ""

    def check(self, facts: Facts, sm: SM) -> Finding:
        from patcher import catalogue
        from patcher.plan import Inspector

        needs = f"{self.distribution}{self.since}"

        def finding(met: bool, found: str, where: str = "") -> Finding:
            return Finding(met, f"{self.gate.id} admits SM{sm}", found, where, needs, self.because, self.link)

        version = facts.version(self.distribution)
        assumed = _assumed(facts, self.distribution, self.since)
        if assumed is not None:
            return finding(assumed, f"assumed from {self.distribution} {version}")
        engine = catalogue.engine_named(self.gate.engine)
        tree = facts.tree(engine.package)
        if tree is None:
            return finding(False, f"{engine.called} is not installed")
        if version is not None and in_range(self.since, version):
            needs = f"a {self.distribution} in which {self.gate.id} admits SM{sm}"  # its version is not what is missing
        report = Inspector(engine, tree, version, facts).report(self.gate, sm)
        if not report.sites:
            return finding(False, report.reason)
        shut = [site for site in report.sites if not site.admits]
        decides = shut[0] if shut else report.sites[0]
        if decides.place is None:
            why, where = report.reason, decides.error.where if decides.error else ""
            return finding(False, f"{self.gate.id} is {report.state.value}: {why}", where)
        word = "refuses" if shut else "admits"
        return finding(not shut, f"{self.gate.id} {word} SM{sm} ({decides.place.text})", decides.where)


@dataclass(frozen=True)
class ListedCapability:
    """A function of another package carries ``@decorator([…])`` with the SM in the list (``120``, ``121``)."""

    distribution: str
    path: str
    function: str
    since: str
    because: str
    link: str = ""
    decorator: str = "supported_compute_capability"

    def check(self, facts: Facts, sm: SM) -> Finding:
        wanted = f"{self.function} in {self.path} supports {sm}"
        needs = f"{self.distribution}{self.since}" if self.since else f"a {self.distribution} that supports {sm}"
        assumed = _assumed(facts, self.distribution, self.since)

        def finding(met: bool, found: str, line: int = 0) -> Finding:
            where = f"{self.path}:{line}" if line else self.path
            return Finding(met, wanted, found, where, needs, self.because, self.link)

        if assumed is not None:
            found = f"assumed from {self.distribution} {facts.version(self.distribution)}"
            return Finding(assumed, wanted, found, "", needs, self.because, self.link)
        tree = facts.tree(self.path.split("/")[0])
        source = tree.get(self.path) if tree else None
        if source is None:
            return finding(False, f"{self.path} is not installed")
        # Searched, not parsed: these files run to hundreds of kilobytes.
        pattern = rf"^@[\w.]*{self.decorator}\(\s*\[([\d,\s]*)\]\s*\)\s*\n(?:@.*\n)*def {self.function}\("
        match = re.search(pattern.encode(), source.data.replace(b"\r\n", b"\n"), re.MULTILINE)
        if match is None:
            return finding(False, f"{self.function} does not say what it supports as expected")
        listed = [int(number) for number in re.findall(rb"\d+", match[1])]
        line = match.string.count(b"\n", 0, match.start()) + 1
        return finding(sm.major * 10 + sm.minor in listed, f"{self.decorator}({listed})", line)


def _assumed(facts: Facts, distribution: str, since: str) -> bool | None:
    """Whether an assumed version is in the range; None where nothing is assumed."""
    version = facts.version(distribution)
    if version is None or not facts.assumed(distribution):
        return None
    return bool(since) and in_range(since, version)


@dataclass(frozen=True)
class ShutOutBy:
    """A line of another package's source that shuts the SM out, for gates that must not be opened.

    ``lines``: path and pattern of where it was found over the releases; of the first that is there, the line in which
    the match ends is reported.
    """

    distribution: str
    lines: Sequence[tuple[str, str]]
    because: str
    link: str = ""

    def check(self, facts: Facts, sm: SM) -> Finding:
        wanted = f"{self.distribution} has kernels for SM{sm}"
        needs = f"a {self.distribution} that has them"
        for path, pattern in self.lines:
            tree = facts.tree(path.split("/")[0])
            source = tree.get(path) if tree else None
            found = re.search(pattern.encode(), source.data) if source else None
            if source is not None and found is not None:
                line = source.data.count(b"\n", 0, found.end()) + 1
                text = " ".join(source.line(line).decode("utf-8", "replace").split())
                return Finding(False, wanted, text, f"{path}:{line}", needs, self.because, self.link)
        version = facts.version(self.distribution)
        found_text = f"{self.distribution} {version}" if version else f"{self.distribution} is not installed"
        return Finding(False, wanted, found_text, "", needs, self.because, self.link)
