"""What tests share: facts that are always met, and folders made of miniature files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.source import SourceTree


class Met:
    """Facts under which every package requirement of the recipes holds."""

    def version(self, distribution: str) -> str | None:
        return "99"

    def assumed(self, distribution: str) -> bool:
        return True

    def tree(self, package: str) -> SourceTree | None:
        return None


@pytest.fixture
def met() -> Met:
    return Met()


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Writes files (path → text) into a folder of its own."""

    def write(files: Mapping[str, str]) -> Path:
        root = tmp_path / "root"
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text.encode())
        return root

    return write
