"""Every command on a narrow terminal: wrapped between words, nothing cut, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines import FILES
from tests.installation import GATE, install, metadata, run

COMMANDS = (
    ("status", "--sm", "120"),
    ("status", "--all", "--sm", "120,121"),
    ("explain", GATE),
    ("where", "is_sm120_supported", "--all"),
    ("envs", "--below"),
    ("doctor", "--sm", "120"),
    ("scan",),
    ("scan", "--against"),
    ("probe", "--sm", "120"),
)
WHOLE = ("envs", "where", "explain", "probe")
"""These also show code, commands and import statements, which are copied and so left whole."""
NARROW = 40


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_same_words_at_every_width(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path / "cache"))
    new = {"sglang/srt/new.py": "import torch\n\nX = torch.cuda.get_device_capability()[0] == 12\n"}
    miniature = {**FILES, **metadata("sglang", "0.5.23")} if command[0] in ("where", "scan", "probe") else {}
    root = install(tmp_path / "root", files=miniature)
    other = install(tmp_path / "other", files={**miniature, **new})
    places = {"--below": [str(tmp_path)], "--against": [str(other)]}.get(command[-1], [])

    def shown(columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        result = run(*command, *places, root=None if command[0] == "envs" else root)
        assert result.exit_code in (0, 1), result.stderr
        return result.stdout

    narrow = shown(NARROW)
    assert narrow.split() == shown(100).split() and len(narrow.split()) > 5
    long = [line.split() for line in narrow.splitlines() if len(line) > NARROW]
    # A line may be longer only where a single name or path is: nothing that could be broken off is beside it.
    assert command[0] in WHOLE or all(len(words) == 1 or len(words[0]) + len(words[1]) > NARROW - 9 for words in long)
