"""The words of a recipe: Gate, Action, Level, State, Requirement, Evidence, Example.

A recipe is a subclass of Gate in a file of its own under ``patches/<engine>/``. It holds facts only; finding,
editing and proving is the machinery's work.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol

from patcher.arch import SM
from patcher.source import SourceTree
from patcher.versions import in_range

if TYPE_CHECKING:
    from patcher.sites import Site


class Action(str, Enum):
    OPEN = "open"
    CLOSE = "close"
    FIX = "fix"


class Level(str, Enum):
    """How well a recipe is founded; ``refused`` gates are shown with their reason and never opened."""

    BACKPORT = "backport"
    REPORTED = "reported"
    EXPERIMENTAL = "experimental"
    REFUSED = "refused"


class State(str, Enum):
    """Of one gate on one installation for one SM."""

    OPEN = "open"
    CLOSED = "closed"
    PATCHED = "patched"
    PARTIAL = "partial"
    TOO_OPEN = "too-open"
    REFUSED = "refused"
    ABSENT = "absent"
    UNRECOGNISED = "unrecognised"
    MODIFIED = "modified"
    LOST = "lost"


class Direction(str, Enum):
    """Which way an edit goes: let the targets in, keep them out, or give them the right values."""

    OPEN = "open"
    CLOSE = "close"
    FIX = "fix"

    @property
    def admits(self) -> bool:
        """Whether the targets are let through (with the right values) once it is done."""
        return self is not Direction.CLOSE

    @property
    def done(self) -> str:
        """The word for what was done."""
        return {Direction.OPEN: "opened", Direction.CLOSE: "closed", Direction.FIX: "fixed"}[self]


@dataclass(frozen=True)
class Evidence:
    """A public source for a claim: a link, what it says, and what was measured there, if anything."""

    link: str
    says: str
    measured: str = ""


class Facts(Protocol):
    """What requirements may ask about the environment."""

    def version(self, distribution: str) -> str | None:
        """The installed (or assumed) version, or None when it is not there."""

    def assumed(self, distribution: str) -> bool:
        """Whether ``version`` comes from ``--assume``."""

    def tree(self, package: str) -> SourceTree | None:
        """The folder that holds ``package``, or None when the environment has none."""


@dataclass(frozen=True)
class Finding:
    """What a requirement found. ``where`` is the path:line that decides, ``needs`` what would satisfy it."""

    met: bool
    requirement: str
    found: str
    where: str = ""
    needs: str = ""
    because: str = ""
    link: str = ""


class Requirement(Protocol):
    def check(self, facts: Facts, sm: SM) -> Finding:
        """Whether it holds for ``sm`` in this environment."""


@dataclass(frozen=True)
class Package:
    """A version range of a distribution in the same environment."""

    distribution: str
    versions: str
    because: str
    link: str = ""

    def check(self, facts: Facts, sm: SM) -> Finding:
        version = facts.version(self.distribution)
        wanted = f"{self.distribution}{self.versions}"
        met = version is not None and in_range(self.versions, version)
        note = " (assumed)" if facts.assumed(self.distribution) else ""
        found = f"{self.distribution} {version}{note}" if version else f"{self.distribution} is not installed"
        return Finding(met, wanted, found, needs=wanted, because=self.because, link=self.link)


@dataclass(frozen=True)
class ListedMajor:
    """A function of an installed package passes a literal list of compute-capability majors that holds the SM's.

    Where the distribution's version is assumed, its source is not there to read: ``since`` (a version range)
    stands in for it.
    """

    distribution: str
    path: str
    within: str
    keyword: str
    since: str
    because: str
    link: str = ""

    def check(self, facts: Facts, sm: SM) -> Finding:
        wanted = f"{self.within}({self.keyword}=...) in {self.path} admits {sm.major}"
        needs = f"{self.distribution}{self.since}"
        version = facts.version(self.distribution)
        recent = version is not None and in_range(self.since, version)
        if version is not None and facts.assumed(self.distribution):
            found = f"assumed from {self.distribution} {version}"
            return Finding(recent, wanted, found, "", needs, self.because, self.link)
        if recent:
            needs = f"a {self.distribution} whose {self.within} lists {sm.major}"

        def finding(met: bool, found: str, line: int = 0) -> Finding:
            where = f"{self.path}:{line}" if line else self.path
            return Finding(met, wanted, found, where, needs, self.because, self.link)

        tree = facts.tree(self.path.split("/")[0])
        source = tree.get(self.path) if tree else None
        if source is None:
            return finding(False, f"{self.path} is not installed")
        for definition in source.defined(self.within):
            for node in ast.walk(definition):
                if isinstance(node, ast.keyword) and node.arg == self.keyword and isinstance(node.value, ast.List):
                    majors = [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
                    return finding(sm.major in majors, f"{self.keyword}={majors}", node.value.lineno)
        return finding(False, f"{self.within} does not list its architectures as expected")


@dataclass(frozen=True)
class Example:
    """A hand-written miniature of an era: files before, and after applying (the same files for a no-op)."""

    version: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    note: str = ""
    direction: Direction = Direction.OPEN


class Gate:
    """One capability of an engine that architecture conditions guard. See ``docs/writing-recipes.md``."""

    id: ClassVar[str]
    engine: ClassVar[str]
    family: ClassVar[str]
    title: ClassVar[str]
    action: ClassVar[Action]
    level: ClassVar[Level]
    targets: ClassVar[frozenset[SM]]
    sites: ClassVar[Sequence[Site]]
    requires: ClassVar[Sequence[Requirement]] = ()
    evidence: ClassVar[Sequence[Evidence]] = ()
    examples: ClassVar[Sequence[Example]] = ()
    opt_in: ClassVar[str] = ""
    """Why the default set leaves the gate out, or an empty string."""
    closes_when_unmet: ClassVar[bool] = False
    """Whether a target that upstream admits is shut out again while a requirement is unmet."""
    needs_release: ClassVar[str | Mapping[SM, str]] = ""
    """The releases that have the code behind the gate (by SM where they differ), where not every one does."""
    needs_because: ClassVar[str] = ""
    """What a release outside ``needs_release`` lacks."""
    upstream_checks: ClassVar[Sequence[Requirement]] = ()
    """What upstream, where it lets a target in, asks of the environment itself, at run time."""
    upstream_since: ClassVar[str | Mapping[SM, str]] = ""
    """The release in which upstream itself did what the recipe does (by SM where they differ)."""
    risk: ClassVar[str] = ""
    """What ``--force`` risks."""
    usage: ClassVar[str] = ""
    """How to use it once it is open (flags)."""
    measure: ClassVar[str] = ""
    """How to measure whether it helps."""
    jit_modules: ClassVar[Sequence[str]] = ()
    """The modules in the engine's JIT cache that were built by the code that the recipe edits."""

    @classmethod
    def since(cls, sm: SM) -> str:
        """The release in which upstream did the same for ``sm``, or an empty string."""
        return cls.upstream_since if isinstance(cls.upstream_since, str) else cls.upstream_since.get(sm, "")

    @classmethod
    def releases(cls, sm: SM) -> str:
        """The releases that have the code behind the gate for ``sm``; an empty string for all of them."""
        return cls.needs_release if isinstance(cls.needs_release, str) else cls.needs_release.get(sm, "")

    @classmethod
    def direction(cls) -> Direction:
        """The direction that the recipe's action asks for."""
        return Direction(cls.action.value)

    @classmethod
    def sites_for(cls, version: str | None) -> tuple[Site, ...]:
        """The sites of the era that ``version`` lies in (all of them when the version is not known)."""
        if version is None:
            return tuple(cls.sites)
        return tuple(s for s in cls.sites if in_range(s.versions, version))


@dataclass(frozen=True)
class Spelling:
    """One way to write "the GPU is one of the targets" in an engine's source.

    ``last``: only where no other can be had, also not by an import.
    """

    text: str
    last: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names that must be bound where it is written."""
        tree = ast.parse(self.text, mode="eval")
        return tuple(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))


@dataclass(frozen=True)
class Engine:
    """An engine's names: its package, the distributions that provide it, and what else decides about it."""

    name: str
    package: str
    distributions: Sequence[str]
    related: Sequence[str]
    verified: str
    """The version range whose every release the recipes were tried on."""
    essential: Sequence[str] = ()
    """Folders below the package without which it is a leftover of a removal."""
    newest: str = ""
    """The newest release that the recipes were tried on: what ``port`` compares an unknown one with."""
    version_files: Sequence[str] = ()
    """Files below the package that hold ``__version__ = "…"``, for trees without metadata."""
    spellings: Mapping[frozenset[SM], Sequence[Spelling]] = field(default_factory=dict)
    title: str = ""
    """What people call it, where that is not its name."""
    jit_cache: str = ""
    """Where a JIT-built module is kept: a pattern with {version}, {module} and {VARIABLE:default}."""
    objects: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Objects made at run time, by dotted name: kind of world (cuda, hip, cpu) → the class they are of there.

    Empty: what the object says is set from outside (environment variables), so the source need not be read for it.
    """

    @property
    def called(self) -> str:
        return self.title or self.name

    def spellings_for(self, targets: Iterable[SM]) -> Sequence[Spelling]:
        """Ways to write exactly these targets, best first."""
        return self.spellings.get(frozenset(targets), ())
