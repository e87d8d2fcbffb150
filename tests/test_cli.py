"""The commands as users call them, on a miniature installation."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from io import FileIO
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.catalogue import gates
from tests.installation import (
    ADD_NORM,
    AUTO,
    FUSION,
    GATE,
    SERIAL,
    flashinfer,
    install,
    run,
    run_json,
    snapshot,
    states,
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    for name in ("SM_PATCH_SM", "SM_PATCH_ROOT", "SM_PATCH_VENV", "SM_PATCH_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return install(tmp_path / "site")


def test_apply_opens_the_default_set_and_revert_gives_back_every_byte(root: Path) -> None:
    before = snapshot(root)
    assert states(root)[GATE] == "closed"

    applied = run("apply", "--sm", "120", root=root)
    assert applied.exit_code == 0
    assert "opened allreduce-fusion: 3 of 3 sites edited, proven" in applied.stderr
    assert {p: (root / p).read_text() for p in SERIAL.after} == dict(SERIAL.after)
    assert states(root)[GATE] == "patched"
    assert states(root)[AUTO] == "closed"

    once = snapshot(root)
    again = run("apply", "--sm", "120", root=root)
    assert again.exit_code == 0
    assert "nothing was changed" in again.stderr
    assert "opened" not in again.stderr.replace("opened by sm-patch", "")
    assert snapshot(root) == once

    reverted = run("revert", root=root)
    assert reverted.exit_code == 0
    assert {p: (data, mode) for p, (data, mode, _) in snapshot(root).items()} == {
        p: (data, mode) for p, (data, mode, _) in before.items()
    }
    assert states(root)[GATE] == "closed"
    assert "nothing is applied" in run("revert", root=root).stderr


def test_each_gate_reverts_alone_in_any_order(root: Path) -> None:
    names = ["sglang/srt/arg_groups/overrides.py", FUSION, ADD_NORM]
    pristine = {p: (root / p).read_bytes() for p in names}
    assert run("apply", "--gate", GATE, root=root).exit_code == 0
    only_gate = {p: (root / p).read_bytes() for p in names}
    assert run("apply", "--gate", AUTO, root=root).exit_code == 0
    both = {p: (root / p).read_bytes() for p in names}
    assert run("revert", "--gate", AUTO, root=root).exit_code == 0
    assert {p: (root / p).read_bytes() for p in names} == only_gate
    assert run("revert", root=root).exit_code == 0
    assert run("apply", "--gate", AUTO, root=root).exit_code == 0
    assert run("apply", "--gate", GATE, root=root).exit_code == 0
    assert {p: (root / p).read_bytes() for p in names} == both
    assert run("revert", "--gate", f"{GATE},{AUTO}", root=root).exit_code == 0
    assert {p: (root / p).read_bytes() for p in names} == pristine


def test_a_dry_run_writes_nothing_and_says_what_is_pending(root: Path, tmp_path: Path) -> None:
    before = snapshot(tmp_path)
    result = run("apply", "--dry-run", "--diff", root=root)
    assert result.exit_code == 1
    assert "+    if get_platform().is_sm120:" in result.stdout
    assert "would open allreduce-fusion" in result.stderr
    assert " opened" not in result.stderr
    assert snapshot(tmp_path) == before
    assert run("apply", root=root).exit_code == 0
    assert run("apply", "--dry-run", root=root).exit_code == 0


def test_status_check_is_one_while_something_is_pending(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The miniature has the files of these two gates; that it lacks the others' would count as drift.
    mine = {name: gates("sglang")[name] for name in (GATE, AUTO)}
    monkeypatch.setattr(catalogue, "gates", lambda engine: mine)
    assert run("status", root=root).exit_code == 0
    assert run("status", "--check", root=root).exit_code == 1
    run("apply", root=root)
    assert run("status", "--check", root=root).exit_code == 0
    (root / FUSION).write_text((root / FUSION).read_text() + "# mine\n")
    assert run("status", "--check", root=root).exit_code == 1


def test_status_names_sites_level_reason_versions_and_target(root: Path) -> None:
    _, data = run_json("status", root=root, env={"PATH": ""})
    assert data["target"] == {"sms": ["120"], "source": "no GPU is visible; assumed", "assumed": True, "gpus": []}
    here = data["installations"][0]
    assert here["installation"]["version"] == "0.5.23"
    assert here["installation"]["related"]["flashinfer-python"] == "0.7.2"
    gate = next(g for g in here["gates"] if g["gate"] == GATE)
    assert gate["sites"] == {"found": 3, "expected": 3}
    assert gate["level"] == "reported"
    assert gate["reason"]
    assert [p["admits"] for p in gate["places"]] == [False, False, False]
    table = run("status", root=root)
    assert "assumed" in table.stderr
    assert max(len(line) for line in table.stdout.splitlines()) <= 80


def test_several_targets_have_a_state_each(root: Path) -> None:
    _, data = run_json("status", "--sm", "100,120,12.1", root=root)
    found = {g["sm"]: g["state"] for g in data["installations"][0]["gates"] if g["gate"] == GATE}
    assert found == {"100": "open", "120": "closed", "121": "closed"}
    _, data = run_json("status", root=root, env={"SM_PATCH_SM": "sm_121a"})
    assert data["target"]["sms"] == ["121"]


def test_a_gpu_that_is_no_target_is_left_alone(root: Path) -> None:
    before = snapshot(root)
    result = run("apply", "--sm", "90", root=root)
    assert result.exit_code == 0
    assert "nothing was changed" in result.stderr
    assert snapshot(root) == before


OLD = flashinfer("0.6.1", [9, 10])


def test_without_the_kernel_it_is_refused_with_file_line_and_remedy(tmp_path: Path) -> None:
    root = install(tmp_path / "site", files=OLD)
    for stale in root.glob("flashinfer_python-0.7.2.dist-info/*"):
        stale.unlink()
    before = snapshot(root)
    assert states(root) == {**states(root), GATE: "refused", AUTO: "refused"}
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 3
    for part in ("refused", "flashinfer/jit/comm.py:5", "flashinfer-python>=0.6.17", "pull/3903"):
        assert part in result.stderr
    default = run("apply", root=root)
    assert default.exit_code == 0
    assert "nothing was changed" in default.stderr
    assert snapshot(root) == before

    forced = run("apply", "--force", GATE, root=root)
    assert forced.exit_code == 0
    assert "risk:" in forced.stderr
    assert states(root)[GATE] == "patched"
    assert run("revert", root=root).exit_code == 0
    assumed = run("apply", "--gate", GATE, "--assume", "flashinfer-python==0.7.2", root=root)
    assert assumed.exit_code == 0


def test_a_version_is_not_enough_where_the_source_refuses(tmp_path: Path) -> None:
    root = install(tmp_path / "site", files=flashinfer("0.7.2", [9, 10]))
    assert states(root)[GATE] == "refused"
    assert "flashinfer/jit/comm.py:5" in run("apply", "--gate", GATE, root=root).stderr


def test_no_flashinfer_at_all_is_refused(tmp_path: Path) -> None:
    root = install(tmp_path / "site")
    for path in [*root.glob("flashinfer*/**/*"), *root.glob("flashinfer*/*")]:
        if path.is_file():
            path.unlink()
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 3
    assert "is not installed" in result.stderr


def test_forcing_what_is_open_already_claims_nothing(tmp_path: Path) -> None:
    root = install(tmp_path / "site", files={**SERIAL.after, **OLD})
    for stale in root.glob("flashinfer_python-0.7.2.dist-info/*"):
        stale.unlink()
    before = snapshot(root)
    result = run("apply", "--force", GATE, root=root)
    assert result.exit_code == 0
    assert "opened" not in result.stderr
    assert "nothing was changed" in result.stderr
    assert snapshot(root) == before


def test_upstream_too_open_is_shown_and_closed_on_request(tmp_path: Path) -> None:
    from patcher.catalogue import gates

    example = gates("sglang")[AUTO].examples[2]
    root = tmp_path / "site"
    install(root, version=example.version, files={**example.before, **OLD})
    for stale in root.glob("flashinfer_python-0.7.2.dist-info/*"):
        stale.unlink()
    assert states(root)[AUTO] == "too-open"
    status = run("status", root=root)
    assert f"--gate {AUTO}" in status.stderr
    result = run("apply", "--gate", AUTO, root=root)
    assert result.exit_code == 0
    assert "closed allreduce-fusion-auto" in result.stderr
    assert {p: (root / p).read_text() for p in example.after} == dict(example.after)
    assert states(root)[AUTO] == "patched"


def test_a_patched_gate_whose_requirement_is_gone_is_told(root: Path) -> None:
    run("apply", "--sm", "120", root=root)
    _, data = run_json("status", "--check", root=root)
    assert data["installations"][0]["unfounded"] == []
    for path, text in OLD.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    for stale in root.glob("flashinfer_python-0.7.2.dist-info/*"):
        stale.unlink()
    code, data = run_json("status", "--check", root=root)
    assert code == 1
    assert data["installations"][0]["unfounded"] == [GATE]
    assert GATE in data["installations"][0]["drifted"]
    assert f"revert --gate {GATE}" in run("status", root=root).stderr
    assert run("revert", root=root).exit_code == 0


def test_a_gpu_that_is_no_target_is_never_shown_as_patched(root: Path) -> None:
    run("apply", "--sm", "120", root=root)
    _, data = run_json("status", "--sm", "100", root=root)
    assert {g["gate"]: g["state"] for g in data["installations"][0]["gates"]}[GATE] == "open"


@pytest.mark.parametrize("words", [["revert", "--gate", ""], ["apply", "--gate", " , "], ["status", "--sm", ""]])
def test_given_but_empty_never_means_all(root: Path, words: list[str]) -> None:
    run("apply", root=root)
    before = snapshot(root)
    assert run(*words, root=root).exit_code == 2
    assert snapshot(root) == before


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_line_endings_other_than_the_usual_are_kept(root: Path, newline: str) -> None:
    for path in SERIAL.after:
        (root / path).write_bytes((root / path).read_bytes().replace(b"\n", newline.encode()))
    before = snapshot(root)
    assert run("apply", "--gate", GATE, root=root).exit_code == 0
    for path, text in SERIAL.after.items():
        assert (root / path).read_bytes() == text.replace("\n", newline).encode()
    assert run("revert", root=root).exit_code == 0
    assert {p: data for p, (data, _, _) in snapshot(root).items()} == {p: data for p, (data, _, _) in before.items()}


def test_a_file_of_a_requirement_that_cannot_be_read_hides_nothing(root: Path) -> None:
    (root / "flashinfer/jit/comm.py").write_text("def broken(:\n")
    assert states(root)[GATE] == "refused"
    assert "flashinfer/jit/comm.py:1" in run("apply", "--gate", GATE, root=root).stderr


def test_another_sm_patch_gives_its_own_answers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = time.time() - 100
    for path in root.rglob("*"):
        os.utime(path, (old, old))
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)
    assert states(root)[GATE] == "closed"
    monkeypatch.setattr("patcher.plan.Inspector.report", None)
    assert states(root)[GATE] == "closed"  # kept
    monkeypatch.setattr("patcher.__version__", "0.0.0")
    assert run("status", root=root).exit_code == 70  # asked anew


def _missing(*_: object) -> None:
    raise KeyError("missing")


def test_a_defect_is_one_clear_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patcher.plan.Inspector.report", _missing)
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 70
    assert "error[defect]: sm-patch failed: KeyError" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_root_beside_the_right_one_is_told(root: Path, tmp_path: Path) -> None:
    result = run("status", root=root / "sglang")
    assert result.exit_code == 3
    assert f"did you mean {root}?" in result.stderr
    install(tmp_path / "checkout" / "python")
    assert f"did you mean {tmp_path / 'checkout' / 'python'}?" in run("status", root=tmp_path / "checkout").stderr


def test_edits_after_apply_are_never_overwritten(root: Path) -> None:
    run("apply", root=root)
    mine = (root / FUSION).read_bytes() + b"# mine\n"
    (root / FUSION).write_bytes(mine)
    assert states(root)[GATE] == "modified"
    for words in (["revert"], ["apply", "--gate", GATE]):
        result = run(*words, root=root)
        assert result.exit_code == 4, result.stderr
        assert FUSION in result.stderr
        assert (root / FUSION).read_bytes() == mine
    assert "+# mine" in run("diff", root=root).stdout


def test_a_new_version_over_it_is_lost_and_never_gets_old_bytes(root: Path) -> None:
    run("apply", root=root)
    for old in root.glob("sglang-*.dist-info/*"):
        old.unlink()
    newer = {p: text + "\n# newer\n" for p, text in SERIAL.before.items() if p in SERIAL.after}
    install(root, version="0.5.24", files=newer)
    assert states(root)[GATE] == "lost"
    assert run("status", "--check", root=root).exit_code == 1
    result = run("revert", root=root)
    assert result.exit_code == 0
    assert "not written" in result.stderr
    assert {p: (root / p).read_text() for p in newer} == newer
    assert run("apply", root=root).exit_code == 0
    assert states(root)[GATE] == "patched"
    assert run("revert", root=root).exit_code == 0
    assert {p: (root / p).read_text() for p in newer} == newer


def test_a_site_that_is_not_found_leaves_everything_as_it_is(root: Path) -> None:
    (root / FUSION).write_text((root / FUSION).read_text().replace("_resolve_backend", "_resolve"))
    before = snapshot(root)
    assert states(root)[GATE] == "unrecognised"
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 3
    assert "_resolve_backend does not exist" in result.stderr
    assert snapshot(root) == before


def test_a_file_that_does_not_parse_is_one_clear_error(root: Path) -> None:
    (root / FUSION).write_text("def broken(:\n")
    before = snapshot(root)
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 3
    assert "does not parse" in result.stderr
    assert f"{FUSION}:1" in result.stderr
    assert "Traceback" not in result.stderr
    assert snapshot(root) == before
    assert run("apply", "--gate", AUTO, root=root).exit_code == 0


def test_a_file_in_the_way_of_the_default_set_is_an_error_of_its_own(root: Path) -> None:
    (root / FUSION).write_text("def broken(:\n")
    before = snapshot(root)
    result = run("apply", root=root)
    assert result.exit_code == 3
    assert result.stderr.count(f"{FUSION}:1") >= 1
    assert "error[unparsable]" in result.stderr
    assert snapshot(root) == before


def test_one_gate_that_cannot_be_planned_does_not_hold_up_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from patcher.gate import Level

    monkeypatch.setattr(gates("sglang")[AUTO], "opt_in", "")
    mixed = (root / FUSION).read_bytes().replace(b"of all ranks\n", b"of all ranks\r\n")
    (root / FUSION).write_bytes(mixed)
    assert gates("sglang")[AUTO].level is Level.REPORTED
    result = run("apply", root=root)
    assert result.exit_code == 3
    assert "opened allreduce-fusion-auto" in result.stderr
    assert "error[unrecognised]: allreduce-fusion: the lines to edit end in different ways" in result.stderr
    assert (root / FUSION).read_bytes() == mixed
    assert states(root)[AUTO] == "patched"


def test_an_unreadable_file_is_an_io_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: str) -> FileIO:
        if path.endswith(FUSION):
            raise PermissionError(13, "Permission denied")
        return FileIO(path)

    monkeypatch.setattr("patcher.source.FileIO", opened)
    result = run("apply", "--gate", GATE, root=root)
    assert result.exit_code == 6
    assert FUSION in result.stderr
    assert "Permission denied" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["apply", "--gate", "allreduce"], 2, "allreduce-fusion"),
        (["explain", "nothing"], 2, "nothing"),
        (["status", "--sm", "13"], 2, "unknown-sm"),
        (["status", "--engine", "tgi"], 2, "sglang"),
        (["status", "--assume", "flash infer"], 2, "NAME==VERSION"),
        (["apply", "--assume", "flashinfer-python>=1"], 2, "pin"),
        (["apply", "--assume", "flashinfer==0.7.2"], 2, "did you mean flashinfer-python?"),
        (["status", "--assume", "flashinferpython==0.7.2"], 2, "did you mean flashinfer-python?"),
        (["explain", "allreduce-fusion", "--assume", "torhc==2.9"], 2, "did you mean torch?"),
        (["doctor", "--assume", "numpy==2"], 2, "flashinfer-python, sgl-deep-gemm"),
        (["status", "--format", "yaml"], 2, "yaml"),
        (["frobnicate"], 2, "frobnicate"),
    ],
)
def test_wrong_words_are_usage_errors(root: Path, words: list[str], code: int, said: str) -> None:
    before = snapshot(root)
    result = run(*words, root=None if words == ["frobnicate"] else root)
    assert result.exit_code == code
    assert said in result.stderr
    assert snapshot(root) == before


def test_no_engine_names_what_was_searched(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = run("status", root=empty)
    assert result.exit_code == 3
    assert str(empty) in result.stderr
    assert run("status", root=tmp_path / "nowhere").exit_code == 3
    code, data = run_json("status", root=empty)
    assert (code, data["error"]["id"]) == (3, "no-engine")


def test_another_interpreter_is_asked_and_named(tmp_path: Path) -> None:
    root = install(tmp_path / "site")
    environment = {"PYTHONPATH": str(root)}
    result = run("status", "--python", sys.executable, env=environment)
    assert result.exit_code == 0
    assert str(root) in result.stderr
    none = run("status", "--python", sys.executable)
    assert none.exit_code == 3
    assert sys.executable in none.stderr
    assert run("status", "--python", str(tmp_path / "no-python")).exit_code == 3


def test_a_venv_is_found_with_and_without_its_interpreter(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    site = venv / "lib" / "python3.11" / "site-packages"
    install(site)
    result = run("apply", "--venv", str(venv))
    assert result.exit_code == 0
    assert (venv / "share" / "sm-patch").is_dir()
    assert states(site)[GATE] == "patched"
    assert run("revert", "--venv", str(venv)).exit_code == 0
    assert run("status", "--venv", str(tmp_path)).exit_code == 3


def test_places_exclude_each_other_but_a_flag_beats_the_environment(root: Path, tmp_path: Path) -> None:
    assert run("status", "--venv", str(tmp_path), root=root).exit_code == 2
    assert run("status", root=root, env={"SM_PATCH_VENV": str(tmp_path / "nowhere")}).exit_code == 0


def test_a_package_of_another_distribution_counts(tmp_path: Path) -> None:
    root = install(tmp_path / "site")
    for file in root.glob("sglang-0.5.23.dist-info/*"):
        text = file.read_text().replace("Name: sglang", "Name: sglang-fork")
        (root / "sglang_fork-0.5.23.dist-info").mkdir(exist_ok=True)
        (root / "sglang_fork-0.5.23.dist-info" / file.name).write_text(text)
        file.unlink()
    (root / "sglang-0.5.23.dist-info").rmdir()
    _, data = run_json("status", root=root)
    assert data["installations"][0]["installation"]["distribution"] == "sglang-fork"
    assert data["installations"][0]["installation"]["version"] == "0.5.23"


def test_a_tree_without_metadata_is_recognised_by_its_source(tmp_path: Path) -> None:
    root = install(tmp_path / "python")
    for file in root.glob("sglang-0.5.23.dist-info/*"):
        file.unlink()
    _, data = run_json("status", root=root)
    here = data["installations"][0]
    assert here["installation"]["version"] is None
    assert here["installation"]["how"] == "source tree"
    assert not here["installation"]["verified"]
    assert {g["gate"]: g["state"] for g in here["gates"]}[GATE] == "closed"


def test_explain_shows_code_truth_requirements_evidence_and_use(root: Path) -> None:
    result = run("explain", GATE, root=root)
    assert result.exit_code == 0
    for part in (
        "> ",
        "if not (get_platform().is_sm90 or get_platform().is_sm100):",
        "SM120        never    -> depends",
        "SM90         never    -> never",
        "supported_major_versions=[9, 10, 12]",
        "flashinfer/jit/comm.py:5",
        "pull/32330",
        "+5.2 %",
        "--flashinfer-allreduce-fusion-backend trtllm",
        "bench_serving",
    ):
        assert part in result.stdout
    _, data = run_json("explain", GATE, root=root)
    assert data["truth"]["SM121"] == {"before": "never", "after": "depends"}


@pytest.mark.parametrize(
    ("words", "sms"), [((), ["120", "121"]), (("--sm", "121"), ["121"]), (("--sm", "90,120"), ["90", "120"])]
)
def test_explain_shows_every_target_that_matters(root: Path, words: tuple[str, ...], sms: list[str]) -> None:
    _, data = run_json("explain", GATE, *words, root=root)
    assert list(data["by_sm"]) == sms and data["sm"] == sms[0]
    shown = run("explain", GATE, *words, root=root).stdout
    states = {data["by_sm"][sm]["state"] for sm in sms}
    assert shown.count("state for SM") == len(states)
    for sm in sms:
        assert any(sm in line and data["by_sm"][sm]["state"] in line for line in shown.splitlines() if "state" in line)


def test_a_diff_is_in_the_json_when_asked_for(root: Path) -> None:
    _, plain = run_json("apply", "--dry-run", root=root)
    assert "diff" not in plain["outcomes"][0]
    code, planned = run_json("apply", "--dry-run", "--diff", root=root)
    (outcome,) = planned["outcomes"]
    assert code == 1 and [part["path"] for part in outcome["diff"]] == outcome["changed"] != []
    assert any("+    if get_platform().is_sm120:" in part["diff"] for part in outcome["diff"])
    code, done = run_json("apply", "--diff", root=root)
    assert code == 0 and done["outcomes"][0]["diff"] == outcome["diff"]


def test_json_has_no_prose_and_output_no_colour(root: Path) -> None:
    result = run("apply", "--format", "json", root=root)
    assert result.stderr == ""
    assert "\x1b" not in run("status", root=root, env={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in run("status", root=root).stdout


def test_the_engine_is_never_imported(tmp_path: Path) -> None:
    root = install(tmp_path / "site", files={"sglang/__init__.py": "raise SystemExit('imported')\n"})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(Path(__file__).parent.parent)])}
    for words in (["status"], ["apply"], ["diff"], ["explain", GATE], ["revert"]):
        done = subprocess.run(
            [sys.executable, "-m", "patcher", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert str(root) in done.stderr or words[0] != "status"


def test_help_loads_no_command_and_version_is_told() -> None:
    assert run("--version").exit_code == 0
    text = run("--help").stdout
    for word in ("status", "apply", "revert", "diff", "explain", "demo", "Exit codes"):
        assert word in text


def test_beside_the_targets_a_gate_in_pieces_is_not_drift(root: Path) -> None:
    """Upstream lets some GPUs through at some sites only: nothing that anybody did, and nothing to do."""
    text = (root / ADD_NORM).read_text()
    (root / ADD_NORM).write_text(text.replace("_is_sm90_supported or _is_sm100_supported", "_is_sm100_supported"))
    _, data = run_json("status", "--sm", "90", root=root)
    (shown,) = (g for g in data["installations"][0]["gates"] if g["gate"] == GATE)
    assert shown["state"] == "partial"
    assert GATE not in data["installations"][0]["drifted"]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">/dev/full", ">&- 2>&-"])
@pytest.mark.parametrize(
    "words", ["status --sm 120", "scan", "explain allreduce-fusion", "apply --gate allreduce-fusion"]
)
def test_who_does_not_listen_is_no_defect(root: Path, closed: str, words: str) -> None:
    command = f"{sys.executable} -m patcher {words} --root {root} --engine sglang"
    if words.startswith("explain"):
        command = command.replace(" --engine sglang", "")
    ended = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True, check=False)
    assert ended.returncode in ((0, 6) if closed == ">/dev/full" else (0,)), ended
    assert "Traceback" not in ended.stderr
    assert "defect" not in ended.stderr


def test_json_that_cannot_be_written_is_told_on_stderr(root: Path) -> None:
    command = f"{sys.executable} -m patcher status --format json --root {root} >/dev/full"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, "No space left on device" in ended.stderr) == (6, True)


def test_an_unreadable_file_does_not_hide_the_other_gates(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(path: str) -> FileIO:
        if path.endswith(FUSION):
            raise PermissionError(13, "Permission denied")
        return FileIO(path)

    monkeypatch.setattr("patcher.source.FileIO", opened)
    shown = states(root)
    assert shown[GATE] == "unrecognised"
    assert len(set(shown.values())) > 1
