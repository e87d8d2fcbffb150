"""After apply the interpreter runs the new code, after revert the old: whatever bytecode was cached, and where."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from importlib.util import cache_from_source
from itertools import pairwise
from pathlib import Path

import pytest

from tests.store import engine

_ASK = """
import sys, types
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_available=lambda: True, get_device_capability=lambda: (12, 0))
torch.version = types.SimpleNamespace(cuda="13")
sys.modules["torch"] = torch
from sglang.srt.layers.layer_boundary.residual import add_norm
print(add_norm.beside(2))
"""


def _runs(site: Path, *options: str, **environment: str) -> bool:
    """What the module's function answers in an interpreter of its own."""
    for folder in (site / "sglang/srt/layers/layer_boundary/residual").relative_to(site).parents:
        if folder.parts:
            (site / folder / "__init__.py").touch()
    (site / "sglang/srt/layers/layer_boundary/residual/__init__.py").touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    asked = subprocess.run(
        [sys.executable, *options, "-c", _ASK],
        env={**clean, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip() == "True"


def _round(site: Path, runs: Callable[[], bool], compile_: Callable[[], object] = lambda: None) -> None:
    """Old, new, old: with whatever is cached in between."""
    for _ in range(2):
        compile_()
        assert runs() is False
        engine.apply(site, engine.BESIDE)
        assert runs() is True
        compile_()
        assert runs() is True
        engine.revert(site)
        assert runs() is False


def test_plain(site: Path) -> None:
    _round(site, lambda: _runs(site))
    assert Path(cache_from_source(str(site / engine.ADD_NORM))).exists()


@pytest.mark.parametrize("level", ["-O", "-OO"])
def test_optimised(site: Path, level: str) -> None:
    _round(site, lambda: _runs(site, level))


def test_same_size_in_the_same_second(site: Path) -> None:
    """An edit that the cache's second and size cannot tell from its original."""
    now = (site / engine.ADD_NORM).stat().st_mtime_ns // 10**9 * 10**9 + 3600 * 10**9  # a second still to come
    seconds = []

    def runs() -> bool:
        seconds.append((site / engine.ADD_NORM).stat().st_mtime_ns // 10**9)
        return _runs(site)

    os.utime(site / engine.ADD_NORM, ns=(now, now))
    _round(site, runs)
    changes = [second for before, second in pairwise(seconds) if before != second]
    assert changes == sorted(set(changes))  # every change has a second of its own, later than the last
    assert len(changes) == 4


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_every_kind_of_cached_bytecode(site: Path, mode: py_compile.PycInvalidationMode) -> None:
    source = site / engine.ADD_NORM

    def compile_() -> None:
        for optimise in (0, 1, 2):
            py_compile.compile(str(source), invalidation_mode=mode, optimize=optimise, doraise=True)

    _round(site, lambda: _runs(site), compile_)
    _round(site, lambda: _runs(site, "-O"), compile_)


@pytest.mark.parametrize("unchecked", [False, True])
def test_bytecode_elsewhere(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unchecked: bool) -> None:
    prefix = tmp_path / "cache"
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    source = site / engine.ADD_NORM
    stem = Path(cache_from_source(str(source))).name

    def compile_() -> None:
        if unchecked:
            target = prefix.joinpath(*source.parts[1:-1]) / stem
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(source), str(target), invalidation_mode=mode, doraise=True)

    _round(site, lambda: _runs(site, PYTHONPYCACHEPREFIX=str(prefix)), compile_)
    assert list(prefix.rglob("*.pyc"))


def test_bytecode_of_other_interpreters_and_of_neighbours(site: Path) -> None:
    source = site / engine.ADD_NORM
    cache = source.parent / "__pycache__"
    stale = ["add_norm.cpython-310.pyc", "add_norm.cpython-313t.opt-2.pyc", "add_norm.pypy39.pyc"]
    others = ["add_norm_2.cpython-310.pyc", "other.cpython-310.pyc", "add_norm.cpython-310.nbi"]
    for name in (*stale, *others):
        engine.put(cache / name, b"x")
    engine.apply(site)
    assert sorted(path.name for path in cache.iterdir()) == sorted(others)
