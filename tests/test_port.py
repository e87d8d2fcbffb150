"""Where a site went: ranked by meaning and neighbours, proposed as a recipe line, never patched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.gate import Gate
from patcher.haystack import Haystack
from patcher.keyed import KeyedSite, Unit
from patcher.located import LocatedSite
from patcher.plan import Inspector
from patcher.port import Lost, port
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
    hay = Haystack(_look(after, "0.5.30"))
    return port(gate, hay, Haystack(_look(before, "0.5.18")), "0.5.30"), after


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


# -- where the old place leads to -------------------------------------------------------------------------------------

FUSED = """\
from sglang.srt.utils import is_sm100_supported


class Layer:
    def forward(self, x, norm):
        if is_sm100_supported() and x.shape[0] <= 2048 and self.flashinfer and hasattr(norm, "fused"):
            return norm.fused(x)
        return norm(x)
"""
HELPED = """\
from sglang.srt.helpers import fusion_applies


class Layer:
    def forward(self, x, norm):
        if fusion_applies(self, x.shape[0]) and hasattr(norm, "fused"):
            return norm.fused(x)
        return norm(x)
"""
HELPER = """\
from sglang.srt.utils import is_sm100_supported


def fusion_applies(layer, size):
    return is_sm100_supported() and size <= 2048 and layer.flashinfer


def another(layer, size):
    return is_sm100_supported() and size <= 4096 and layer.flashinfer
"""
FUSED_SITE = ConditionSite(">=0.5.10", "srt/layer.py", "Layer.forward", mentions=("flashinfer", "fused"))


def _first(tmp_path: Path, gate: type[Gate], old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, int]]:
    """The first candidate of each lost site: the file below the package, and the line."""
    ported, _ = _port(tmp_path, gate, old, new)
    return [(item.candidates[0].path.removeprefix("sglang/"), item.candidates[0].line) for item in ported]


def test_what_moved_into_a_helper_is_found_where_the_gpu_is_asked_for(tmp_path: Path) -> None:
    """The old place still decides the same, by calling the helper: but there is nothing left there to edit."""
    old = {**mini.UTILS, "sglang/srt/layer.py": FUSED}
    new = {**mini.UTILS, "sglang/srt/layer.py": HELPED, "sglang/srt/helpers.py": HELPER}
    assert _first(tmp_path, gate_of(FUSED_SITE), old, new) == [("srt/helpers.py", 5)]


def test_a_helper_that_asks_for_nothing_but_the_gpu_is_found_when_it_is_about_the_feature(tmp_path: Path) -> None:
    old = FUSED.replace("if is_sm100_supported() and", "fits = is_sm100_supported()\n        if fits and")
    helped = old.replace("fits = is_sm100_supported()", "fits = traits.can_fuse()").replace(
        "utils import is_sm100_supported", "helpers import traits"
    )
    helper = "from sglang.srt.utils import is_sm100_supported\n\n\ndef can_fuse():\n    return is_sm100_supported()\n"
    gate = gate_of(
        LocatedSite(">=0.5.10", "srt/layer.py", "Layer.forward", mentions=("is_sm100_supported",), leads_to=("fits",))
    )
    new = {**mini.UTILS, "sglang/srt/layer.py": helped, "sglang/srt/helpers/traits.py": helper}
    new["sglang/srt/helpers/__init__.py"] = ""
    assert _first(tmp_path, gate, {**mini.UTILS, "sglang/srt/layer.py": old}, new) == [("srt/helpers/traits.py", 5)]


def test_a_new_predicate_is_not_taken_for_where_the_condition_went(tmp_path: Path) -> None:
    """Another spelling of the GPU is a new function that the old place calls, too."""
    spelt = FUSED.replace("is_sm100_supported()", "is_sm10x_supported()").replace("import is_sm100", "import is_sm10x")
    spelt = spelt.replace('hasattr(norm, "fused")', "norm.can_fuse")
    common = (
        mini.UTILS["sglang/srt/utils/common.py"] + "\n\ndef is_sm10x_supported():\n    return is_sm100_supported()\n"
    )
    new = {**mini.UTILS, "sglang/srt/utils/common.py": common, "sglang/srt/layer.py": spelt}
    old = {**mini.UTILS, "sglang/srt/layer.py": FUSED}
    assert _first(tmp_path, gate_of(FUSED_SITE), old, new) == [("srt/layer.py", 6)]


def test_a_value_that_moved_out_of_the_old_place_is_found_by_what_reads_it(tmp_path: Path) -> None:
    old = """\
from sglang.srt.utils import is_sm100_supported


def pick(batch, attn):
    longest = batch.lens.max()
    supports_mha = is_sm100_supported()
    if longest <= attn.top_k and supports_mha and batch.sums() <= batch.capacity():
        return "mha"
    return "mla"
"""
    reads = """\
def pick(batch, attn):
    if hasattr(batch.backend, "one_shot") and batch.backend.one_shot:
        return "mha"
    return "mla"
"""
    backend = """\
from sglang.srt.utils import is_sm100_supported


class Backend:
    def plan(self, batch):
        self.graphs = is_sm100_supported()
        self.one_shot = (
            is_sm100_supported()
            and batch.lens.max() <= self.top_k
            and batch.sums() <= batch.capacity()
        )
"""
    gate = gate_of(LocatedSite(">=0.5.10", "srt/pick.py", "pick", leads_to=("supports_mha",)))
    new = {**mini.UTILS, "sglang/srt/pick.py": reads, "sglang/srt/backend.py": backend}
    assert _first(tmp_path, gate, {**mini.UTILS, "sglang/srt/pick.py": old}, new) == [("srt/backend.py", 8)]


def test_a_condition_that_reads_a_local_yields_to_where_that_is_set(tmp_path: Path) -> None:
    head = "from sglang.srt.utils import get_device_sm, is_sm100_supported\n\n\ndef pick(size, kind):\n"
    old = head + '    if size < 8 and kind == "bf16":\n        if is_sm100_supported():\n'
    old += '            return "mha"\n    return ""\n'
    new = head + "    supported = get_device_sm() in (100, 103)\n"
    new += '    if size < 8 and supported and kind == "bf16":\n        return "mha"\n    return ""\n'
    gate = gate_of(ConditionSite(">=0.5.10", "srt/pick.py", "pick"))
    files = ({**mini.UTILS, "sglang/srt/pick.py": text} for text in (old, new))
    assert _first(tmp_path, gate, *files) == [("srt/pick.py", 5)]


# -- what is known to be something else -------------------------------------------------------------------------------


def _twice(first: str, second: str) -> str:
    lines = [
        "from sglang.srt.utils import is_sm90_supported, is_sm100_supported",
        "",
        "",
        "class Args:",
        "    def check(self):",
    ]
    for backend in (first, second):
        lines += [
            f"        if self.{backend} and not is_sm100_supported():",
            f'            raise ValueError("{backend}")',
        ]
    return "\n".join(lines) + "\n"


def test_code_that_stood_at_the_same_place_before_is_not_what_moved(tmp_path: Path) -> None:
    """The same code is in a third file, and was; only one of the two is new."""
    head = "from sglang.srt.utils import is_sm100_supported\n\n\n"
    helper = head + "def supported(layer):\n    return is_sm100_supported() and layer.has_cute\n"
    gate = gate_of(ConditionSite(">=0.5.10", "srt/cute_experts.py", "supported"))
    old = {**mini.UTILS, "sglang/srt/cute_experts.py": helper, "sglang/srt/trtllm_experts.py": helper}
    moved = helper.replace("layer.has_cute", "layer.has_cute and layer.shape[0] > 1")
    new = {**mini.UTILS, "sglang/srt/experts/cute.py": moved, "sglang/srt/trtllm_experts.py": helper}
    assert _first(tmp_path, gate, old, new) == [("srt/experts/cute.py", 5)]


def test_the_sites_of_one_gate_go_to_different_places(tmp_path: Path) -> None:
    """Alone, each would go to the check that is least changed."""
    sites = [
        ConditionSite(">=0.5.10", "srt/args.py", "Args.check", mentions=(name,), refuses=True)
        for name in ("abc", "xyz")
    ]
    new = _twice("one", "two").replace("self.two and", 'self.two == "x" and self.more > 4 and')
    files = [{**mini.UTILS, "sglang/srt/args.py": text} for text in (_twice("abc", "xyz"), new)]
    assert sorted(_first(tmp_path, gate_of(*sites), *files)) == [("srt/args.py", 6), ("srt/args.py", 8)]


def test_gates_of_one_place_are_told_apart_by_their_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One check of both becomes a check of each: the one that is least changed is not everybody's."""
    site = ConditionSite(">=0.5.10", "srt/args.py", "Args.check", mentions=("backend",), refuses=True)
    gates = {name: gate_of(site, name=name) for name in ("attention-x-prefill", "attention-x-decode")}
    monkeypatch.setattr(catalogue, "gates", lambda engine: gates)
    old = _twice("backend", "other")
    new = old.replace("self.backend", "self.prefill_one")
    decode = _twice("decode_one", "more").replace("class Args", "class Decoding").replace("def check", "def reject")
    before = {**mini.UTILS, "sglang/srt/args.py": old}
    after = {**mini.UTILS, "sglang/srt/args.py": new, "sglang/srt/decoding.py": decode}
    found = {name: _first(tmp_path / name, gate, before, after) for name, gate in gates.items()}
    assert found == {"attention-x-prefill": [("srt/args.py", 6)], "attention-x-decode": [("srt/decoding.py", 6)]}


def test_the_place_of_another_gate_is_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = ConditionSite(">=0.5.10", "srt/args.py", "Args.check", mentions=("first",), refuses=True)
    other = ConditionSite(">=0.5.10", "srt/args.py", "Args.check", mentions=("second",), refuses=True)
    gates = {"a-gate": gate_of(here), "b-gate": gate_of(other, name="b-gate")}
    later = _twice("f", "second").replace("self.second and", "self.second and self.more and")
    files = [{**mini.UTILS, "sglang/srt/args.py": text} for text in (_twice("first", "second"), later)]
    monkeypatch.setattr(catalogue, "gates", lambda engine: {})
    alone, _ = _port(tmp_path / "alone", gates["a-gate"], *files)
    monkeypatch.setattr(catalogue, "gates", lambda engine: gates)
    beside, _ = _port(tmp_path / "beside", gates["a-gate"], *files)
    second = [next(c for c in ported[0].candidates if c.line == 8) for ported in (alone, beside)]
    assert second[1].score == pytest.approx(second[0].score / 2)
    assert beside[0].candidates[0].line == 6


# -- lists of SMs -----------------------------------------------------------------------------------------------------

OLD_LISTS = """\
from .utils import supported_compute_capability


@supported_compute_capability([90, 100])
def _cudnn_requirement(a, b):
    return True


@supported_compute_capability([100, 103])
def _trtllm_requirement(a, b, out_dtype):
    return check(a, b)


def module():
    return spec("mla", context.flags(supported_major_versions=[10, 11]))
"""


@pytest.mark.parametrize(
    ("given", "within", "line"),
    [({"decorator": "supported_compute_capability"}, "_trtllm_requirement", 9), ({"keyword": "majors"}, "module", 15)],
)
def test_lists_given_to_decorators_and_arguments_are_found_again(
    tmp_path: Path, given: dict[str, str], within: str, line: int
) -> None:
    unit = Unit.MAJOR if "keyword" in given else Unit.CAPABILITY
    text = OLD_LISTS.replace("supported_major_versions", "majors")
    site = KeyedSite(">=0.5", "gemm.py", within, unit, **given)
    gate = gate_of(site)
    engine = catalogue.engine_named("flashinfer")
    trees = [tmp_path / "old", tmp_path / "new"]
    moved = text.replace("[100, 103]", "[100, 103, 110]")
    for root, path, content in zip(trees, ("gemm.py", "gemm/base.py"), (text, moved), strict=True):
        for name, here in {"__init__.py": "", path: content}.items():
            (root / "flashinfer" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "flashinfer" / name).write_text(here)
    before, hay = (Haystack(Inspector(engine, SourceTree(root), "0.5.2", Met())) for root in trees)
    (item,) = port(gate, hay, before, "0.5.3")
    first = item.candidates[0]
    assert (first.path, first.line) == ("flashinfer/gemm/base.py", line)
    assert first.site is not None
    written = recipe_line(first.site, site)
    names = {"KeyedSite": KeyedSite, "Unit": Unit}
    assert eval(written.rstrip(","), names) == KeyedSite(">=0.5.3", "gemm/base.py", within, unit, **given)


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
