"""Refused gates on real releases: ``--force`` opens them, or says that there is nothing to force."""

from __future__ import annotations

import pytest

from patcher.arch import SM120, SM121
from patcher.catalogue import gates
from patcher.errors import NothingToForce
from patcher.gate import Action, Level, State
from scripts.matrix import inspector_of

pytestmark = pytest.mark.releases

REFUSED = [gate for gate in gates("sglang").values() if gate.level is Level.REFUSED]
RELEASES = ("0.4.7", "0.4.9", "0.5.3", "0.5.4.post2", "0.5.8.post1", "0.5.12", "0.5.14", "0.5.18", "0.5.20", "0.5.23")
# Shown, never edited: a check of what SM12x's own kernel cannot do, and one on what is set while it runs.
NOTHING = {
    ("0.5.20", "attention-trtllm-mha-fp8-prefill"),
    ("0.5.23", "attention-trtllm-mha-fp8-prefill"),
    ("0.5.20", "dsa-mha-one-shot"),
    ("0.5.23", "dsa-mha-one-shot"),
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_refused_gate_is_opened_by_force_or_says_why_not(release: str) -> None:
    inspector = inspector_of(release)
    nothing, opened = set(), 0
    for gate in REFUSED:
        report = inspector.report(gate, SM120)
        assert report.state is not State.UNRECOGNISED, (gate.id, report.reason)
        if report.state in (State.ABSENT, State.OPEN):
            continue
        try:
            plan = inspector.plan({gate: gate.direction()})
        except NothingToForce as error:
            assert error.exit_code == 3 and gate.id in error.what and error.where
            nothing.add((release, gate.id))
            continue
        assert plan.changes
        after = inspector.replaced({path: change.after for path, change in plan.changes.items()})
        for sm in sorted(gate.targets & {SM120, SM121}):
            state = after.report(gate, sm, gate.direction()).state
            assert state is State.PATCHED or inspector.report(gate, sm).state is State.OPEN
        opened += 1
    assert nothing == {pair for pair in NOTHING if pair[0] == release}
    assert opened >= 2


def test_refused_gates_are_to_be_opened() -> None:
    assert {gate.action for gate in REFUSED} == {Action.OPEN}
    assert len(REFUSED) >= 15
