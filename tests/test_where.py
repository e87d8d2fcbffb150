"""Where a name is: definitions in every form, import paths, meaning, users, and questions that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.arch import ALL_SMS
from patcher.catalogue import engine_named
from patcher.errors import UsageError
from patcher.where import Finder, Question, UnknownSymbol, read_question
from tests.engines import COMMON, FILES
from tests.installation import metadata, run, run_json

Write = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def root(folder_of: Write) -> Path:
    return folder_of(FILES)


@pytest.fixture
def finder(root: Path) -> Finder:
    history = {"is_sm90_supported": [("0.5.1", "0.5.2", "srt/utils.py"), ("0.5.3", "0.5.3", "srt/utils/common.py")]}
    return Finder(engine_named("sglang"), root, history)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("is_sm120_supported", Question("is_sm120_supported")),
        ("is_sm120_supported()", Question("is_sm120_supported")),
        ("sglang.srt.utils.is_sm120_supported", Question("is_sm120_supported", "sglang.srt.utils")),
        ("sglang.srt.utils.is_sm120_supported()", Question("is_sm120_supported", "sglang.srt.utils")),
        ("sglang.srt.utils:is_sm120_supported", Question("is_sm120_supported", "sglang.srt.utils")),
        ("from sglang.srt.utils import is_sm120_supported", Question("is_sm120_supported", "sglang.srt.utils")),
        ("import sglang.srt.utils.utils", Question("utils", "sglang.srt.utils")),
        ("get_platform().is_sm100", Question("get_platform", attribute="().is_sm100")),
        ("current_platform.is_sm100", Question("current_platform", attribute=".is_sm100")),
    ],
)
def test_questions_as_people_write_them(text: str, question: Question) -> None:
    assert read_question(text, "sglang") == question


@pytest.mark.parametrize("text", ["", "is sm120", "120", "[1]"])
def test_what_is_no_name_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        read_question(text, "sglang")


def test_an_assignment_behind_a_star_and_a_map(finder: Finder) -> None:
    (found,) = finder.where("is_sm120_supported").found
    assert (found.path, found.form) == ("sglang/srt/utils/common.py", "assign")
    assert COMMON.splitlines()[found.line - 1].startswith("is_sm120_supported = ")
    assert found.imports == [
        "from sglang.srt.utils.common import is_sm120_supported",
        "from sglang.srt.utils import is_sm120_supported",
        "from sglang.srt.runtime_context import get_platform; get_platform().is_sm120",
    ]
    assert found.also == ["sglang.srt.layers.user"]
    assert found.meaning is not None and found.meaning.truth
    assert [str(sm) for sm in found.meaning.admits] == ["120", "121"]
    assert found.meaning.cuda == "CUDA >= 12.8"
    assert not any(found.meaning.elsewhere.values())


def test_a_decorated_def_and_a_number(finder: Finder) -> None:
    (exact,) = finder.where("is_sm121").found
    assert exact.form == "def @lru_cache(maxsize=1)"
    assert exact.meaning is not None and [str(sm) for sm in exact.meaning.admits] == ["121"]
    assert exact.meaning.cuda == "any CUDA version"
    (number,) = finder.where("get_device_sm").found
    assert number.meaning is not None and not number.meaning.truth
    assert [number.meaning.values[sm] for sm in ALL_SMS] == [int(str(sm)) for sm in ALL_SMS]


def test_a_function_with_parameters_and_one_with_gates_inside(finder: Finder) -> None:
    (check,) = finder.where("_check").found
    assert check.meaning is not None and check.meaning.note == "takes arguments"
    (fusion,) = finder.where("apply_fusion").found
    assert [(g.condition, [str(sm) for sm in ALL_SMS if g.admits(sm)]) for g in fusion.gates] == [
        ("is_sm120_supported()", ["120", "121"])
    ]


def test_users_directly_through_an_alias_and_through_the_map(finder: Finder) -> None:
    (found,) = finder.where("is_sm120_supported").found
    uses = {(u.within, u.via, u.gate.condition if u.gate else None) for u in found.uses}
    assert uses == {
        ("", "", "is_sm120_supported()"),
        ("Layer.forward", "_is_sm120", "_is_sm120 and x"),
        ("apply_fusion", "", "is_sm120_supported()"),
    }
    (hundred,) = finder.where("is_sm100_supported").found
    assert [(u.path, u.within, u.via) for u in hundred.uses] == [
        ("sglang/srt/layers/user.py", "Layer.forward", "get_platform().is_sm100")
    ]


@pytest.mark.parametrize("text", ["get_platform().is_sm100", "is_sm100"])
def test_a_name_behind_a_map(finder: Finder, text: str) -> None:
    entry = finder.where(text).found[0]
    assert (entry.name, entry.form, entry.leads_to) == ("get_platform().is_sm100", "name map", "is_sm100_supported")
    assert entry.imports == ["from sglang.srt.runtime_context import get_platform; get_platform().is_sm100"]
    assert entry.meaning is not None and [str(sm) for sm in entry.meaning.admits] == ["100", "101", "103"]


@pytest.mark.parametrize("module", ["sglang.srt.utils.utils", "sglang.srt.layers"])
def test_a_wrong_module_gets_the_right_one(finder: Finder, module: str) -> None:
    for text in (f"from {module} import is_sm120_supported", f"{module}.is_sm120_supported"):
        (remark,) = finder.where(text).remarks
        assert module in remark and remark.endswith("right is: from sglang.srt.utils.common import is_sm120_supported")


def test_a_right_module_gets_no_remark(finder: Finder) -> None:
    for module in ("sglang.srt.utils", "sglang.srt.utils.common", "sglang.srt.layers.user"):
        assert finder.where(f"from {module} import is_sm120_supported").remarks == []


def test_a_module_alone(finder: Finder) -> None:
    assert finder.where("sglang.srt.utils.common").found[0].path == "sglang/srt/utils/common.py"
    with pytest.raises(UnknownSymbol, match=r"no module sglang\.srt\.utils\.utils") as caught:
        finder.where("sglang.srt.utils.utils")
    assert "sglang.srt.utils" in caught.value.hint


def test_what_is_not_there_gets_releases_and_the_nearest_names(finder: Finder) -> None:
    with pytest.raises(UnknownSymbol) as caught:
        finder.where("is_sm90_supported")
    assert "0.5.1 to 0.5.2 in srt/utils.py, 0.5.3 in srt/utils/common.py" in caught.value.hint
    assert "is_sm120_supported" in caught.value.hint
    with pytest.raises(UnknownSymbol, match="is worth nothing") as maps:
        finder.where("get_platform().is_sm101")
    assert "get_platform().is_sm100" in maps.value.hint


def test_versions_of_cuda_are_told_as_the_source_compares_them(folder_of: Write) -> None:
    source = """
    import torch
    def is_old(): return torch.cuda.get_device_capability()[0] == 9 and int(torch.version.cuda.split(".")[0]) == 12
    """.replace("\n    ", "\n")
    root = folder_of({"sglang/__init__.py": "", "sglang/a.py": source})
    (found,) = Finder(engine_named("sglang"), root).where("is_old").found
    assert found.meaning is not None and found.meaning.cuda == "CUDA 12.0 to 12.9"


def test_the_catalogue_knows_symbols_and_the_functions_of_its_sites(root: Path) -> None:
    gone = run("where", "apply_flashinfer_allreduce_fusion", root=root)
    assert gone.exit_code == 3
    assert "gate allreduce-fusion" in gone.stderr and "flashinfer_ar_fusion_applies" in gone.stderr
    older = run("where", "is_sm80_supported", root=root)
    assert "it exists in sglang 0.5.13 to 0.5.23 in srt/utils/common.py" in older.stderr


def test_the_command_shows_and_tells_as_data(root: Path) -> None:
    shown = run("where", "is_sm120_supported", root=root)
    assert shown.exit_code == 0
    for line in ("from sglang.srt.utils import is_sm120_supported", "SM120, SM121", "CUDA >= 12.8", "(assign)"):
        assert line in shown.stdout
    data = json.loads(run("where", "get_platform().is_sm100", "--format", "json", root=root).stdout)
    entry = data["installations"][0]["found"][0]
    assert entry["stands_for"] == "is_sm100_supported" and entry["meaning"]["admits"] == ["100", "101", "103"]


FLASHINFER = {
    "flashinfer/__init__.py": "",
    "flashinfer/utils.py": "def is_sm12x_supported(device):\n    return True\n",
    **metadata("flashinfer-python", "0.7.2"),
}


@pytest.mark.parametrize(
    ("symbol", "engine"),
    [
        ("is_sm120_supported", "sglang"),
        ("sglang.srt.utils.utils.is_sm120_supported", "sglang"),
        ("from sglang.srt.utils import is_sm120_supported", "sglang"),
        ("get_platform().is_sm100", "sglang"),
        ("is_sm12x_supported", "flashinfer"),
        ("flashinfer.utils.is_sm12x_supported", "flashinfer"),
    ],
)
def test_of_several_engines_the_one_that_has_it_answers(folder_of: Write, symbol: str, engine: str) -> None:
    code, data = run_json("where", symbol, root=folder_of({**FILES, **FLASHINFER}), every_engine=True)
    assert code == 0 and [found["engine"] for found in data["installations"]] == [engine]


def test_what_no_engine_has_is_told_for_each(folder_of: Write) -> None:
    result = run("where", "is_sm12_supported", root=folder_of({**FILES, **FLASHINFER}), every_engine=True)
    assert result.exit_code == 3
    assert "no engine here defines is_sm12_supported" in result.stderr
    assert "flashinfer: nearest names here: is_sm12x_supported" in result.stderr
    assert "sglang: nearest names here: is_sm120_supported" in result.stderr


@pytest.mark.parametrize("symbol", ["is_sm120_supported", "sglang.srt.utils.is_sm120_supported"])
def test_the_engine_that_would_have_it_is_looked_for_elsewhere(
    folder_of: Write, symbol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "home" / "copy"
    for path, text in {**FILES, **metadata("sglang", "0.5.23")}.items():
        (elsewhere / path).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / path).write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home")
    root = folder_of(FLASHINFER)
    code, data = run_json("where", symbol, root=root, every_engine=True)
    assert code == 3 and data["error"]["id"] == "no-engine" and "sglang" in data["error"]["what"]
    assert f"sm-patch where {symbol}" in data["error"]["hint"] and f"--root {elsewhere}" in data["error"]["hint"]


def test_what_the_source_does_not_tell_is_said(folder_of: Write) -> None:
    code = "import os\n\n\ndef is_sm12x_supported():\n    return os.environ['X'] == get_device_sm()\n"
    shown = run("where", "is_sm12x_supported", root=folder_of({**FILES, "sglang/srt/new.py": code})).stdout
    assert "  admits   cannot be told from its source alone ('sm-patch probe'" in shown
    assert "lets through SMs not known from source: " in " ".join(shown.split())


@pytest.mark.parametrize(
    "symbol", ["from sglang.srt.utils import is_sm120_suported", "sglang.srt.utils.is_sm120_suported"]
)
def test_a_name_that_is_nearly_right_is_no_module_that_is_missing(folder_of: Write, symbol: str) -> None:
    result = run("where", symbol, root=folder_of(FILES))
    assert result.exit_code == 3
    assert "nothing in this sglang defines is_sm120_suported" in result.stderr
    assert "nearest names here: is_sm120_supported" in result.stderr


def test_a_name_map_leads_only_where_it_looks(folder_of: Write) -> None:
    """Another function of the same name is not reached by it."""
    other = {"sglang/other/__init__.py": "", "sglang/other/gpu.py": "def is_sm100_supported():\n    return True\n"}
    _, data = run_json("where", "is_sm100_supported", root=folder_of({**FILES, **other}))
    ways = {found["module"]: found["imports"] for found in data["installations"][0]["found"]}
    assert ways["sglang.other.gpu"] == ["from sglang.other.gpu import is_sm100_supported"]
    assert any("get_platform().is_sm100" in way for way in ways["sglang.srt.utils.common"])
