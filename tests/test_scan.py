"""Every architecture gate of a miniature engine: found, told apart, evaluated, compared."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcher import vocabulary
from patcher.arch import ALL_SMS, SM, parse_sm
from patcher.catalogue import engine_named, gates
from patcher.condition import Truth
from patcher.scan import Kind, Scanner, Sighting, compare
from tests.installation import install, run

Write = Callable[[Mapping[str, str]], Path]

COMMON = """
import torch
from functools import lru_cache, partial

def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None

def _check(majors, cuda_version):
    if not is_cuda():
        return False
    return torch.cuda.get_device_capability()[0] in majors

is_sm90_supported = lru_cache(maxsize=1)(partial(_check, [9], cuda_version=(12, 3)))
is_sm100_supported = lru_cache(maxsize=1)(partial(_check, [10], cuda_version=(12, 8)))
"""

MODEL = """
import torch
from sglang.srt.utils.common import is_cuda, is_sm90_supported, is_sm100_supported

_is_cuda = is_cuda()
_fast = _is_cuda and (is_sm90_supported() or is_sm100_supported())

class Layer:
    def __init__(self, args):
        self.use_it = is_sm100_supported()
        capability = torch.cuda.get_device_capability()
        self.cap_major = capability[0]
        if not is_sm90_supported() and args.strict:
            raise ValueError("SM90 only")
        assert capability[0] >= 9, "too old"

    def forward(self, x):
        if self.use_it:
            return fast(x)
        block = 128 if self.cap_major == 12 else 64
        return slow(x, block) if x.shape[0] > 4 else x

def choose(args, sm_list=None):
    if _fast and args.backend is None:
        args.backend = "trtllm"
    if is_sm100_supported():
        BLOCK = 256
    tune(supported_major_versions=[9, 10])
    return {80: 1, 90: 2, 100: 4}

def unrelated(model):
    props = torch.cuda.get_device_properties(0)
    if props.total_memory > 8 and model.is_small:
        return props.multi_processor_count
    # if is_sm100_supported():
    return "is_sm90_supported"
"""


def scanned(root: Path) -> list[Sighting]:
    return Scanner(engine_named("sglang"), root, None).scan().sightings


@pytest.fixture
def root(folder_of: Write) -> Path:
    return folder_of({"sglang/__init__.py": "", "sglang/srt/utils/common.py": COMMON, "sglang/srt/model.py": MODEL})


def admitted(sighting: Sighting) -> list[str]:
    return [str(sm) for sm in ALL_SMS if sighting.admits(sm)]


def of(found: list[Sighting], condition: str) -> Sighting:
    (one,) = [s for s in found if s.condition.startswith(condition)]
    return one


def test_each_gate_with_its_kind_and_whom_it_lets_through(root: Path) -> None:
    found = [s for s in scanned(root) if s.path == "sglang/srt/model.py"]
    told = {(s.condition, s.kind, s.within): admitted(s) for s in found}
    old, hundred = ["70", "75", "80", "86", "87", "89"], ["100", "101", "103"]
    blackwell = [*hundred, "110", "120", "121"]
    assert told == {
        ("_is_cuda and (is_sm90_supported() or is_sm100_supported())", Kind.CONSTANT, ""): ["90", *hundred],
        ("is_sm100_supported()", Kind.DISPATCH, "Layer.__init__"): hundred,
        ("not is_sm90_supported() and args.strict", Kind.RAISE, "Layer.__init__"): [*old, "90", *blackwell],
        ("capability[0] >= 9", Kind.ASSERT, "Layer.__init__"): ["90", *blackwell],
        ("self.use_it", Kind.DISPATCH, "Layer.forward"): hundred,
        ("self.cap_major == 12", Kind.TUNING, "Layer.forward"): ["120", "121"],
        ("_fast and args.backend is None", Kind.DEFAULT, "choose"): ["90", *hundred],
        ("is_sm100_supported()", Kind.TUNING, "choose"): hundred,
        ("[9, 10]", Kind.LITERAL, "choose"): ["90", *hundred],
        ("{80: 1, 90: 2, 100: 4}", Kind.TABLE, "choose"): ["80", "90", "100"],
    }


def test_a_refusal_that_depends_says_so(root: Path) -> None:
    refusal = of(scanned(root), "not is_sm90_supported()")
    assert refusal.truth(SM(9, 0)) is Truth.ALWAYS
    assert refusal.truth(SM(12, 0)) is Truth.DEPENDS


def test_what_only_looks_like_a_gate_is_none(root: Path) -> None:
    assert not [s for s in scanned(root) if s.within == "unrelated"]


def test_the_predicates_themselves_are_listed(root: Path) -> None:
    found = [s for s in scanned(root) if s.path.endswith("common.py")]
    assert {s.condition.split("(")[0] for s in found if s.kind is Kind.CONSTANT} >= {"lru_cache"}
    assert any(s.kind is Kind.PREDICATE and s.within == "_check" for s in found)


def test_line_numbers_survive_other_newlines_and_a_bom(folder_of: Write) -> None:
    text = '\ufeff# é\r\nimport torch; x = "a"\r\nif torch.cuda.get_device_capability()[0] == 9:\r\n    pass\r\n'
    (found,) = scanned(folder_of({"sglang/__init__.py": "", "sglang/a.py": text}))
    assert found.line == 3 and admitted(found) == ["90"]


def test_a_file_that_does_not_parse_is_told_and_the_rest_is_scanned(root: Path) -> None:
    (root / "sglang/srt/broken.py").write_text("if is_sm90_supported(:\n")
    result = Scanner(engine_named("sglang"), root, None).scan()
    assert [u.path for u in result.unread] == ["sglang/srt/broken.py"]
    assert result.sightings


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_several_processes_find_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # that of the test runner holds no lock
    for number in range(300):
        (root / f"sglang/srt/n{number}.py").write_text(
            f"N = {number}\nif is_sm{90 if number % 2 else 100}_supported():\n    pass\n"
        )
    scanner = Scanner(engine_named("sglang"), root, None)
    heard: list[int] = []
    assert scanner.scan(workers=2, tick=heard.append).sightings == scanner.scan().sightings
    assert sum(heard) == 303


def test_gates_of_the_catalogue_are_named(tmp_path: Path) -> None:
    root = install(tmp_path / "site")
    found = Scanner(engine_named("sglang"), root, "0.5.23", gates("sglang").values()).scan().sightings
    covered = {s.recipe for s in found if s.recipe}
    assert {"allreduce-fusion", "allreduce-fusion-auto"} <= covered
    assert any(not s.recipe for s in found)


def test_comparison_tells_added_removed_changed_and_moved(root: Path) -> None:
    before = scanned(root)
    text = MODEL.replace(
        "_is_cuda and (is_sm90_supported() or is_sm100_supported())", "_is_cuda and is_sm100_supported()"
    )
    text = text.replace("assert capability[0] >= 9, ", "assert args, ").replace("    # if is_sm100", "    if is_sm100")
    text = text.replace('    return "is_sm90_supported"', '        return "x"').replace("# a", "")
    (root / "sglang/srt/model.py").unlink()
    (root / "sglang/srt/moved.py").write_text("\n\n" + text)
    changes = compare(before, scanned(root))
    assert [s.condition for s in changes.removed] == [
        "_is_cuda and (is_sm90_supported() or is_sm100_supported())",
        "capability[0] >= 9",
    ]
    assert {s.condition for s in changes.added} == {"_is_cuda and is_sm100_supported()", "is_sm100_supported()"}
    assert [(a.condition, admitted(a), admitted(b)) for a, b in changes.changed] == [
        ("_fast and args.backend is None", ["90", "100", "101", "103"], ["100", "101", "103"])
    ]
    assert {a.path for a, _ in changes.moved} == {"sglang/srt/model.py"}


def test_nothing_differs_from_itself(root: Path) -> None:
    changes = compare(scanned(root), scanned(root))
    assert not (changes.added or changes.removed or changes.changed or changes.moved)


def test_identifiers_that_speak_of_the_sm() -> None:
    speaking = [
        "is_sm90_supported",
        "_is_sm120",
        "is_blackwell",
        "get_device_sm",
        "_use_sm90_humming",
        "capability",
        "sm_90a",
    ]
    silent = [
        "is_small",
        "shape",
        "layerwise_capability",
        "nvmlDeviceGetCapabilities",
        "popper",
        "mechanism_100",
        "sm1000",
    ]
    assert [vocabulary.speaks(name) for name in speaking] == [True] * len(speaking)
    assert [vocabulary.speaks(name) for name in silent] == [False] * len(silent)


# -- the command ---------------------------------------------------------------------------------------------------


def test_filters_and_formats(root: Path) -> None:
    found = json.loads(run("scan", "--format", "json", "--excludes", "120", "--admits", "100", root=root).stdout)
    shown = found["installations"][0]["gates"]
    assert shown and all(g["truth"]["120"] == "never" and g["truth"]["100"] != "never" for g in shown)
    rows = list(csv.DictReader(io.StringIO(run("scan", "--format", "csv", "--kind", "assert", root=root).stdout)))
    assert [(row["condition"], row["sm120"], row["sm80"]) for row in rows] == [
        ("capability[0] >= 9", "always", "never")
    ]
    sarif = json.loads(run("scan", "--format", "sarif", root=root).stdout)
    results = sarif["runs"][0]["results"]
    assert len(results) == len(scanned(root))
    ids = {rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in results} <= ids
    table = run("scan", "--kind", "assert", root=root)
    assert table.exit_code == 0 and "assert" in table.stdout


def test_new_leaves_out_what_the_catalogue_covers(tmp_path: Path) -> None:
    root = install(tmp_path / "site")
    everything = json.loads(run("scan", "--format", "json", root=root).stdout)["installations"][0]["gates"]
    fresh = json.loads(run("scan", "--format", "json", "--new", root=root).stdout)["installations"][0]["gates"]
    assert 0 < len(fresh) < len(everything) and not any(gate["recipe"] for gate in fresh)


def test_against_another_root(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for path in root.rglob("*.py"):
        target = other / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text().replace("assert capability[0] >= 9", "assert capability[0] >= 10"))
    answer = json.loads(run("scan", "--against", str(other), "--format", "json", root=root).stdout)
    (change,) = answer["installations"][0]["changed"]
    assert (
        change["before"]["condition"] == "capability[0] >= 10" and change["after"]["condition"] == "capability[0] >= 9"
    )
    shown = run("scan", "--against", str(other), root=root)
    assert "0 added, 0 removed, 1 changed, 0 moved" in shown.stderr
    missing = run("scan", "--against", str(tmp_path), root=root)
    assert missing.exit_code == 3 and "no-engine" in missing.stderr


def test_every_sm_is_spelled_as_it_is_read() -> None:
    assert [parse_sm(str(sm)) for sm in ALL_SMS] == list(ALL_SMS)
    assert ast.parse(MODEL)


def test_a_number_by_itself_does_not_move(tmp_path: Path) -> None:
    """Two classes that happen to want the same least capability have nothing to do with each other."""
    least = "class {name}:\n    def get_min_capability(self):\n        return 80\n"
    for root, name in (("old", "A"), ("new", "B")):
        package = tmp_path / root / "sglang"
        (package / "srt").mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / f"srt/{name}.py").write_text(least.format(name=name))
    before, after = (Scanner(engine_named("sglang"), tmp_path / root, None).scan().sightings for root in ("old", "new"))
    changes = compare(before, after)
    assert (len(changes.added), len(changes.removed), changes.moved) == (1, 1, [])


def test_a_folder_that_lets_nobody_in_is_told_and_a_pipe_is_passed_over(root: Path) -> None:
    os.mkfifo(root / "sglang/srt/pipe.py")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("srt/layers"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    (root / "sglang/srt/layers").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        result = Scanner(engine_named("sglang"), root, None).scan()
    assert [(Path(u.path).name, u.error.what) for u in result.unread] == [
        ("layers", "the folder cannot be read: Permission denied")
    ]
    assert result.sightings


def test_a_kind_that_there_is_not_is_an_error(root: Path) -> None:
    wrong = run("scan", "--kind", "assert,raises", root=root)
    assert wrong.exit_code == 2
    assert "'raises' is none of dispatch, raise," in wrong.stderr
    assert run("scan", "--kind", "Assert,constant", root=root).exit_code == 0
