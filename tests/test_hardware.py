from __future__ import annotations

from pathlib import Path

import pytest

from patcher.arch import SM
from patcher.hardware import choose_target


def smi(folder: Path, *lines: str, code: int = 0) -> str:
    """An nvidia-smi that prints these lines, alone on the PATH."""
    script = folder / "nvidia-smi"
    printed = "\n".join(f"echo '{line}'" for line in lines)
    script.write_text(f"#!/bin/sh\n{printed}\nexit {code}\n")
    script.chmod(0o755)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patcher.hardware._ask_nvml", lambda: ())


def test_the_visible_gpus_are_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVIDIA RTX PRO 6000 Blackwell Server Edition, 12.0"
    monkeypatch.setenv("PATH", smi(tmp_path, line, line))
    target = choose_target(())
    assert target.sms == (SM(12, 0),)
    assert not target.assumed
    assert target.source == "nvidia-smi"
    assert len(target.gpus) == 2
    assert target.gpus[0].name.startswith("NVIDIA RTX PRO 6000")


def test_mixed_gpus_are_all_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", smi(tmp_path, "NVIDIA H100, 9.0", "GB10, 12.1", "NVIDIA, A thing, 12.0"))
    assert choose_target(()).sms == (SM(9, 0), SM(12, 0), SM(12, 1))


@pytest.mark.parametrize(("lines", "code"), [((), 0), (("no devices were found",), 0), (("x, [N/A]",), 0), ((), 9)])
def test_nothing_visible_means_120_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...], code: int
) -> None:
    monkeypatch.setenv("PATH", smi(tmp_path, *lines, code=code))
    target = choose_target(())
    assert target.sms == (SM(12, 0),)
    assert target.assumed
    assert "assumed" in target.source


def test_a_named_target_asks_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[()]:
        raise AssertionError

    monkeypatch.setattr("patcher.hardware.visible_gpus", fail)
    assert choose_target(["sm_121a", "12.0", "120"]).sms == (SM(12, 1), SM(12, 0))
