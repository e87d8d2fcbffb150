"""Which era of a gate installed source belongs to, where no verified version says so.

A fork, a nightly, an editable checkout or a local build calls itself what it likes. What its source shows decides:
an era of a gate is the source's when all its sites are found in it. The stated version is a hint: it breaks ties and
stands where nothing is found. Where two eras match at different places, or would edit the same place in different
ways, none is chosen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from patcher.errors import SmPatchError, Unrecognised
from patcher.gate import Gate
from patcher.sites import Place, Site

if TYPE_CHECKING:
    from patcher.plan import SiteReport

Era = tuple[Site, ...]
Spot = tuple[str, int, int]
"""The file, first and last line of a place."""


@dataclass(frozen=True)
class Choice:
    """The sites to look for, and why they cannot be told, where they cannot."""

    sites: Era
    problem: SmPatchError | None = None


class Eras:
    """The eras that one source tree shows. ``find`` looks for a site; ``alike`` says whether two edit a place alike."""

    def __init__(
        self,
        stated: str | None,
        gates: Iterable[type[Gate]],
        find: Callable[[Site], SiteReport],
        alike: Callable[[Site, Site, type[Gate]], bool],
    ) -> None:
        self._stated = _version(stated)
        self._gates = tuple(gates)
        self._find = find
        self._alike = alike
        self._found: dict[int, Place | None] = {}
        self._choices: dict[type[Gate], Choice] = {}

    # -- the release that the source looks like -----------------------------------------------------------------

    @cached_property
    def borders(self) -> list[Version]:
        """The versions at which some gate's sites change, oldest first."""
        return borders(self._gates)

    @cached_property
    def best(self) -> list[Version]:
        """The borders after which most gates are found whole (and fewest are missed). Empty: nothing is found."""
        scores = {}
        for border in self.borders:
            eras = [era for gate in self._gates if (era := gate.sites_for(str(border)))]
            whole = sum(1 for era in eras if self._whole(era))
            scores[border] = 2 * whole - len(eras) if whole else None
        highest = max((score for score in scores.values() if score is not None), default=None)
        return [border for border, score in scores.items() if score is not None and score == highest]

    @cached_property
    def version(self) -> str | None:
        """A version whose eras are those of the source: the stated one where it fits, else the oldest that does."""
        if self._stated is not None and (not self.best or self._border(self._stated) in self.best):
            return self._stated.public
        return str(self.best[0]) if self.best else None

    @property
    def shown(self) -> str:
        """The releases that the source looks like, for people; empty where it looks like none."""
        if not self.best:
            return ""
        after = self.borders.index(self.best[-1]) + 1
        until = f" to before {self.borders[after]}" if after < len(self.borders) else " or newer"
        return f"{self.best[0]}{until}"

    def _border(self, version: Version) -> Version | None:
        """The last border that is not after a version. A pre-release of one lies before it."""
        place = bisect_right(self.borders, version)
        return self.borders[place - 1] if place else None

    def _place(self, site: Site) -> Place | None:
        if id(site) not in self._found:
            self._found[id(site)] = self._find(site).place
        return self._found[id(site)]

    def _whole(self, era: Era) -> bool:
        return all(self._place(site) is not None for site in era)

    # -- one gate -------------------------------------------------------------------------------------------------

    def choose(self, gate: type[Gate]) -> Choice:
        """The gate's sites in this source."""
        if gate not in self._choices:
            self._choices[gate] = self._choose(gate)
        return self._choices[gate]

    def _choose(self, gate: type[Gate]) -> Choice:
        expected = self._expected(gate)
        whole = [era for era in eras(gate) if self._whole(era)]
        # Everything of the gate that is there must belong to the era, and the release that the source looks like may
        # not have more of it: a part of a gate is not a gate.
        there = self._spots(gate.sites)
        whole = [era for era in whole if self._spots(era) == there and len(era) >= len(expected)]
        if not whole:
            sites = expected or self._nearest(gate)
            return Choice(sites, self._more(sites, gate) if self._whole(sites) else None)
        if expected in whole:
            return Choice(expected)
        chosen = whole[0]
        for other in whole[1:]:
            if not self._same_edits(chosen, other, gate):
                spans = f"{_versions(chosen)} and {_versions(other)}"
                what = f"the source fits two shapes of the gate ({spans}), and they are edited differently"
                return Choice(chosen, Unrecognised(what, where=chosen[0].path))
        return Choice(chosen)

    def _more(self, era: Era, gate: type[Gate]) -> SmPatchError | None:
        """Why an era that is found whole is not the gate: something of another one is there as well.

        Where it is clear which release the source looks like, that release's sites are the gate, unless the rest is in
        series with them in another release: then opening them alone would open half of it.
        """
        clear = bool(self.best) and all(gate.sites_for(str(border)) == era for border in self.best)
        series = [site for other in eras(gate) if any(site in era for site in other) for site in other]
        extra = sorted(self._spots(series if clear else gate.sites) - self._spots(era))
        if not extra:
            return None
        path, line, _ = extra[0]
        what = f"besides what {_versions(era)} has of the gate, the source holds something that other releases have"
        return Unrecognised(what, where=f"{path}:{line}", hint="'sm-patch port' shows what it looks like")

    def _expected(self, gate: type[Gate]) -> Era:
        version = self.version
        if version is None:
            return ()
        border = self._border(Version(version))
        return gate.sites_for(str(border)) if border else gate.sites_for(version)

    def _nearest(self, gate: type[Gate]) -> Era:
        """Where the release has no such gate but something of it is there: the era with most of it."""
        found = [(sum(1 for site in era if self._place(site)), era) for era in eras(gate)]
        most, era = max(found, key=lambda pair: pair[0], default=(0, ()))
        return era if most else ()

    def _spots(self, era: Iterable[Site]) -> set[Spot]:
        return {_spot(place) for site in era if (place := self._place(site))}

    def _same_edits(self, left: Era, right: Era, gate: type[Gate]) -> bool:
        def by_spot(era: Era) -> list[Site]:
            return sorted(era, key=lambda site: _spot(place) if (place := self._place(site)) else ("", 0, 0))

        if len(left) != len(right):
            return False
        pairs = zip(by_spot(left), by_spot(right), strict=True)
        return all(a is b or self._alike(a, b, gate) for a, b in pairs)


def borders(gates: Iterable[type[Gate]]) -> list[Version]:
    """The versions at which the sites of some of the gates change, oldest first."""
    ranges = {site.versions for gate in gates for site in gate.sites}
    return sorted({Version(part.version) for text in ranges for part in SpecifierSet(text)})


def eras(gate: type[Gate]) -> list[Era]:
    """A gate's eras, newest first, each once."""
    found = (gate.sites_for(str(border)) for border in reversed(borders([gate])))
    return list({tuple(map(id, era)): era for era in found if era}.values())


def _versions(era: Era) -> str:
    return ", ".join(dict.fromkeys(site.versions for site in era))


def _spot(place: Place) -> Spot:
    return place.path, place.line, place.end_line


def _version(text: str | None) -> Version | None:
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None
