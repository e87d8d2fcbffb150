"""Port on real borders: the committed evaluation is what the script computes, and proposals can be planned."""

from __future__ import annotations

from functools import cache

import pytest

from patcher import catalogue
from patcher.haystack import Haystack
from patcher.port import Lost, port
from scripts import matrix, port_eval

pytestmark = pytest.mark.releases

BORDERS = (("0.5.20", "0.5.21"), ("0.5.21", "0.5.22"))
GATE = "allreduce-fusion"


@cache
def lost(before: str, after: str) -> list[Lost]:
    gate = catalogue.gates("sglang")[GATE]
    return port(gate, Haystack(matrix.inspector_of(after)), Haystack(matrix.inspector_of(before)), after)


@pytest.mark.parametrize(("before", "after"), BORDERS)
def test_the_site_that_moved_is_first_and_its_line_can_be_planned(before: str, after: str) -> None:
    gate = catalogue.gates("sglang")[GATE]
    (item,) = lost(before, after)
    first = item.candidates[0]
    assert item.confidence == "likely"
    new = matrix.inspector_of(after)
    truth = new.find(gate.sites_for(after)[0]).place
    assert truth is not None
    assert (first.path, first.line) == (truth.path, truth.line)
    assert first.site is not None
    ported = type("Ported", (gate,), {"sites": (first.site,)})
    plan = new.plan({ported: gate.direction()})
    assert first.path in plan.changes
    assert plan.steps[0].checks


def test_the_committed_table_reaches_what_it_claims() -> None:
    text = port_eval.OUTPUT.read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| 0.")]
    moved, first = (sum(int(row[n]) for row in rows) for n in (1, 2))
    assert f"{moved} sites moved; ranked first: {first} ({100 * first / moved:.0f} %)" in text
    misses = text.split("## Not ranked first")[1].split("##")[0]
    assert misses.count("\n- ") == moved - first


@pytest.mark.parametrize(("before", "after"), BORDERS)
def test_a_row_computed_again_is_the_committed_one(before: str, after: str) -> None:
    page = port_eval.page(list(port_eval.evaluate([before, after])), [before, after])
    (row,) = [line for line in page.splitlines() if line.startswith("| 0.")]
    assert row in port_eval.OUTPUT.read_text()
