"""The committed matrix against a fixed spread of releases, computed again; every byte is given back on disk."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import pytest

from patcher import catalogue
from scripts import matrix, releases

pytestmark = pytest.mark.releases

SPREAD = (
    "0.4.6",
    "0.4.9",
    "0.5.1",
    "0.5.3.post3",
    "0.5.4.post2",
    "0.5.6.post2",
    "0.5.7",
    "0.5.8.post1",
    "0.5.11",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15.post1",
    "0.5.18",
    "0.5.20",
    "0.5.23",
)
# Further releases to compute again, e.g. another slice each time: SM_PATCH_RELEASES="0.5.9 0.5.12".
CHOSEN = (*SPREAD, *(r for r in os.environ.get("SM_PATCH_RELEASES", "").split() if r not in SPREAD))


@cache
def committed() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(matrix.OUTPUT.read_text())
    return data


def test_it_covers_every_release_gate_and_target() -> None:
    rows = {(row["release"], row["gate"], row["sm"]) for row in committed()["rows"]}
    gates = catalogue.gates("sglang")
    wanted = {(r, g, sm) for r in releases.versions("sglang") for g in gates for sm in ("120", "121")}
    assert rows == wanted
    assert [trip["release"] for trip in committed()["round_trips"]] == releases.versions("sglang")


def test_it_holds_no_problem() -> None:
    assert matrix.problems(committed()) == []


@pytest.mark.parametrize("release", CHOSEN)
def test_rows_computed_again_are_the_same(release: str) -> None:
    kept = [row for row in committed()["rows"] if row["release"] == release]
    again = json.loads(json.dumps(matrix.rows(release, catalogue.gates("sglang").values())))
    assert again == kept


@pytest.mark.parametrize("release", CHOSEN)
def test_a_round_trip_on_disk_gives_everything_back(release: str) -> None:
    kept = next(trip for trip in committed()["round_trips"] if trip["release"] == release)
    assert json.loads(json.dumps(matrix.round_trip(release))) == kept


@pytest.mark.parametrize(
    "release", [r for r in releases.versions("sglang") if r.startswith(("0.4.9", "0.4.10", "0.5"))]
)
def test_the_all_reduce_fusion_is_patched_whole_on_every_release_that_has_it(release: str) -> None:
    rows = [r for r in committed()["rows"] if (r["release"], r["gate"]) == (release, "allreduce-fusion")]
    assert len(rows) == 2
    for row in rows:
        assert (row["before"], row["after"], row["settled"]) == ("closed", "patched", True)
        assert row["sites"] == f"{row['edited']}/{row['edited']}"
        assert len(row["proof"]) >= 6


def test_single_rows_are_put_into_a_matrix_in_their_place() -> None:
    kept = {"assumed": {}, "rows": committed()["rows"], "round_trips": committed()["round_trips"]}
    row = {**kept["rows"][100], "before": "changed"}
    missing = {**kept, "rows": kept["rows"][:100] + kept["rows"][101:], "round_trips": kept["round_trips"][1:]}
    whole = matrix.updated(missing, {"rows": [row], "round_trips": kept["round_trips"][:1]}, "sglang")
    assert whole["rows"] == [*kept["rows"][:100], row, *kept["rows"][101:]]
    assert whole["round_trips"] == kept["round_trips"]
    assert matrix.updated(whole, {"rows": [kept["rows"][100]], "round_trips": []}, "sglang") == kept
