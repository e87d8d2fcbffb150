"""The outline of real files is the tree that ast gives, and leaves most of it for later."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from patcher import outline
from patcher.catalogue import engine_named, gates
from patcher.scan import python_files
from patcher.source import Source
from scripts import releases

pytestmark = pytest.mark.releases


def files(release: str, engine: str) -> list[Path]:
    """The files that the catalogue's sites lie in, and one in forty of the others."""
    root = releases.unpacked(engine_named(engine).distributions[0], release)
    package = engine_named(engine).package
    sites = {f"{package}/{site.path}" for gate in gates(engine).values() for site in gate.sites_for(release)}
    return [root / path for path in sorted({*sites, *python_files(root, package)[::40]}) if (root / path).is_file()]


@pytest.mark.parametrize(
    ("engine", "release"),
    [("sglang", "0.4.6"), ("sglang", "0.5.8.post1"), ("sglang", "0.5.23"), ("flashinfer", "0.7.2"), ("vllm", "0.24.0")],
)
def test_the_outline_is_the_tree(engine: str, release: str) -> None:
    parsed = total = 0

    def read(data: bytes) -> ast.Module:
        nonlocal parsed
        parsed += len(data.strip())
        return ast.parse(data)

    for path in files(release, engine):
        data = path.read_bytes()
        total += len(data)
        tree = outline.parse(data, read, Source(str(path), data).line_starts)
        before = parsed
        assert ast.dump(tree, include_attributes=True) == ast.dump(ast.parse(data), include_attributes=True), path
        parsed = before
    assert parsed < total / 3
