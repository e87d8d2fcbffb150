"""Every way an engine can be installed, recognised from files alone; and errors that name the way out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from patcher import discovery
from patcher.catalogue import engines
from patcher.discovery import Discovery, Sighted
from patcher.environment import state_folder
from tests.engines import FILES
from tests.installation import metadata, run

PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own: home, working folder, no other place, no running engine."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    for name in (
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "UV_PROJECT_ENVIRONMENT",
        "PYTHONPATH",
        "SM_PATCH_ROOT",
        "SM_PATCH_VENV",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(discovery, "_USUAL", ())
    monkeypatch.setattr(discovery, "processes", lambda words: iter(()))
    monkeypatch.setattr(discovery, "system_sites", list)
    monkeypatch.setattr(discovery, "_named_bases", list)
    return home


def write(root: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def venv(folder: Path, files: Mapping[str, str]) -> Path:
    """A virtual environment as files; its interpreter would tell if it were run."""
    site = write(folder / "lib" / PYTHON / "site-packages", files)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    (folder / "bin").mkdir()
    interpreter = folder / "bin" / "python"
    interpreter.write_text(f"#!/bin/sh\ntouch {folder}/was-run\n")
    interpreter.chmod(0o755)
    return site


def search(**options: float) -> list[Sighted]:
    return Discovery(list(engines().values()), **options).search()


def test_a_wheel_in_a_venv(home: Path) -> None:
    site = venv(home / "work" / "serve", {**FILES, **metadata("sglang", "0.5.8.post1")})
    (found,) = search()
    assert (found.how, found.version, found.root, found.remarks) == ("wheel", "0.5.8.post1", site, [])
    assert found.command("status") == f"sm-patch status --venv {home}/work/serve"
    assert found.site.python == "3.11.7"
    assert not (home / "work/serve/was-run").exists()


def test_an_editable_checkout_by_finder(home: Path) -> None:
    checkout = write(home / "src" / "python", {**FILES, "pyproject.toml": ""})
    info = metadata("sglang", "0.5.23")
    info["sglang-0.5.23.dist-info/RECORD"] = "__editable___sglang_finder.py,,\n"
    url = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    info["sglang-0.5.23.dist-info/direct_url.json"] = json.dumps(url)
    finder = f"MAPPING: dict[str, str] = {{'sglang': {str(checkout / 'sglang')!r}}}\nraise SystemExit('was run')\n"
    venv(
        home / "env",
        {**info, "__editable___sglang_finder.py": finder, "__editable__.pth": "import __editable___sglang_finder"},
    )
    (found,) = search()
    assert (found.how, found.root, found.version) == ("editable (PEP 660 finder)", checkout, "0.5.23")
    assert found.command("status") == f"sm-patch status --venv {home}/env"


def test_an_editable_checkout_by_pth(home: Path) -> None:
    checkout = write(home / "src" / "python", FILES)
    venv(
        home / "env",
        {**metadata("sglang", "0.5.23"), "sglang.pth": f"# comment\n{checkout}\n", "other.pth": "import os\n"},
    )
    (found,) = search()
    assert (found.how, found.root, found.site.kind) == ("editable (.pth)", checkout, "venv")


def test_a_checkout_nobody_imports_and_a_target_copy(home: Path) -> None:
    write(home / "git" / "sglang" / "python", {**FILES, "pyproject.toml": ""})
    write(home / "copy", {**FILES, **metadata("sglang", "0.5.4")})
    found = {s.how: s for s in search()}
    assert set(found) == {"source checkout", "--target copy"}
    assert found["source checkout"].version == "0.5.23"
    assert found["--target copy"].command("apply --dry-run") == f"sm-patch apply --dry-run --root {home}/copy"


def test_leftovers(home: Path) -> None:
    write(home / "old", {"sglang/lang/__pycache__/x.cpython-311.pyc": ""})
    write(home / "shell", {"sglang/__init__.py": "", "sglang/version.py": ""})
    gone = metadata("sglang", "0.5.1")
    gone["sglang-0.5.1.dist-info/direct_url.json"] = json.dumps({"url": "file:///x", "dir_info": {"editable": True}})
    venv(home / "env", gone)
    found = {str(s.root.relative_to(home)).split("/")[0]: s for s in search()}
    assert set(found) == {"old", "shell", "env"}
    assert all(not s.usable for s in found.values())
    assert (
        "No module named sglang.srt" in found["old"].remarks[0]
        and "No module named sglang.srt" in found["shell"].remarks[0]
    )
    assert "its editable source folder is gone" in found["env"].remarks[0]


def test_another_folder_of_that_name_is_no_engine(home: Path) -> None:
    write(home / "notes", {"sglang/readme.txt": "benchmarks"})
    assert search() == []


def test_two_distributions_of_one_package_and_a_repackaged_one(home: Path) -> None:
    other = metadata("sglang", "0.5.23")
    renamed = {
        path.replace("sglang-", "acme_sglang-"): text.replace("Name: sglang", "Name: acme-sglang")
        for path, text in other.items()
    }
    venv(home / "both", {**FILES, **other, **renamed})
    venv(home / "one", {**FILES, **renamed})
    found = {s.site.home.name: s for s in search()}
    assert "two distributions provide sglang: acme-sglang 0.5.23, sglang 0.5.23" in found["both"].remarks[0]
    assert found["one"].remarks == ["provided by the distribution acme-sglang"]


def test_a_copy_on_pythonpath_shadows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = write(home / "own" / "site-packages", {**FILES, **metadata("sglang", "0.5.23")})
    copy = write(home / "copy", FILES)
    monkeypatch.setattr(sys, "path", [str(copy), str(own)])
    monkeypatch.setenv("PYTHONPATH", str(copy))
    found = {s.root: s for s in search()}
    assert f"shadows the installation in {own}" in found[copy].remarks[0]
    assert f"shadowed by {copy}" in found[own].remarks[0]


def test_dist_packages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = write(home / "usr" / "lib" / "python3" / "dist-packages", {**FILES, **metadata("sglang", "0.5.23")})
    place = discovery.Site(site, "system python", site, Path(sys.executable), "3", "system folders")
    monkeypatch.setattr(discovery, "system_sites", lambda: [place])
    (found,) = search()
    assert found.how == "dist-packages"
    assert found.command("status") == f"sm-patch status --python {sys.executable}"


@pytest.mark.parametrize(("folder", "python"), [("python3", "3"), ("python3.13", "3.13")])
def test_the_folders_of_system_pythons(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, python: str
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    usr = tmp_path / "usr"
    monkeypatch.setattr(discovery, "_PREFIXES", (usr, usr / "local"))
    (usr / "bin").mkdir(parents=True)
    (usr / "bin" / f"python{python}").touch()
    site = write(usr / "local/lib" / folder / "dist-packages", {"x.py": ""})
    (found,) = discovery.system_sites()
    assert (found.folder, found.python, found.interpreter) == (site, python, usr / "bin" / f"python{python}")


def test_the_active_environment_and_conda(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv(tmp_path / "elsewhere", {**FILES, **metadata("sglang", "0.5.23")})
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "elsewhere"))
    conda = tmp_path / "conda" / "envs" / "llm"
    write(conda / "lib" / PYTHON / "site-packages", {**FILES, **metadata("sglang", "0.5.20")})
    (conda / "conda-meta").mkdir()
    write(home, {".conda/environments.txt": f"{conda}\n"})
    found = search()
    assert [(s.version, s.site.kind) for s in found] == [("0.5.23", "venv"), ("0.5.20", "conda environment")]


def test_the_interpreters_of_running_engines(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv(tmp_path / "served", {**FILES, **metadata("sglang", "0.5.23")})
    python = tmp_path / "served" / "bin" / "python"
    monkeypatch.setattr(discovery, "processes", lambda words: iter([(7, python, "python -m sglang.launch_server", {})]))
    (found,) = search()
    assert found.site.because == "runs as process 7"


def test_this_process_is_read_from_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc here")
    monkeypatch.undo()
    code = "import time; print('up', flush=True); time.sleep(30)"
    child = subprocess.Popen([sys.executable, "-c", code, "sglang.launch_server"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert (child.pid, Path(sys.executable)) in [
            (pid, python) for pid, python, _, _ in discovery.processes(["sglang."])
        ]
    finally:
        child.kill()
        child.communicate()


def test_data_folders_are_not_walked_and_time_is_bounded(home: Path) -> None:
    write(home / "models" / "x", FILES)
    write(home / "a" / "b" / "c" / "d" / "e", FILES)
    for number in range(discovery._ENTRIES_LIMIT + 1):
        (home / "crowd" / str(number)).mkdir(parents=True)
    write(home / "crowd" / "zz", FILES)
    assert search() == []
    late = Discovery(list(engines().values()), seconds=0.0)
    late.search()
    assert late.incomplete


def test_the_patched_gates_are_told(home: Path) -> None:
    site = venv(home / "env", {**FILES, **metadata("sglang", "0.5.23")})
    state = state_folder(site, "sglang", "sglang")
    state.mkdir(parents=True)
    (state / "manifest.json").write_text(json.dumps({"gates": {"allreduce-fusion": {}}}))
    (found,) = search()
    assert found.patched == ("allreduce-fusion",)


# -- the commands ----------------------------------------------------------------------------------------------------


def test_envs_lists_them(home: Path) -> None:
    venv(home / "env", {**FILES, **metadata("sglang", "0.5.23")})
    shown = run("envs")
    assert shown.exit_code == 0
    assert f"use      sm-patch status --venv {home}/env" in shown.stdout and "this interpreter:" in shown.stderr
    (data,) = json.loads(run("envs", "--format", "json", "--below", str(home)).stdout)["installations"]
    assert (data["version"], data["how"], data["command"]) == ("0.5.23", "wheel", f"sm-patch status --venv {home}/env")


def test_no_engine_names_the_command_that_works(home: Path, tmp_path: Path) -> None:
    venv(home / "env", {**FILES, **metadata("sglang", "0.5.23")})
    empty = tmp_path / "empty"
    empty.mkdir()
    told = run("apply", "--gate", "allreduce-fusion", "--dry-run", "--sm", "120", root=empty, every_engine=True)
    assert told.exit_code == 3
    assert f"sm-patch apply --gate allreduce-fusion --dry-run --sm 120 --venv {home}/env" in told.stderr
    asked = run("where", "from sglang.srt.utils import is_sm120_supported", root=empty, every_engine=True)
    assert f"sm-patch where 'from sglang.srt.utils import is_sm120_supported' --venv {home}/env" in asked.stderr


def test_a_leftover_is_named_in_the_error(home: Path) -> None:
    write(home / "old", {"sglang/lang/__pycache__/x.pyc": ""})
    told = run("status", root=home / "old")
    assert told.exit_code == 3 and "leftover" in told.stderr and "none was found elsewhere either" in told.stderr
