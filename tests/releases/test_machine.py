"""One machine with every kind of installation on it, made by pip for real, and what the commands tell of it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patcher import wheels
from scripts import releases
from tests.engines import FILES

pytestmark = pytest.mark.releases

RELEASE = "0.5.8.post1"


def pip(python: Path, *words: str | Path) -> None:
    command = [*wheels._pip(), "--python", str(python), "--disable-pip-version-check", "-q", "install", "--no-deps"]
    subprocess.run([*command, *words], check=True, capture_output=True)


def venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


def project(folder: Path, version: str, source: str = "") -> Path:
    """A project of the engine's name: flat (setuptools installs a finder), or in ``source`` (a .pth)."""
    for path, text in FILES.items():
        (folder / source / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / source / path).write_text(text)
    where = f'where = ["{source}"]' if source else 'include = ["sglang*"]'
    build = '[build-system]\nrequires = ["setuptools>=64"]\nbuild-backend = "setuptools.build_meta"\n'
    facts = f'[project]\nname = "sglang"\nversion = "{version}"\n[tool.setuptools.packages.find]\n{where}\n'
    (folder / "pyproject.toml").write_text(build + facts)
    return folder


class Machine:
    """A home folder with installations in it; commands run from a python that has none."""

    def __init__(self, home: Path) -> None:
        self.home = home
        wheel = wheels.download("sglang", RELEASE, sha256=releases.pins()["sglang"][RELEASE])
        pip(venv(home / "envs/serve"), "--no-index", "--no-compile", wheel)
        pip(venv(home / "envs/build"), "setuptools>=70.1")
        (tools,) = (home / "envs/build").glob("lib/python*/site-packages")
        for name, source, version, mode in EDITABLE:
            python = venv(home / "envs" / name)
            (site,) = (home / "envs" / name).glob("lib/python*/site-packages")
            (site / "tools.pth").write_text(f"{tools}\n")
            build = ["--no-build-isolation", f"--config-settings=editable_mode={mode}"]
            pip(python, *build, "-e", project(home / "git" / name, version, source))
        pip(venv(home / "envs/other"), "--no-index", "--no-compile", "--target", home / "copy", wheel)
        (home / "old/sglang/lang/__pycache__").mkdir(parents=True)
        (home / "old/sglang/lang/__pycache__/api.cpython-311.pyc").touch()
        (home / "half/sglang").mkdir(parents=True)
        (home / "half/sglang/__init__.py").touch()

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        left_out = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "SM_PATCH_ROOT", "SM_PATCH_VENV", "SM_PATCH_PYTHON")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment |= {"HOME": str(self.home), "COLUMNS": "200", "SM_PATCH_CACHE": str(self.home / ".cache"), **more}
        command = [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-m", "patcher", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.home, env=environment)

    def installations(self, **more: str) -> dict[str, dict[str, Any]]:
        """What ``envs`` finds of it, by root below the home folder."""
        answer = json.loads(
            self.run("envs", "--engine", "sglang", "--seconds", "60", "--format", "json", **more).stdout
        )
        assert answer["complete"]
        found = [i for i in answer["installations"] if Path(i["root"]).is_relative_to(self.home)]
        by_root = {str(Path(i["root"]).relative_to(self.home)): i for i in found}
        assert len(by_root) == len(found)
        return by_root


EDITABLE = (
    ("finder", "", "0.5.14", "lenient"),
    ("pth", "src", "0.5.15", "lenient"),
    ("strict", "", "0.5.16", "strict"),
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


SITE = f"envs/serve/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
STRICT = "git/strict/build/__editable__.sglang-0.5.16-py3-none-any"


def test_all_of_them_are_shown_truly(machine: Machine) -> None:
    found = machine.installations()
    home = machine.home
    told = {root: (i["how"], i["version"], i["kind"], i["command"]) for root, i in found.items()}
    assert told == {
        SITE: ("wheel", RELEASE, "venv", f"sm-patch status --venv {home}/envs/serve"),
        "git/finder": ("editable (PEP 660 finder)", "0.5.14", "venv", f"sm-patch status --venv {home}/envs/finder"),
        "git/pth/src": ("editable (.pth)", "0.5.15", "venv", f"sm-patch status --venv {home}/envs/pth"),
        STRICT: ("editable (.pth)", "0.5.16", "venv", f"sm-patch status --venv {home}/envs/strict"),
        "git/strict": ("source checkout", "0.5.23", "folder", f"sm-patch status --root {home}/git/strict"),
        "copy": ("--target copy", RELEASE, "folder", f"sm-patch status --root {home}/copy"),
        "old": ("leftover", None, "folder", None),
        "half": ("leftover", None, "folder", None),
    }
    for leftover in ("old", "half"):
        assert "No module named sglang.srt" in found[leftover]["remarks"][0]
    for name in ("finder", "pth", "strict"):
        (entry,) = [i for i in found.values() if i["environment"] == f"{home}/envs/{name}"]
        # What Python itself imports there is what is told.
        python = f"{home}/envs/{name}/bin/python"
        code = "import importlib.util as u; print(u.find_spec('sglang').submodule_search_locations[0])"
        imported = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        assert Path(imported).parent == Path(entry["root"]) and entry["interpreter"] == python


@pytest.mark.parametrize("name", ["finder", "pth", "strict", "serve"])
def test_every_command_works_on_what_envs_names(machine: Machine, name: str) -> None:
    (entry,) = [i for i in machine.installations().values() if i["environment"] == f"{machine.home}/envs/{name}"]
    words = shlex.split(entry["command"])
    assert words[0] == "sm-patch"
    status = json.loads(machine.run(*words[1:], "--engine", "sglang", "--format", "json").stdout)
    (shown,) = status["installations"]
    assert (shown["installation"]["root"], shown["installation"]["version"]) == (entry["root"], entry["version"])
    assert shown["installation"]["verified"] is (name == "serve")


def test_the_wrong_python_gets_the_command_to_use(machine: Machine) -> None:
    """The first story: the right answer is one command away, and it is printed."""
    wrong = machine.run("where", "is_sm120_supported")
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert wrong.stderr.startswith("error[no-engine]: no flashinfer or sglang or vllm in the running interpreter")
    command = f"sm-patch where is_sm120_supported --venv {machine.home}/envs/serve"
    assert f"  {command}    # sglang {RELEASE}, wheel, " in wrong.stderr
    # Environments come before mere folders.
    kinds = [line.split()[3] for line in wrong.stderr.splitlines() if line.startswith("  sm-patch where")]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"--venv", "--root"}
    right = machine.run(*shlex.split(command)[1:], "--engine", "sglang")
    assert right.returncode == 0
    assert "defined  sglang/srt/utils/common.py:" in right.stdout
    assert "import   from sglang.srt.utils.common import is_sm120_supported" in right.stdout


@pytest.mark.parametrize("words", [("--root", "old"), ("--root", "half")])
def test_a_leftover_is_called_one_and_the_others_are_named(machine: Machine, words: tuple[str, str]) -> None:
    result = machine.run("where", "is_sm120_supported", *words, "--engine", "sglang")
    assert result.returncode == 3 and "No module named sglang.srt" in result.stderr
    assert f"sm-patch where is_sm120_supported --engine sglang --venv {machine.home}/envs/serve" in result.stderr


@pytest.mark.parametrize(
    "asked",
    [
        "sglang.srt.utils.utils.is_sm120_supported",
        "from sglang.srt.utils.utils import is_sm120_supported",
        "sglang.srt.utils.utils:is_sm120_supported",
    ],
)
def test_a_guessed_module_gets_the_right_one(machine: Machine, asked: str) -> None:
    """The second story."""
    result = machine.run("where", asked, "--venv", "envs/serve", "--engine", "sglang")
    assert result.returncode == 0
    first = result.stdout.splitlines()[0]
    right = "from sglang.srt.utils.common import is_sm120_supported"
    assert first == f"note: there is no module sglang.srt.utils.utils here; right is: {right}"


def test_an_assignment_is_found_as_one(machine: Machine) -> None:
    """The third story: there is no ``def`` to search for."""
    result = machine.run("where", "is_sm120_supported", "--venv", "envs/serve", "--engine", "sglang")
    assert "  (assign)" in result.stdout and "admits   SM120, SM121" in result.stdout
    path, _, line = next(p for p in result.stdout.split() if p.startswith("sglang/srt/utils/common.py:")).partition(":")
    source = (machine.home / SITE / path).read_text().splitlines()
    assert source[int(line) - 1].startswith("is_sm120_supported = lru_cache(")
    assert not any(text.startswith("def is_sm120_supported") for text in source)


def test_a_copy_on_pythonpath_shadows_and_says_so(machine: Machine) -> None:
    copy = str(machine.home / "copy")
    found = machine.installations(PYTHONPATH=copy)
    assert found["copy"]["remarks"] == ["on PYTHONPATH: shadows what an interpreter has itself"]
    assert f"shadowed by {copy}, which comes first (PYTHONPATH)" in found[SITE]["remarks"]
    asked = ("status", "--python", f"{machine.home}/envs/serve/bin/python", "--engine", "sglang")
    shown = machine.run(*asked, PYTHONPATH=copy)
    assert f"in {copy}\n" in shown.stderr
    assert f"it comes before the one in {machine.home / SITE}, which is not used" in " ".join(shown.stderr.split())
    assert "not used" not in machine.run(*asked).stderr
