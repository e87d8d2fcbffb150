"""States on both sides of the releases in which upstream changed a gate, on real releases."""

from __future__ import annotations

from functools import cache

import pytest

from patcher.arch import SM120, SM121
from patcher.catalogue import gates
from patcher.plan import Inspector
from scripts.matrix import inspector_of

pytestmark = pytest.mark.releases

BORDERS = {
    "attention-cutlass-mla": {"0.4.6": "absent", "0.4.6.post1": "too-open", "0.5.19": "too-open", "0.5.20": "absent"},
    "attention-fa3": {"0.4.6.post1": "absent", "0.4.6.post2": "refused", "0.5.23": "refused"},
    "attention-gpt-oss-default": {"0.5.18": "refused", "0.5.19": "closed"},
    "attention-hicache-decode": {
        "0.5.4": "absent",
        "0.5.4.post1": "closed",
        "0.5.13.post1": "closed",
        "0.5.14": "absent",
    },
    "attention-trtllm-mha-decode": {"0.5.1": "refused", "0.5.9": "refused", "0.5.10": "open", "0.5.23": "open"},
    "attention-trtllm-mha-default": {
        "0.5.6": "absent",
        "0.5.6.post1": "too-open",
        "0.5.6.post2": "too-open",
        "0.5.7": "closed",
    },
    "attention-trtllm-mha-prefill": {"0.5.1": "refused", "0.5.18": "refused", "0.5.19": "open", "0.5.23": "open"},
    "attention-trtllm-mla-prefill": {"0.5.4.post1": "closed", "0.5.4.post2": "too-open", "0.5.23": "too-open"},
    "dsa-fp4-indexer": {"0.5.12.post1": "absent", "0.5.13": "refused", "0.5.16": "refused", "0.5.17": "open"},
    "dsa-mha-one-shot": {"0.5.4.post3": "absent", "0.5.5": "refused", "0.5.20": "refused", "0.5.23": "refused"},
    "dsa-trtllm-default": {"0.5.8.post1": "absent", "0.5.9": "too-open", "0.5.23": "too-open"},
    "hybrid-gdn-attention": {
        "0.5.4.post1": "open",
        "0.5.4.post2": "closed",
        "0.5.9": "closed",
        "0.5.10": "open",
        "0.5.15.post1": "open",
        "0.5.16": "open",
        "0.5.23": "open",
    },
    "kv-cache-nvfp4": {"0.5.10.post1": "absent", "0.5.11": "refused", "0.5.15.post1": "refused", "0.5.16": "open"},
    "torch-symm-mem": {"0.5.3": "too-open", "0.5.4.post3": "too-open", "0.5.13.post1": "too-open", "0.5.14": "closed"},
    "vision-attention-fa4": {"0.5.9": "absent", "0.5.10": "refused", "0.5.17": "refused", "0.5.18": "closed"},
}
CASES: list[tuple[str, str, str]] = [
    (gate, release, state) for gate, states in BORDERS.items() for release, state in states.items()
]


def _release(case: tuple[str, str, str]) -> str:
    return case[1]


IN_ORDER = sorted(CASES, key=_release)  # releases one after the other: each is read once


@cache
def inspector(release: str) -> Inspector:
    return inspector_of(release)


@pytest.mark.parametrize(("gate", "release", "state"), IN_ORDER)
def test_both_sides_of_a_border(gate: str, release: str, state: str) -> None:
    for sm in (SM120, SM121):
        report = inspector(release).report(gates("sglang")[gate], sm)
        assert report.state.value == state, report.reason


@pytest.mark.parametrize("release", ["0.5.20", "0.5.23"])
def test_an_exact_12_0_test_is_never_widened(release: str) -> None:
    gate = gates("sglang")["qsa-trtllm-decode"]
    assert inspector(release).report(gate, SM120).state.value == "open"
    assert inspector(release).report(gate, SM121).state.value == "refused"
