"""Where the sites of a gate went: for a release that is shaped differently from those the recipes know.

Places are ranked by what they mean: the same GPUs get through, the same names stand in the condition, in what it
guards and around it. Nothing is patched: what comes out is a list to look at, and the recipe line to try.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path, PurePosixPath

from patcher.condition import Truth
from patcher.errors import SmPatchError
from patcher.gate import Gate
from patcher.plan import Inspector
from patcher.predicate import ALL_WORLDS
from patcher.sites import ConditionSite, Place, Site, View, mentioned, view_of
from patcher.traces import Kind, Spot, Trace, judged, telling, trace_at, traces

_FILES = 24
"""How many files are read closely, and how many of their spots are judged by what they mean."""
_SPOTS = 48
_SHOWN = 5
_LIKELY, _MARGIN, _POSSIBLE = 0.6, 0.08, 0.4

_SETTLED = 0.5
"""What is left of the score of a spot that stood beside the one looked for."""

_WEIGHTS = {
    "truths": 5.0,
    "names": 3.0,
    "effects": 2.5,
    "leaf": 1.5,
    "context": 1.5,
    "path": 1.0,
    "around": 1.0,
    "outer": 0.5,
    "declared": 2.5,
    "text": 2.0,
    "order": 0.5,
    "shape": 0.5,
}


@dataclass(frozen=True)
class Candidate:
    """A place where a site may have gone. ``score`` is from 0 to 1."""

    path: str
    line: int
    end_line: int
    within: str
    text: str
    score: float
    site: Site | None
    """The site that finds exactly this place, where one could be made of the old one."""
    closed_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lost:
    """A site that is not found any more, and where it may have gone, best first."""

    gate: type[Gate]
    site: Site
    old: Place | None
    why: str
    candidates: Sequence[Candidate]

    @property
    def confidence(self) -> str:
        """likely, possible or weak: how well the first candidate fits, and how far the second is behind."""
        if not self.candidates:
            return "none"
        first = self.candidates[0].score
        second = self.candidates[1].score if len(self.candidates) > 1 else 0.0
        if first >= _LIKELY and first - second >= _MARGIN:
            return "likely"
        return "possible" if first >= _POSSIBLE else "weak"


class Haystack:
    """All the Python files of a package, as bytes, and how common a name is in them."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        tree = inspector.predicates.tree
        self.files = dict(_files(str(tree.root), inspector.engine.package))
        self._read: dict[tuple[str, Kind], tuple[View, list[tuple[Spot, Trace]]] | None] = {}
        self._counts: dict[str, int] = {}

    def weight(self, name: str) -> float:
        """How much a name tells: much when few files hold it."""
        if name not in self._counts:
            needle = name.encode()
            self._counts[name] = sum(1 for data in self.files.values() if needle in data)
        count = self._counts[name]
        return math.log((len(self.files) + 1) / (count + 1)) + 0.1

    def spots(self, path: str, kind: Kind) -> tuple[View, list[tuple[Spot, Trace]]] | None:
        """The file's spots of one kind with their traces; None where it does not parse."""
        if (path, kind) not in self._read:
            view = _view(self.inspector, path)
            self._read[path, kind] = (view, traces(path, view.source, kind)) if view else None
        return self._read[path, kind]

    def likely_files(self, wanted: Trace) -> list[str]:
        """The files that hold most of what a trace names, rare names first."""
        context = sorted(wanted.context, key=self.weight, reverse=True)[:30]
        names = {*wanted.names, *wanted.effects, wanted.within.rpartition(".")[2], *context} - {""}
        weights = {name.encode(): self.weight(name) for name in names}
        scores = {path: sum(w for name, w in weights.items() if name in data) for path, data in self.files.items()}
        ranked = sorted((path for path, score in scores.items() if score), key=lambda p: -scores[p])
        same = [wanted.path] if wanted.path in self.files else []
        return list(dict.fromkeys((*same, *ranked[:_FILES])))


def _files(root: str, package: str) -> Iterator[tuple[str, bytes]]:
    for folder, names, files in os.walk(os.path.join(root, package)):  # noqa: PTH118 - thousands of files
        names[:] = sorted(name for name in names if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(folder, name)  # noqa: PTH118
                try:
                    with Path(path).open("rb") as file:
                        yield os.path.relpath(path, root).replace(os.sep, "/"), file.read()
                except OSError:
                    continue  # what cannot be read cannot be patched either


# -- ranking -----------------------------------------------------------------------------------------------------


def trace_of(site: Site, inspector: Inspector) -> Trace | None:
    """What is known of a site's place in a release that has it, or None."""
    place = inspector.find(site).place
    view = view_of(inspector.engine, site.path, inspector.predicates)
    if place is None or view is None:
        return None
    found = trace_at(place, view)
    return replace(found, declared=_declared(site)) if found else None


def neighbours(wanted: Trace, inspector: Inspector) -> set[str]:
    """The code of the other spots of that kind in the file that a trace was made of."""
    view = _view(inspector, wanted.path)
    known = traces(wanted.path, view.source, wanted.kind) if view else []
    return {ast.unparse(spot.node) for spot, _ in known} - {wanted.text}


def _declared(site: Site) -> frozenset[str]:
    """The names that the recipe itself says a site is about."""
    values = [getattr(site, part.name) for part in fields(site)]  # type: ignore[arg-type]
    words = [word for value in values if isinstance(value, tuple) for word in value if isinstance(word, str)]
    return telling(set(words))


def rank(
    wanted: Trace, hay: Haystack, taken: Iterable[tuple[str, int]] = (), settled: Collection[str] = ()
) -> list[tuple[float, Spot, Trace, View]]:
    """The spots of a tree that fit a trace, best first.

    ``taken``: path and line of places that are other sites'. ``settled``: the code of spots that stood beside it
    before; what still has that code is most likely still that, and not what is looked for.
    """
    left_out = set(taken)
    look = _Likeness(wanted, hay)
    found: list[tuple[float, Spot, Trace, View]] = []
    for path in hay.likely_files(wanted):
        view, known = hay.spots(path, wanted.kind) or (None, [])
        if view is None:
            continue
        for spot, seen in known:
            if (path, spot.node.lineno) in left_out:
                continue
            if wanted.kind == "statement" and seen.shape != wanted.shape:
                continue
            found.append((look.score(seen), spot, seen, view))
    found.sort(key=lambda item: -item[0])
    best = []
    for _, spot, seen, view in found[:_SPOTS]:
        meant = judged(spot, seen, view)
        doubt = _SETTLED if meant.text in settled else 1.0
        best.append((doubt * look.score(meant), spot, meant, view))
    best.sort(key=lambda item: -item[0])
    return best


def _view(inspector: Inspector, path: str) -> View | None:
    try:
        return view_of(inspector.engine, path.removeprefix(f"{inspector.engine.package}/"), inspector.predicates)
    except SmPatchError:
        return None


class _Likeness:
    """How well other traces fit one."""

    def __init__(self, wanted: Trace, hay: Haystack) -> None:
        self.wanted = wanted
        self.hay = hay
        self._contexts: dict[frozenset[str], float] = {}

    def score(self, known: Trace) -> float:
        """From 0 to 1."""
        parts = self.parts(known)
        return sum(_WEIGHTS[name] * value for name, value in parts.items()) / sum(_WEIGHTS[name] for name in parts)

    def parts(self, known: Trace) -> dict[str, float]:
        """What the score is made of, each from 0 to 1."""
        wanted = self.wanted
        parts = {
            "path": _path_likeness(wanted.path, known.path),
            "leaf": _name_likeness(wanted.within.rpartition(".")[2], known.within.rpartition(".")[2]),
            "outer": _name_likeness(wanted.within.rpartition(".")[0], known.within.rpartition(".")[0]),
            "shape": float(wanted.shape == known.shape),
            "order": 1 - abs(wanted.order - known.order),
        }
        for name in ("names", "effects", "around"):
            mine, theirs = getattr(wanted, name), getattr(known, name)
            if mine or theirs:
                parts[name] = _likeness(mine, theirs, self.hay)
        if known.context not in self._contexts:
            self._contexts[known.context] = _likeness(wanted.context, known.context, self.hay)
        parts["context"] = self._contexts[known.context]
        if wanted.truths and known.truths:
            parts["truths"] = _agreement(wanted, known)
        if wanted.text and known.text:
            parts["text"] = SequenceMatcher(None, wanted.text, known.text).ratio()
        if wanted.declared:
            everything = known.names | known.effects | known.around
            parts["declared"] = len(wanted.declared & everything) / len(wanted.declared)
        return parts


def _agreement(wanted: Trace, known: Trace) -> float:
    """How alike the sets of GPUs are that two conditions hold for and do not, the less alike of both.

    A condition that tells no GPUs apart is not like one that does.
    """
    if wanted.decides and not known.decides:
        return 0.0
    alike = 1.0
    for never in (True, False):
        mine, theirs = (
            {n for n, outcome in enumerate(t.truths) if (outcome is Truth.NEVER) is never} for t in (wanted, known)
        )
        if mine | theirs:
            alike = min(alike, len(mine & theirs) / len(mine | theirs))
    return alike


def _likeness(mine: frozenset[str], theirs: frozenset[str], hay: Haystack) -> float:
    """What two sets of names share, rare names counting more."""
    both = sum(hay.weight(name) for name in mine & theirs)
    missing = sum(hay.weight(name) for name in mine - theirs)
    more = _EXTRA * len(theirs - mine)
    return both / (both + missing + more) if both else 0.0


_EXTRA = 0.8
"""What a name more costs: less than one that is missing."""


@cache
def _name_likeness(left: str, right: str) -> float:
    if left == right:
        return 1.0
    likeness = SequenceMatcher(None, left, right).ratio()
    return likeness if likeness >= 0.6 else 0.0


@cache
def _path_likeness(left: str, right: str) -> float:
    if left == right:
        return 1.0
    a, b = PurePosixPath(left), PurePosixPath(right)
    shared = len({*a.parts[:-1]} & {*b.parts[:-1]}) / max(len(a.parts), len(b.parts))
    return 0.5 * shared + (0.4 if a.name == b.name else 0.3 if a.stem in b.parts or b.stem in a.parts else 0.0)


# -- a gate that is not recognised ---------------------------------------------------------------------------------


def port(gate: type[Gate], hay: Haystack, old: Inspector, since: str) -> list[Lost]:
    """The gate's sites that are not found, each with where it may have gone.

    ``old``: a release that the recipe knows. ``since``: the version that a new recipe line begins with.
    """
    new = hay.inspector
    sites = old.sites(gate)
    reports = [new.find(site) for site in sites]
    taken = [(r.place.path, r.place.line) for r in reports if r.place is not None]
    lost = []
    for report in reports:
        if report.place is not None:
            continue
        why = report.error.what if report.error else "it is not found"
        place = old.find(report.site).place
        wanted = trace_of(report.site, old)
        ranked = rank(wanted, hay, taken, neighbours(wanted, old)) if wanted else []
        found = [_candidate(report.site, item, hay, since) for item in ranked[:_SHOWN]]
        lost.append(Lost(gate, report.site, place, why, found))
    return lost


def _candidate(site: Site, ranked: tuple[float, Spot, Trace, View], hay: Haystack, since: str) -> Candidate:
    score, spot, known, view = ranked
    shut = [str(w) for w, t in zip(ALL_WORLDS, known.truths, strict=False) if t is Truth.NEVER and w.kind == "cuda"]
    proposed = _proposal(site, spot, known, view, hay.inspector, since)
    text = ast.unparse(spot.node).split("\n")[0]
    end = spot.node.end_lineno or spot.node.lineno
    return Candidate(known.path, spot.node.lineno, end, spot.within, text, score, proposed, tuple(shut))


def _proposal(site: Site, spot: Spot, known: Trace, view: View, inspector: Inspector, since: str) -> Site | None:
    """The old site moved to the spot, if it finds exactly that."""
    where = {"versions": f">={since}", "path": view.path.split("/", 1)[1], "within": spot.within}
    tries: list[dict[str, object]] = [{}]
    if isinstance(site, ConditionSite):
        kept = tuple(name for name in site.mentions if name in mentioned(spot.node))
        tries.append({"mentions": kept})
        tries += [{"mentions": (name,)} for name in sorted(known.names)]
        tries.append({"mentions": ()})
        tries += [{**attempt, "decides": ()} for attempt in list(tries)]
    for attempt in tries:
        moved: Site = replace(site, **where, **attempt)  # type: ignore[type-var]
        place = inspector.find(moved).place
        node = spot.node
        if place is not None and (place.line == node.lineno or place.node is node) and place.path == view.path:
            return moved
    return None
