"""How well one trace fits another: the same GPUs get through, and the same names stand in it and around it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache
from pathlib import PurePosixPath

from patcher.condition import Truth
from patcher.haystack import Haystack
from patcher.traces import Trace, words

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
    "said": 1.0,
    "subject": 2.0,
    "between": 1.0,
    "order": 0.5,
    "shape": 0.5,
}


class Likeness:
    """How well other traces fit one.

    ``subject``: the words that the recipe calls its gate by. Which of them tell is known when candidates are
    (``compare``): a word that all of them have tells nothing.
    """

    def __init__(self, wanted: Trace, hay: Haystack, subject: Iterable[str] = ()) -> None:
        self.wanted = wanted
        self.hay = hay
        self.subject = dict.fromkeys(subject, 1.0)
        self._contexts: dict[frozenset[str], float] = {}

    def compare(self, candidates: Iterable[Trace]) -> None:
        """Weigh the words of the subject by how few of the candidates have them."""
        seen = [words_of(candidate) for candidate in candidates]
        counts = Counter(word for words in seen for word in words & self.subject.keys())
        self.subject = {word: math.log((len(seen) + 1) / (count + 1)) for word, count in counts.items()}

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
        if wanted.said and known.said:
            parts["said"] = len(wanted.said & known.said) / len(wanted.said | known.said)
        if wanted.declared:
            everything = known.names | known.effects | known.around
            parts["declared"] = len(wanted.declared & everything) / len(wanted.declared)
        if total := sum(self.subject.values()):
            here = words_of(known)
            parts["subject"] = sum(weight for word, weight in self.subject.items() if word in here) / total
        between = _between(wanted, known)
        if between is not None:
            parts["between"] = between
        return parts


def _agreement(wanted: Trace, known: Trace) -> float:
    """How alike two conditions part the GPUs in those that they never hold for and the rest.

    A condition that tells no GPUs apart is not like one that does. One that holds where the other does not (``if not
    P: raise`` for ``return P``) parts them all the same, but is a little less alike.
    """
    if wanted.decides and not known.decides:
        return 0.0
    mine, theirs = (
        [{n for n, outcome in enumerate(t.truths) if (outcome is Truth.NEVER) is never} for never in (True, False)]
        for t in (wanted, known)
    )
    alike, turned = (
        min(_overlap(left, right) for left, right in zip(mine, sides, strict=True)) for sides in (theirs, theirs[::-1])
    )
    return max(alike, _TURNED * turned)


_TURNED = 0.8


def _overlap(left: set[int], right: set[int]) -> float:
    return len(left & right) / len(left | right) if left | right else 1.0


def _likeness(mine: frozenset[str], theirs: frozenset[str], hay: Haystack) -> float:
    """What two sets of names share, rare names counting more."""
    both = sum(hay.weight(name) for name in mine & theirs)
    missing = sum(hay.weight(name) for name in mine - theirs)
    more = _EXTRA * len(theirs - mine)
    return both / (both + missing + more) if both else 0.0


_EXTRA = 0.8
"""What a name more costs: less than one that is missing."""


def _between(wanted: Trace, known: Trace) -> float | None:
    """Whether a spot stands behind the nearest one that was before the other, and before the nearest behind it."""
    sides = []
    before = next((near for near in reversed(wanted.before) if near in known.before or near in known.behind), None)
    if before is not None:
        sides.append(before in known.before)
    behind = next((near for near in wanted.behind if near in known.before or near in known.behind), None)
    if behind is not None:
        sides.append(behind in known.behind)
    return sum(sides) / len(sides) if sides else None


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


def words_of(known: Trace) -> frozenset[str]:
    """The words in what a trace names, in its definition's and its file's own name, and in what it says."""
    names = known.names | known.effects | {known.within, PurePosixPath(known.path).stem}
    return known.said.union(*(words(name) for name in names))
