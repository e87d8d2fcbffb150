"""The pages of docs/gates/ are what the recipes say."""

from __future__ import annotations

import pytest

from patcher import catalogue
from patcher.gate import Gate
from patches.sglang._left_out import LEFT_OUT, Why
from scripts import gate_docs

GATES = [gate for engine in catalogue.engines() for gate in catalogue.gates(engine).values()]


def test_the_committed_pages_are_current() -> None:
    assert gate_docs.stale() == [], "run: python -m scripts.gate_docs"


def test_what_is_no_gate_names_gates_that_are() -> None:
    known = {gate.id for gate in GATES}
    for entry in LEFT_OUT:
        assert set(entry.gates) <= known
        assert entry.gates or entry.why is not Why.FOLLOWS


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.id)
def test_a_page_says_what_the_recipe_says(gate: type[Gate]) -> None:
    text = gate_docs.page(gate)
    for item in gate.evidence:
        assert item.link in text
    for site in gate.sites:
        assert f"`{site.path}`" in text
    for part in (gate.usage, gate.measure, gate.risk, gate.opt_in):
        assert part in text
    assert text.count("```diff") == sum(1 for example in gate.examples if example.after)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.id)
def test_a_recipe_is_complete(gate: type[Gate]) -> None:
    assert gate.__doc__ and gate.title and gate.family and gate.evidence and gate.sites
    assert gate.targets
    assert all(e.link.startswith("https://") for e in gate.evidence)
    if gate.level.value == "refused":
        assert gate.risk, "what happens to those who force it"
    else:
        assert gate.usage, "how to use it once it is applied"
