"""Skeletons of recipes from a line of source: they import, find that line alone, and tell the truth by SM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcher import catalogue
from patcher.arch import SM120, SM121
from patcher.errors import Unrecognised, UsageError
from patcher.gate import Action, Gate, Level
from patcher.keyed import KeyedSite, Unit
from patcher.plan import Inspector
from patcher.skeleton import Sketch, sketch
from patcher.source import SourceTree
from patches.sglang import _miniature as mini
from tests.conftest import Met
from tests.installation import install, run, run_json, snapshot
from tests.machinery import FILE, IN_TREE, applied

SOURCE = """\
from sglang.srt.utils import get_device_sm, is_blackwell_supported, is_sm90_supported, is_sm100_supported


def choose(kind, size):
    if kind == "mla" and is_sm100_supported():
        return "trtllm_mla"
    if (
        is_sm100_supported()
        and kind == "mha"
        and size > 4
    ):
        return "trtllm_mha"
    return "triton"


def demand(kind):
    if kind == "fa3":
        if not is_sm90_supported():
            raise ValueError("no")
    return kind


def admits_all_of_them():
    return is_blackwell_supported()


def exactly():
    return get_device_sm() == 120


def same(size):
    if is_sm100_supported():
        size = size + 1
    if is_sm100_supported():
        size = size + 1
    return size


def plain(size):
    return size > 4
"""
LINES = {
    text: number
    for text in ('kind == "mla"', 'kind == "mha"', "if not is_sm90", "return is_blackwell", "== 120", "size > 4\n")
    for number, line in enumerate(SOURCE.splitlines(keepends=True), 1)
    if text in line
}


@pytest.fixture
def inspector(folder_of: Callable[[Mapping[str, str]], Path]) -> Inspector:
    root = folder_of({**mini.UTILS, IN_TREE: SOURCE})
    return Inspector(catalogue.engine_named("sglang"), SourceTree(root), "0.5.18", Met())


def _gate(made: Sketch) -> type[Gate]:
    """The gate that a skeleton defines, imported as a module would be."""
    names: dict[str, Any] = {"__name__": "made"}
    exec(compile(made.text, "made.py", "exec"), names)
    (gate,) = [v for v in names.values() if isinstance(v, type) and issubclass(v, Gate) and v.__module__ == "made"]
    return gate


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ('kind == "mla"', {"SM100", "SM101", "SM103"}),
        ('kind == "mha"', {"SM100", "SM101", "SM103"}),
        ("if not is_sm90", {"SM90"}),
        ("return is_blackwell", {"SM100", "SM101", "SM103", "SM120", "SM121"}),
        ("== 120", {"SM120"}),
    ],
)
def test_a_skeleton_finds_its_line_and_nothing_else_and_says_who_gets_through(
    inspector: Inspector, text: str, admitted: set[str]
) -> None:
    made = sketch(inspector, FILE, LINES[text], "", ">=0.5.18")
    gate = _gate(made)
    (site,) = gate.sites
    place = inspector.find(site).place
    assert place is not None
    assert place.line <= LINES[text] <= place.end_line
    through = {world for world, truth in made.truths.items() if truth.value in ("always", "depends")}
    assert {world for world in through if world.startswith("SM")} == admitted
    for world, truth in made.truths.items():
        assert f"{world:12} {truth.value}\n" in made.text
    assert gate.level is Level.EXPERIMENTAL


def test_a_skeleton_opens_for_those_who_are_kept_out_and_closes_where_none_is(inspector: Inspector) -> None:
    kept_out = _gate(sketch(inspector, FILE, LINES['kind == "mla"'], "", ">=0.5.18"))
    assert (kept_out.action, kept_out.targets) == (Action.OPEN, frozenset({SM120, SM121}))
    one = _gate(sketch(inspector, FILE, LINES["== 120"], "", ">=0.5.18"))
    assert (one.action, one.targets) == (Action.OPEN, frozenset({SM121}))
    none = _gate(sketch(inspector, FILE, LINES["return is_blackwell"], "", ">=0.5.18"))
    assert (none.action, none.targets) == (Action.CLOSE, frozenset({SM120, SM121}))


def test_the_gate_of_a_skeleton_can_be_planned_and_is_proven(inspector: Inspector) -> None:
    gate = _gate(sketch(inspector, FILE, LINES['kind == "mha"'], "my-mha", ">=0.5.18"))
    assert gate.id == "my-mha"
    text = applied(inspector, [gate])[IN_TREE]
    assert "(is_sm100_supported() or is_sm120_supported())\n        and kind" in text
    assert 'kind == "mla" and is_sm100_supported()' in text


def test_a_line_without_a_condition_on_the_gpu_is_refused_with_the_nearest(inspector: Inspector) -> None:
    with pytest.raises(UsageError) as caught:
        sketch(inspector, FILE, SOURCE.count("\n"), "", ">=0.5.18")
    assert "the nearest are at line" in caught.value.hint


def test_a_condition_that_cannot_be_told_from_another_is_no_skeleton(inspector: Inspector) -> None:
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text == "    if is_sm100_supported():")
    with pytest.raises(Unrecognised, match="no site of the plain kind"):
        sketch(inspector, FILE, line, "", ">=0.5.18")


def test_the_command_writes_a_new_file_only(tmp_path: Path) -> None:
    root = install(tmp_path / "root")
    before = snapshot(root)
    add_norm = root / "sglang/srt/layers/layer_boundary/residual/add_norm.py"
    line = next(n for n, text in enumerate(add_norm.read_text().splitlines(), 1) if "return _is_sm100" in text)
    output = tmp_path / "my_gate.py"
    for place in (f"{add_norm}:{line}", f"srt/layers/layer_boundary/residual/add_norm.py:{line}"):
        result = run("new-gate", place, "--id", "my-gate", "-o", str(output), root=root)
        assert result.exit_code == 0, result.stderr
        assert 'id = "my-gate"' in output.read_text()
        again, data = run_json("new-gate", place, "-o", str(output), root=root)
        assert (again, data["error"]["id"]) == (2, "usage")
        output.unlink()
    shown = run("new-gate", f"sglang/srt/layers/layer_boundary/residual/add_norm.py:{line}", root=root)
    assert shown.stdout.startswith('"""TODO')
    code, data = run_json("new-gate", f"sglang/srt/layers/layer_boundary/residual/add_norm.py:{line}", root=root)
    assert code == 0
    assert (data["truth"]["SM100"], data["truth"]["SM120"]) == ("depends", "never")
    assert snapshot(root) == before


# -- other engines: lists of SMs, and ids with the engine before them ---------------------------------------------

SM10X = ("SM100", "SM101", "SM103")
LISTS = """\
from .utils import supported_compute_capability

SIZES: dict[int, dict[int, float]] = {
    90: {2: 64},
    107: {2: 32},
}
NAMED = {"9.0": 1, "10.0": 2}
SHAPES = [64, 256]


@supported_compute_capability([100, 103])
def requirement(a, b):
    return True


def module():
    flags = context.flags(
        supported_major_versions=[9, 10],
    )
    return spec(flags, [9, 10])
"""


@pytest.fixture
def flashinfer(folder_of: Callable[[Mapping[str, str]], Path]) -> Inspector:
    root = folder_of({"flashinfer/__init__.py": "", "flashinfer/lists.py": LISTS})
    return Inspector(catalogue.engine_named("flashinfer"), SourceTree(root), "0.7.2", Met())


@pytest.mark.parametrize(
    ("text", "within", "unit", "given", "admitted"),
    [
        (
            "@supported_",
            "requirement",
            Unit.CAPABILITY,
            {"decorator": "supported_compute_capability"},
            {"SM100", "SM103"},
        ),
        ("major_versions=", "module", Unit.MAJOR, {"keyword": "supported_major_versions"}, {"SM90", *SM10X}),
        ("    90: {2", "", Unit.CAPABILITY, {"name": "SIZES"}, {"SM90"}),
        ("SIZES: dict", "", Unit.CAPABILITY, {"name": "SIZES"}, {"SM90"}),
        ("NAMED = ", "", Unit.DOTTED, {"name": "NAMED"}, {"SM90", "SM100"}),
    ],
)
def test_a_list_of_sms_makes_a_skeleton_too(
    flashinfer: Inspector, text: str, within: str, unit: Unit, given: dict[str, str], admitted: set[str]
) -> None:
    line = next(number for number, there in enumerate(LISTS.splitlines(), 1) if text in there)
    made = sketch(flashinfer, "lists.py", line, "", ">=0.7.2")
    gate = _gate(made)
    assert gate.sites == (KeyedSite(">=0.7.2", "lists.py", within, unit, **given),)
    assert gate.id == f"flashinfer.{within or given['name'].lower()}"
    assert gate.targets == {SM120, SM121}
    assert made.truths["SM120"].value == "never"
    through = {world for world, truth in made.truths.items() if truth.value == "always"}
    assert through == admitted
    place = flashinfer.find(gate.sites[0]).place
    assert place is not None
    assert place.line <= line <= place.end_line
    assert ('# TODO: value="' in made.text) is (given.get("name") is not None)


@pytest.mark.parametrize("text", ["SHAPES = ", "return spec"])
def test_a_list_that_is_none_of_sms_or_given_to_nothing_named_is_no_skeleton(flashinfer: Inspector, text: str) -> None:
    line = next(number for number, there in enumerate(LISTS.splitlines(), 1) if text in there)
    with pytest.raises(UsageError, match="condition") as caught:
        sketch(flashinfer, "lists.py", line, "", ">=0.7.2")
    assert "the nearest are at line" in caught.value.hint


def test_any_id_makes_a_class(inspector: Inspector) -> None:
    made = sketch(inspector, FILE, LINES['kind == "mla"'], "house.1st-gate", ">=0.5.18")
    assert _gate(made).id == "house.1st-gate"
    assert _gate(sketch(inspector, FILE, LINES['kind == "mla"'], "1st", ">=0.5.18")).__name__ == "Gate1st"


@pytest.mark.parametrize("place", ["nowhere.py:3", "srt/layers/x.py", "srt/layers/x.py:0", "/etc/hosts:1"])
def test_the_command_refuses_places_that_are_none(place: str, tmp_path: Path) -> None:
    code, data = run_json("new-gate", place, root=install(tmp_path / "root"))
    assert (code, data["error"]["id"]) == (2, "usage")
