"""``verify``, ``gc``, ``revert`` and ``status`` as users call them, and the processes that they name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from patcher import running
from patcher.cli import main
from tests.store import engine
from tests.store.faults import killed, steps_of


def _run(site: Path, *words: str) -> Result:
    runner = CliRunner()
    result = runner.invoke(main, [*words, "--root", str(site)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def _json(site: Path, *words: str) -> tuple[int, dict[str, Any]]:
    result = _run(site, *words, "--format", "json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SM_PATCH_SM", "120")


def test_verify(site: Path) -> None:
    engine.apply(site)
    code, document = _json(site, "verify")
    (told,) = document["installations"]
    assert code == 0
    assert told["files"] == dict.fromkeys((engine.ADD_NORM, engine.COMM_FUSION), "ok")
    assert told["backups"] == told["files"]
    assert told["proofs"] == {engine.FUSION: "ok"}
    engine.put(site / engine.ADD_NORM, engine.files()[engine.ADD_NORM])
    code, document = _json(site, "verify")
    assert (code, document["installations"][0]["files"][engine.ADD_NORM]) == (1, "lost")
    engine.put(site / engine.ADD_NORM, b"# mine\n")
    assert _run(site, "verify").exit_code == 4
    (engine.store(site).state / "manifest.json").write_bytes(b"{")
    code, document = _json(site, "verify")
    assert code == 5
    assert document["installations"][0]["damage"]["id"] == "store-damaged"
    assert document["installations"][0]["files"][engine.ADD_NORM] == "modified"  # against the distribution's RECORD


def test_verify_of_an_untouched_installation(site: Path) -> None:
    result = _run(site, "verify")
    assert result.exit_code == 0
    assert "nothing is applied" in result.stderr
    assert not (site.parent / ".sm-patch").exists()


def test_gc(site: Path) -> None:
    engine.apply(site)
    engine.install(site)
    code, document = _json(site, "gc", "--dry-run")
    assert (code, document["dry_run"]) == (0, True)
    assert document["installations"][0]["forgotten"] == [engine.FUSION]
    assert _json(site, "gc")[1]["installations"][0]["backups"].keys() == document["installations"][0]["backups"].keys()
    assert _json(site, "gc")[1]["installations"][0]["backups"] == {}


def test_gc_of_an_untouched_installation_writes_nothing(site: Path) -> None:
    assert _run(site, "gc").exit_code == 0
    assert not (site.parent / ".sm-patch").exists()


def test_a_refused_apply_writes_nothing(site: Path) -> None:
    engine.put(site / engine.ADD_NORM, b"def broken(:\n")
    assert _run(site, "apply", "--gate", engine.FUSION, "--assume", "flashinfer-python==0.7.2").exit_code == 3
    assert not (site.parent / ".sm-patch").exists()


def test_revert_shows_the_edits_and_takes_the_choices(site: Path) -> None:
    engine.apply(site)
    engine.put(site / engine.ADD_NORM, (site / engine.ADD_NORM).read_bytes() + b"# mine\n")
    result = _run(site, "revert")
    assert result.exit_code == 4
    assert "+# mine" in result.stdout
    assert "--keep-mine" in result.stderr
    _, document = _json(site, "revert")
    assert "+# mine" in document["error"]["diff"][0]
    result = _run(site, "revert", "--theirs")
    assert result.exit_code == 0
    assert "your version" in result.stderr
    assert engine.tree(site) == engine.files()


def test_an_interrupted_change_in_status(site: Path) -> None:
    copy = site.parent / "count"
    engine.install(copy)
    log = steps_of(lambda: engine.apply(copy))
    first_file = [number for number, name in enumerate(log) if name == "rename"][-3]
    assert killed(lambda: engine.apply(site), first_file, "after")
    before = {path: path.read_bytes() for path in site.parent.rglob("*") if path.is_file()}
    code, document = _json(site, "status", "--check")
    assert code == 5
    assert document["installations"][0]["interrupted"] is True
    assert "interrupted" in _run(site, "status").stderr
    assert {p: p.read_bytes() for p in site.parent.rglob("*") if p.is_file() and "cache" not in p.parts} == before
    result = _run(site, "apply", "--gate", engine.FUSION, "--assume", "flashinfer-python==0.7.2")
    assert result.exit_code == 0
    assert "undone" in result.stderr
    assert _run(site, "status", "--assume", "flashinfer-python==0.7.2", "--check").exit_code == 0


def test_edits_on_top_of_an_interrupted_change_keep_the_original(site: Path) -> None:
    copy = site.parent / "count"
    engine.install(copy)
    log = steps_of(lambda: engine.apply(copy))
    first_file = [number for number, name in enumerate(log) if name == "rename"][-3]
    assert killed(lambda: engine.apply(site), first_file, "after")
    changed = next(p for p in (engine.ADD_NORM, engine.COMM_FUSION) if (site / p).read_bytes() != engine.files()[p])
    mine = (site / changed).read_bytes() + b"# mine\n"
    engine.put(site / changed, mine)
    assert _run(site, "gc").exit_code == 0
    assert (site / changed).read_bytes() == mine
    code, document = _json(site, "status", "--check")
    assert (code, document["installations"][0]["unclaimed"]) == (1, [changed])
    assert _run(site, "revert").exit_code == 4
    assert _run(site, "revert", "--theirs").exit_code == 0
    assert engine.tree(site) == engine.files()


# -- processes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(site: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like the engine's server, run from this installation, with a worker of another name."""
    pytest.importorskip("psutil")
    script = site / "sglang" / "launch_server.py"
    worker = "import time; time.sleep(60)"
    script.write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {worker!r}])\n")
    process = subprocess.Popen([sys.executable, str(script), "sglang.launch_server"], start_new_session=True)
    time.sleep(1)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_running_engines_are_named(site: Path, server: subprocess.Popen[bytes]) -> None:
    found = running.processes("sglang", site)
    assert found is not None
    assert server.pid in [process.pid for process in found]
    assert len(found) == 2  # with its worker
    code, document = _json(site, "apply", "--gate", engine.FUSION, "--assume", "flashinfer-python==0.7.2")
    assert code == 0
    assert server.pid in [process["pid"] for process in document["outcomes"][0]["running"]]
    result = _run(site, "status")
    assert f"process {server.pid} " in result.stderr
    assert "until it is restarted" in result.stderr


def test_engines_of_other_environments_or_started_later_are_not(site: Path, server: subprocess.Popen[bytes]) -> None:
    other = site.parent / "other" / "site"
    engine.install(other)
    assert running.processes("sglang", other) == []
    assert running.processes("sglang", site, before=time.time() - 3600) == []
    assert running.processes("vllm", site) == []


def test_without_psutil_it_is_not_claimed_that_nothing_runs(
    site: Path, server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert running.processes("sglang", site) is None
    engine.apply(site)
    assert "keep the old code" in _run(site, "status").stderr
