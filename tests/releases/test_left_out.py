"""Whatever keeps SM120 out in five releases is covered by a recipe, or named with the reason why it is not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.catalogue import engine_named, gates
from patcher.condition import Truth
from patcher.scan import Scanner, Sighting
from patches.sglang._left_out import ADMITTED, LEFT_OUT, RELEASES, Admitted, LeftOut
from scripts import releases

pytestmark = pytest.mark.releases


@cache
def scanned(release: str) -> list[Sighting]:
    root = releases.unpacked("sglang", release)
    result = Scanner(engine_named("sglang"), root, release, gates("sglang").values()).scan()
    assert result.unread == []
    return result.sightings


def keeps_out(sighting: Sighting) -> bool:
    return sighting.truth(SM120) is Truth.NEVER and sighting.admits(SM(10, 0))


def names(entry: LeftOut, sighting: Sighting, within: str | None = None) -> bool:
    path = sighting.path.removeprefix("sglang/")
    patterns = entry.within if within is None else (within,)
    return fnmatchcase(path, entry.path) and any(fnmatchcase(sighting.within, pattern) for pattern in patterns)


@pytest.mark.parametrize("release", RELEASES)
def test_what_keeps_sm120_out_is_a_gate_or_named_once(release: str) -> None:
    seen = [sighting for sighting in scanned(release) if keeps_out(sighting)]
    assert seen
    for sighting in seen:
        entries = [entry for entry in LEFT_OUT if names(entry, sighting)]
        where = f"{sighting.path}:{sighting.line} {sighting.within}: {sighting.condition}"
        assert sighting.recipe or entries, f"neither covered nor left out: {where}"
        assert sighting.recipe or len(entries) == 1, f"named more than once: {where}"


def test_nothing_is_named_that_is_not_there() -> None:
    left = {s for release in RELEASES for s in scanned(release) if keeps_out(s) and not s.recipe}
    for entry in LEFT_OUT:
        for within in entry.within:
            assert any(names(entry, sighting, within) for sighting in left), f"{entry.path} {within} is nowhere"


@pytest.mark.parametrize("place", ADMITTED, ids=lambda place: place.within)
def test_what_is_said_to_let_sm12x_through_does(place: Admitted) -> None:
    path = f"sglang/{place.path}"
    found = [s for s in scanned(place.release) if (s.path, s.within) == (path, place.within) and not s.recipe]
    assert found
    for sighting in found:
        assert sighting.decides
        assert sighting.truth(SM120) is sighting.truth(SM121) is sighting.truth(SM(9, 0))
