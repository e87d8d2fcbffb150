"""Third-party packs: off until named, really installed, and an error by name where one cannot be used."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patcher import catalogue
from patcher.errors import RecipeError, UnknownPack
from tests.installation import install, run, run_json, snapshot

EXAMPLE = Path(__file__).parent.parent / "docs" / "example-pack"
GATE = "house-fused-norm"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package installed in it by pip."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, f"--target={target}", str(EXAMPLE)], check=True, capture_output=True)
    return target


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts things back as they were: no pack opted in."""
    yield
    catalogue.opt_in(())


def _house(root: Path, installed: Path) -> Path:
    sys.path.insert(0, str(installed))
    try:
        from house_gates.fused_norm import HouseFusedNorm  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(installed))
    before = dict(HouseFusedNorm.examples[0].before)
    before.pop("sglang/srt/utils.py")
    return install(root, files=before)


def _command(installed: Path, *words: str, packs: str = "") -> tuple[int, dict[str, Any], str]:
    """Run sm-patch in a process of its own that sees the installed pack."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "SM_PATCH_PACKS": packs}
    command = [sys.executable, "-m", "patcher", *words, "--sm", "120", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def _states(data: dict[str, Any]) -> dict[str, str]:
    (sglang,) = (place for place in data["installations"] if place["installation"]["engine"] == "sglang")
    return {gate["gate"]: gate["state"] for gate in sglang["gates"]}


def test_an_installed_pack_is_off_until_named(installed: Path, tmp_path: Path) -> None:
    root = _house(tmp_path / "root", installed)
    place = ("--root", str(root))
    _, without, _ = _command(installed, "status", *place)
    _, by_flag, _ = _command(installed, "status", *place, "--pack", "house")
    _, by_variable, _ = _command(installed, "status", *place, packs="house")
    assert GATE not in _states(without)
    assert _states(by_flag)[GATE] == _states(by_variable)[GATE] == "closed"
    assert set(_states(by_flag)) == {*_states(without), GATE}


def test_a_gate_of_a_pack_is_applied_and_taken_back(installed: Path, tmp_path: Path) -> None:
    root = _house(tmp_path / "root", installed)
    before = {path: data for path, (data, _, _) in snapshot(root).items()}
    place = ("--root", str(root), "--pack", "house")
    code, applied, _ = _command(installed, "apply", "--gate", GATE, *place)
    assert code == 0
    assert applied["outcomes"][0]["changed"] == ["sglang/srt/layers/house_norm.py"]
    _, status, _ = _command(installed, "status", *place)
    assert _states(status)[GATE] == "patched"
    # Without the pack its gate is nobody's, and yet everything can be taken back.
    code, _, _ = _command(installed, "revert", "--root", str(root))
    assert code == 0
    assert {path: data for path, (data, _, _) in snapshot(root).items()} == before


def test_a_pack_that_is_not_installed_is_an_error_that_lists_those_that_are(tmp_path: Path, packs: None) -> None:
    root = install(tmp_path / "root")
    code, data = run_json("status", "--pack", "nowhere", root=root)
    assert code == 2
    assert data["error"]["id"] == "unknown-pack"
    assert "nowhere" in data["error"]["what"]
    with pytest.raises(UnknownPack):
        catalogue.pack_modules("nowhere")


def _pack(folder: Path, name: str, text: str) -> Path:
    """A pack as an installer leaves it: a module and its metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[sm_patch.gates]\n{name} = {name}_gates\n")
    (folder / f"{name}_gates.py").write_text(text)
    return folder


_RECIPE = """
from patcher.arch import SM120
from patcher.gate import Action, Gate, Level
class G(Gate):
    id, engine, family, title = {id!r}, {engine!r}, "f", "t"
    action, level, targets, sites = Action.OPEN, Level.REPORTED, frozenset({{SM120}}), ()
"""


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("breaks", "import no_such_module_anywhere\n", "no_such_module_anywhere"),
        ("raises", "raise ValueError('at import')\n", "at import"),
        ("syntax", "def (:\n", "SyntaxError"),
        ("silent", "from patcher.gate import Gate\nclass G(Gate):\n    id = 'x'\n", "does not say its engine"),
        ("elsewhere", _RECIPE.format(id="x", engine="nothing"), "no engine of sm-patch"),
        ("double", _RECIPE.format(id="allreduce-fusion", engine="sglang"), "two recipes are called allreduce-fusion"),
    ],
)
def test_a_pack_that_cannot_be_used_is_an_error_that_names_it(
    name: str, text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packs: None
) -> None:
    root = install(tmp_path / "root")
    monkeypatch.syspath_prepend(str(_pack(tmp_path / "packs", name, text)))
    off = run("status", "--sm", "120", root=root)
    assert off.exit_code == 0
    code, data = run_json("status", "--pack", name, root=root)
    assert code == 3
    assert data["error"]["id"] == "recipe"
    assert says in data["error"]["what"]
    assert name in data["error"]["what"] + data["error"]["where"]


def test_a_recipe_of_the_catalogue_that_does_not_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str) -> Any:
        if name.endswith("allreduce_fusion_auto"):
            raise ImportError("something it needs is gone")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    catalogue._gates.cache_clear()
    with pytest.raises(RecipeError) as caught:
        catalogue.gates("sglang")
    assert caught.value.where == "patches.sglang.allreduce_fusion_auto"
    monkeypatch.undo()
    catalogue._gates.cache_clear()
    assert catalogue.gates("sglang")
