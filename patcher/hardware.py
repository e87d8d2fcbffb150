"""Which GPUs this machine shows: NVML, then nvidia-smi. Loads neither torch nor the engine."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from patcher.arch import SM, SM120, parse_sm

_SMI_SECONDS = 10


@dataclass(frozen=True)
class GPU:
    """One visible GPU."""

    name: str
    sm: SM


@dataclass(frozen=True)
class Target:
    """The SMs that states are shown for, and why these."""

    sms: tuple[SM, ...]
    source: str
    assumed: bool = False
    gpus: tuple[GPU, ...] = ()


def choose_target(named: Sequence[str]) -> Target:
    """The SMs named by the user, else those of the visible GPUs, else 120, marked as assumed."""
    if named:
        return Target(tuple(dict.fromkeys(parse_sm(text) for text in named)), "as named")
    gpus, source = visible_gpus()
    if gpus:
        return Target(tuple(sorted({gpu.sm for gpu in gpus})), source, gpus=gpus)
    return Target((SM120,), "no GPU is visible; assumed", assumed=True)


def visible_gpus() -> tuple[tuple[GPU, ...], str]:
    """The visible GPUs and who told: ``NVML``, ``nvidia-smi``, or nothing."""
    for ask, name in ((_ask_nvml, "NVML"), (_ask_smi, "nvidia-smi")):
        gpus = ask()
        if gpus:
            return gpus, name
    return (), ""


def _ask_nvml() -> tuple[GPU, ...]:
    if importlib.util.find_spec("pynvml") is None:
        return ()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            found.append(GPU(name.decode() if isinstance(name, bytes) else name, SM(major, minor)))
        return tuple(found)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _ask_smi() -> tuple[GPU, ...]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    command = [smi, "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SMI_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = []
    for line in asked.stdout.splitlines():
        name, _, capability = line.rpartition(",")
        major, dot, minor = capability.strip().partition(".")
        if name and dot and major.isdigit() and minor.isdigit():
            found.append(GPU(name.strip(), SM(int(major), int(minor))))
    return tuple(found)
