"""Where a site went: ranked by meaning and neighbours, proposed as a recipe line, never patched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.gate import Gate
from patcher.plan import Inspector
from patcher.port import Haystack, Lost, port
from patcher.sites import Assigns, ConditionSite, GuardSite
from patcher.skeleton import recipe_line
from patcher.source import SourceTree
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.conftest import Met
from tests.installation import ADD_NORM, GATE, SERIAL, install, run, run_json, snapshot
from tests.machinery import gate_of

OLD_FILE = "srt/layers/attention.py"
OLD = """\
from sglang.srt.utils import is_sm100_supported


class Args:
    def _pick_backend(self, spec):
        if is_sm100_supported() and self.use_mla and spec is None:
            self.attention_backend = "trtllm_mla"
        if is_sm100_supported() and self.use_mha:
            self.attention_backend = "trtllm_mha"
        return self.attention_backend
"""
# Moved to another file, out of its class, under another name and another spelling, between things like it.
NEW_FILE = "srt/arguments/backend_choice.py"
NEW = """\
from sglang.srt.runtime_context import get_platform


def pick_attention_backend(args, spec):
    if get_platform().is_sm90 and args.use_mla and spec is None:
        args.attention_backend = "fa3"
    if args.use_mla and spec is None:
        args.page_size = 64
    if spec is None and get_platform().is_sm100 and args.use_mha:
        args.attention_backend = "trtllm_mha"
    if args.use_mla and get_platform().is_sm100 and spec is None and not args.forced:
        args.attention_backend = "trtllm_mla"
    return args.attention_backend
"""
OTHER = """\
from sglang.srt.runtime_context import get_platform


def use_fast_gemm(shape):
    return get_platform().is_sm100 and shape[0] > 8
"""
RIGHT_LINE = 11
SITE = ConditionSite(">=0.5.10,<0.5.22", OLD_FILE, "Args._pick_backend", mentions=("use_mla",))


def _tree(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in {"sglang/__init__.py": "", **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def _look(root: Path, version: str) -> Inspector:
    return Inspector(catalogue.engine_named("sglang"), SourceTree(root), version, Met())


def _port(tmp_path: Path, gate: type[Gate], old: Mapping[str, str], new: Mapping[str, str]) -> tuple[list[Lost], Path]:
    before, after = _tree(tmp_path / "old", old), _tree(tmp_path / "new", new)
    hay = Haystack(Inspector(catalogue.engine_named("sglang"), SourceTree(after), "0.5.30", Met()))
    return port(gate, hay, _look(before, "0.5.18"), "0.5.30"), after


def test_a_site_that_moved_was_renamed_and_respelled_is_ranked_first(tmp_path: Path) -> None:
    gate = gate_of(SITE)
    new = {**mini.PLATFORM, f"sglang/{NEW_FILE}": NEW, "sglang/srt/layers/gemm.py": OTHER}
    lost, after = _port(tmp_path, gate, {**mini.UTILS, f"sglang/{OLD_FILE}": OLD}, new)
    (item,) = lost
    assert item.site is SITE
    first = item.candidates[0]
    assert (first.path, first.line, first.within) == (f"sglang/{NEW_FILE}", RIGHT_LINE, "pick_attention_backend")
    assert first.score > item.candidates[1].score
    assert "SM120" in first.closed_to
    assert "SM100" not in first.closed_to
    # What is proposed finds that place and nothing else.
    assert first.site is not None
    place = _look(after, "0.5.30").find(first.site).place
    assert place is not None
    assert (place.path, place.line) == (f"sglang/{NEW_FILE}", RIGHT_LINE)
    line = recipe_line(first.site, SITE)
    assert line.startswith(f'ConditionSite(">=0.5.30", "{NEW_FILE}", "pick_attention_backend"')
    assert eval(line.rstrip(","), {"ConditionSite": ConditionSite}) == first.site


def test_the_meaning_decides_between_conditions_of_the_same_words(tmp_path: Path) -> None:
    """Two branches with the same names and effects: one for SM90, one for SM100."""
    new = NEW.replace('"fa3"', '"trtllm_mla"').replace(" and not args.forced", "")
    lost, _ = _port(
        tmp_path,
        gate_of(SITE),
        {**mini.UTILS, f"sglang/{OLD_FILE}": OLD},
        {**mini.PLATFORM, f"sglang/{NEW_FILE}": new},
    )
    assert lost[0].candidates[0].line == RIGHT_LINE


def test_nothing_alike_is_not_likely(tmp_path: Path) -> None:
    lost, _ = _port(
        tmp_path,
        gate_of(SITE),
        {**mini.UTILS, f"sglang/{OLD_FILE}": OLD},
        {**mini.PLATFORM, "sglang/srt/layers/gemm.py": OTHER},
    )
    assert lost[0].confidence in ("weak", "none")


def test_a_guarded_statement_is_found_again(tmp_path: Path) -> None:
    anchor = Assigns("mc_prop", fails_on=SM12X)
    site = GuardSite(">=0.5.10", "srt/fusion.py", "_sizes", anchor=anchor, body="return None\n")
    old = "def _sizes(driver, sizes):\n    kept = 0\n    mc_prop = driver.Prop()\n    return [mc_prop, kept]\n"
    new = """\
class Fusion:
    def sizes(self, driver):
        kept = 1
        mc_prop = driver.Prop()
        return kept
"""
    lost, _ = _port(
        tmp_path,
        gate_of(site),
        {**mini.UTILS, "sglang/srt/fusion.py": old},
        {**mini.UTILS, "sglang/srt/comm/fusion.py": new},
    )
    first = lost[0].candidates[0]
    assert (first.path, first.line, first.within) == ("sglang/srt/comm/fusion.py", 4, "Fusion.sizes")
    assert first.site is not None
    assert isinstance(first.site, GuardSite)
    assert first.site.anchor == anchor


def test_sites_that_are_found_are_not_ported_and_their_places_are_not_offered(tmp_path: Path) -> None:
    also = ConditionSite(">=0.5.10", NEW_FILE, "pick_attention_backend", mentions=("use_mla", "forced"))
    old = {**mini.PLATFORM, f"sglang/{OLD_FILE}": OLD, f"sglang/{NEW_FILE}": NEW}
    new = {**mini.PLATFORM, f"sglang/{NEW_FILE}": NEW}
    lost, _ = _port(tmp_path, gate_of(SITE, also), old, new)
    assert [item.site for item in lost] == [SITE]
    assert all((c.path, c.line) != (f"sglang/{NEW_FILE}", RIGHT_LINE) for c in lost[0].candidates)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def installations(tmp_path: Path) -> tuple[Path, Path]:
    """A release that the recipes know, and the one after it, in which the run-time gate moved."""
    old = install(tmp_path / "old")
    moved = SERIAL.before[ADD_NORM].replace("def flashinfer_ar_fusion_applies", "def fusion_applies")
    files = {"sglang/srt/layers/fusions/applies.py": moved, ADD_NORM: "NOTHING = None\n"}
    return old, install(tmp_path / "new", "0.5.30.dev1+g1234", files=files)


def test_the_command_shows_where_it_went_and_changes_nothing(installations: tuple[Path, Path]) -> None:
    old, new = installations
    before = snapshot(new)
    code, data = run_json("port", "--sm", "120", "--gate", GATE, "--from", str(old), root=new)
    assert code == 1
    (lost,) = data["installations"][0]["lost"]
    assert lost["gate"] == GATE
    first = lost["candidates"][0]
    assert (first["path"], first["within"]) == ("sglang/srt/layers/fusions/applies.py", "fusion_applies")
    assert first["recipe_line"].startswith('ConditionSite(">=0.5.30.dev1", "srt/layers/fusions/applies.py"')
    shown = run("port", "--sm", "120", "--gate", GATE, "--from", str(old), root=new)
    assert shown.exit_code == 1
    assert "1. " in shown.stdout
    assert first["recipe_line"] in shown.stdout
    assert "nothing was changed" in shown.stderr
    assert snapshot(new) == before
    assert run("status", "--sm", "120", root=old).exit_code == 0


def test_the_command_has_nothing_to_say_where_everything_is_found(installations: tuple[Path, Path]) -> None:
    old, _ = installations
    result = run("port", "--sm", "120", "--gate", GATE, "--from", str(old), root=old)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "nothing to port" in result.stderr


def test_the_command_wants_a_folder_with_the_engine(installations: tuple[Path, Path], tmp_path: Path) -> None:
    _, new = installations
    (tmp_path / "empty").mkdir()
    code, data = run_json("port", "--gate", GATE, "--from", str(tmp_path / "empty"), root=new)
    assert code == 2
    assert data["error"]["id"] == "usage"
