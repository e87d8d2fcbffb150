"""Where the sites of a gate went: for a release that is shaped differently from those the recipes know.

Places are ranked by what they mean: the same GPUs get through, the same names stand in the condition, in what it
guards and around it, and the old place still leads there. Nothing is patched: what comes out is a list to look at,
and the recipe line to try.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

from patcher import catalogue
from patcher.condition import Truth
from patcher.gate import Gate
from patcher.haystack import Haystack
from patcher.keyed import KeyedSite
from patcher.likeness import Likeness, words_of
from patcher.located import LocatedSite
from patcher.plan import Inspector
from patcher.predicate import ALL_WORLDS
from patcher.sites import ConditionSite, Place, Site, View, mentioned
from patcher.traces import (
    Fill,
    Spot,
    Trace,
    bound,
    called,
    decides_without,
    judged,
    kind_at,
    merged,
    names_in,
    node_at,
    read_at,
    telling,
    truths,
    words,
)

_SPOTS = 48
"""How many spots are judged by what they mean."""
_SHOWN = 5
_LIKELY, _MARGIN, _POSSIBLE = 0.65, 0.08, 0.4

_DOUBT = 0.5
"""What is left of the score of a spot that is known to be something else."""


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


# -- ranking -----------------------------------------------------------------------------------------------------


Spots = set[tuple[str, int]]
"""Places by path and line."""


@dataclass(frozen=True)
class _Wanted:
    """What is looked for: a trace in the old release.

    ``fill``: what the recipe says of values that only run time knows. ``read``: the same trace with the conditions that
    read its value. ``asks``: whether it asks for the GPU itself, and not for the value of another spot. ``settled``:
    the code of the spots beside it; what still has that code is most likely still that. ``subject``: the words that the
    recipe calls its gate by. ``own`` and ``foreign``: by which words the gate is told from others that stood at the
    same place, and they from it.
    """

    trace: Trace
    fill: Fill | None
    read: Trace
    asks: bool
    settled: frozenset[str]
    subject: frozenset[str]
    own: frozenset[str]
    foreign: frozenset[str]


def _wanted(
    gate: type[Gate], site: Site, place: Place, before: Haystack, rivals: Sequence[type[Gate]]
) -> _Wanted | None:
    view, known = before.spots(place.path, kind_at(place)) or (None, [])
    spot, seen = next((pair for pair in known if pair[0].node is node_at(place)), (None, None))
    if view is None or spot is None or seen is None:
        return None
    fill = site.filled if isinstance(site, LocatedSite) and site.given else None
    trace = replace(judged(spot, seen, view, known, fill), declared=_declared(site))
    links = [link for name in bound(spot) if (link := read_at(name, before.readers(trace.path), trace.within))]
    asks = all(decides_without(spot, name, view) for name in mentioned(spot.node) if telling({name}))
    settled = frozenset(ast.unparse(other.node) for other, _ in known) - {trace.text}
    mine, theirs = words(gate.id), frozenset().union(*(words(rival.id) for rival in rivals))
    subject, spoken = mine | words(gate.title), words_of(trace)
    read = reduce(merged, links, trace)
    return _Wanted(trace, fill, read, asks, settled, subject, mine - theirs, theirs - mine - spoken)


def _declared(site: Site) -> frozenset[str]:
    """The names that the recipe itself says a site is about."""
    values = [getattr(site, part.name) for part in fields(site)]  # type: ignore[arg-type]
    names = [word for value in values if isinstance(value, tuple) for word in value if isinstance(word, str)]
    if isinstance(site, KeyedSite):
        names += [site.name, site.keyword, site.decorator]
    return telling(set(names))


Found = tuple[Spot, Trace, View]


@dataclass
class _Way:
    """A spot that may be what is looked for, and what is known of it in each way to look at it."""

    spot: Spot
    view: View
    traces: list[Trace]
    score: float = 0.0
    doubtful: bool = False

    @property
    def known(self) -> Trace:
        return self.traces[0]


def _rank(wanted: _Wanted, hay: Haystack, before: Haystack, taken: Spots, claimed: Spots) -> list[_Way]:
    """The spots of a tree that fit, best first. ``taken``: left out. ``claimed``: known to be something else."""
    trace = wanted.trace
    look = Likeness(trace, hay, wanted.subject)
    paths = hay.likely_files(trace, wanted.subject)
    near = [(spot, seen, view) for path in paths for spot, seen, view in _alike(trace, hay, path)]
    near.sort(key=lambda found: -look.score(found[1]))
    heirs = {found[0]: (found, name, link) for found, name, link in _heirs(trace, hay, before)}
    ways = []
    for spot, seen, view in {f[0]: f for f in (*near[:_SPOTS], *(f for f, _, _ in heirs.values()))}.values():
        if (view.path, spot.node.lineno) not in taken:
            _, known = hay.spots(view.path, trace.kind) or (view, [])
            meant = judged(spot, seen, view, known, wanted.fill)
            ways.append(_Way(spot, view, [meant, *([merged(meant, heirs[spot][2])] if spot in heirs else [])]))
    looks = [Likeness(t, hay, wanted.subject) for t in dict.fromkeys((trace, wanted.read))]
    for look in looks:
        look.compare(seen for way in ways for seen in way.traces)
    for way in ways:
        way.score = max(look.score(seen) for look in looks for seen in way.traces)
        spoken = words_of(way.known)
        foreign = bool(wanted.foreign & spoken) and not wanted.own & spoken
        claims = way.known.text in wanted.settled or (way.view.path, way.spot.node.lineno) in claimed
        way.doubtful = foreign or claims or _stood_there(way, trace, before)
    if wanted.asks:
        _defer(ways, trace, {spot: name for spot, (_, name, _) in heirs.items()})
    for way in ways:
        way.score *= _DOUBT if way.doubtful else 1.0
    return sorted(ways, key=lambda way: -way.score)


def _stood_there(way: _Way, trace: Trace, before: Haystack) -> bool:
    """Whether the same code was in the same definition before, beside what is looked for."""
    known = way.known
    if (known.path, known.within, known.text) == (trace.path, trace.within, trace.text):
        return False
    _, old = before.spots(known.path, known.kind) or (None, [])
    return any(seen.within == known.within and ast.unparse(spot.node) == known.text for spot, seen in old)


def _defer(ways: Sequence[_Way], trace: Trace, heirs: Mapping[Spot, str]) -> None:
    """Where a condition tells GPUs apart only by the value of another spot, that one is where the GPU is asked for."""
    for asked in ways:
        if asked.doubtful or not asked.known.decides:
            continue
        places = {name: (asked.known.path, asked.known.within) for name in bound(asked.spot) if telling({name})}
        if asked.spot in heirs:
            places[heirs[asked.spot]] = (trace.path, trace.within)
        for reader in ways:
            here = (reader.known.path, reader.known.within)
            names = [name for name, place in places.items() if place == here and name in mentioned(reader.spot.node)]
            if reader is asked or not reader.known.decides:
                continue
            if any(not decides_without(reader.spot, name, reader.view) for name in names):
                asked.score = max(asked.score, reader.score)
                reader.doubtful = True


def _alike(trace: Trace, hay: Haystack, path: str) -> Iterator[Found]:
    """The spots of a file that can be what a trace is of."""
    view, known = hay.spots(path, trace.kind) or (None, [])
    for spot, seen in known:
        if view is not None and not (trace.kind == "statement" and seen.shape != trace.shape):
            yield spot, seen, view


def _heirs(trace: Trace, hay: Haystack, before: Haystack) -> Iterator[tuple[Found, str, Trace]]:
    """The spots that the old place now leads to, the name that it reads, and what is known of where it does.

    Such a spot is part of a function, or bound to a name, that no file had before and the old place now reads. Either
    it holds something that stood in the old place and does not any more, or the old place asks for the GPU through it.
    """
    old, new = before.view(trace.path), hay.view(trace.path)
    was, now = (_names_within(view, trace.within) if view else set() for view in (old, new))
    gone = telling(was) - telling(now)
    for name in sorted(now - was):
        if not was or not name.isidentifier() or before.has(name):
            continue
        link = read_at(name, hay.readers(trace.path), trace.within)
        asked = link is not None and telling({name}) and _asked_through(name, trace, hay)
        for path in hay.holding(name) if link is not None else ():
            for spot, seen, view in _alike(trace, hay, path):
                leaf = spot.within.rpartition(".")[2]
                took = gone & (seen.context if leaf == name else seen.names | seen.around)
                if link is not None and name in called(spot) and spot.within != trace.within and (took or asked):
                    yield (spot, seen, view), name, link


def _asked_through(name: str, trace: Trace, hay: Haystack) -> bool:
    """Whether a condition in the old place tells GPUs apart by what it reads under a name, and only by that."""
    view, known = hay.spots(trace.path, "condition") or (None, [])
    return view is not None and any(
        name in mentioned(spot.node) and len(set(truths(spot, view))) > 1 and not decides_without(spot, name, view)
        for spot, seen in known
        if seen.within == trace.within
    )


def _names_within(view: View, within: str) -> set[str]:
    if not within:
        return names_in(None, view.source)
    return set().union(*(names_in(definition, view.source) for definition in view.source.defined(within)))


# -- a gate that is not recognised ---------------------------------------------------------------------------------


def port(gate: type[Gate], hay: Haystack, before: Haystack, since: str) -> list[Lost]:
    """The gate's sites that are not found, each with where it may have gone.

    ``before``: a release that the recipe knows. ``since``: the version that a new recipe line begins with.
    """
    old, new = before.inspector, hay.inspector
    reports = [new.find(site) for site in old.sites(gate)]
    taken = {_spot(r.place) for r in reports if r.place is not None}
    lost = []
    for report in reports:
        if report.place is not None:
            continue
        why = report.error.what if report.error else "it is not found"
        place = old.find(report.site).place
        ranked: list[_Way] = []
        if place is not None:
            claimed, rivals = _others(gate, place, hay, before)
            wanted = _wanted(gate, report.site, place, before, rivals)
            ranked = _rank(wanted, hay, before, taken, claimed) if wanted else []
        found = [_candidate(report.site, way, hay, since) for way in ranked[:_SHOWN]]
        lost.append(Lost(gate, report.site, place, why, found))
    return _apart(lost)


def _spot(place: Place) -> tuple[str, int]:
    return place.path, place.line


def _others(gate: type[Gate], place: Place, hay: Haystack, before: Haystack) -> tuple[Spots, list[type[Gate]]]:
    """Where sites of other gates are found that stood elsewhere, and the gates that had one at the same place."""
    claimed: Spots = set()
    rivals = []
    for other in catalogue.gates(hay.inspector.engine.name).values():
        for site in before.inspector.sites(other) if other is not gate else ():
            was, now = before.inspector.find(site).place, hay.inspector.find(site).place
            if was is not None and _spot(was) == _spot(place):
                rivals.append(other)
            elif was is not None and now is not None:
                claimed.add(_spot(now))
    return claimed, rivals


def _apart(lost: Sequence[Lost]) -> list[Lost]:
    """The same with sites that stood apart kept apart: what fits one of them best is in doubt for the others."""
    used: dict[tuple[str, int], Place | None] = {}
    done: dict[int, Lost] = {}
    for item in sorted(lost, key=lambda item: -item.candidates[0].score if item.candidates else 0.0):
        candidates = []
        for candidate in item.candidates:
            at = (candidate.path, candidate.line)
            other = used.get(at)
            doubt = other is not None and item.old is not None and _spot(other) != _spot(item.old)
            candidates.append(replace(candidate, score=candidate.score * _DOUBT) if doubt else candidate)
        candidates.sort(key=lambda candidate: -candidate.score)
        if candidates:
            used.setdefault((candidates[0].path, candidates[0].line), item.old)
        done[id(item)] = replace(item, candidates=candidates)
    return [done[id(item)] for item in lost]


def _candidate(site: Site, way: _Way, hay: Haystack, since: str) -> Candidate:
    known, node = way.known, way.spot.node
    shut = [str(w) for w, t in zip(ALL_WORLDS, known.truths, strict=False) if t is Truth.NEVER and w.kind == "cuda"]
    proposed = _proposal(site, way.spot, known, way.view, hay.inspector, since)
    text = ast.unparse(node).split("\n")[0]
    end = node.end_lineno or node.lineno
    return Candidate(known.path, node.lineno, end, way.spot.within, text, way.score, proposed, tuple(shut))


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
