"""Whether an environment can run what the gates open: versions that must fit, the compiler, the kernels' SMs.

Reads files; runs nothing but ``nvcc --version``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from patcher import fatbin, kernels
from patcher.arch import SM
from patcher.environment import Installation, Surroundings

_NVCC_SECONDS = 20
_OTHERS_SHOWN = 8
FAMILY_CODE = "12.9"
"""The first CUDA whose compiler has family targets (sm_120f) and SM121."""


class Verdict(str, Enum):
    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``gates``: the gates that it decides."""

    verdict: Verdict
    subject: str
    found: str
    hint: str = ""
    gates: tuple[str, ...] = ()


@dataclass
class Diagnosis:
    """Everything ``doctor`` found on one installation."""

    installation: Installation
    sms: tuple[SM, ...]
    versions: Mapping[str, str | None]
    checks: list[Check] = field(default_factory=list)
    readings: list[kernels.Reading] = field(default_factory=list)

    @property
    def problems(self) -> list[Check]:
        return [check for check in self.checks if check.verdict is Verdict.PROBLEM]


def diagnose(
    installation: Installation, facts: Surroundings, sms: Sequence[SM], data: Any, gates: Iterable[str]
) -> Diagnosis:
    """Look at one installation. ``data``: the engine's facts about its kernels (a module), or None."""
    names = installation.engine.related
    diagnosis = Diagnosis(installation, tuple(sms), {name: facts.version(name) for name in names})
    diagnosis.checks += requirement_checks(installation, facts)
    diagnosis.checks += matching_checks(getattr(data, "MATCHING", ()), facts)
    diagnosis.checks += cuda_checks(facts, sms, getattr(data, "LEAST_CUDA", {}))
    diagnosis.checks += compiler_checks(facts, sms)
    diagnosis.readings = kernels.readings(getattr(data, "LIBRARIES", ()), facts.roots)
    diagnosis.checks += kernel_checks(diagnosis.readings, sms, list(gates))
    return diagnosis


# -- versions --------------------------------------------------------------------------------------------------------


def requirement_checks(installation: Installation, facts: Surroundings) -> list[Check]:
    """What the engine's metadata requires against what is installed."""
    from packaging.markers import UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    if installation.distribution is None:
        return [Check(Verdict.NOTE, "version pins", "the engine has no metadata here, so its pins are not known")]
    related = {canonicalize_name(name) for name in installation.engine.related}
    checks: list[Check] = []
    fitting, others = 0, []
    for text in facts.requires(installation.distribution):
        try:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue
        version = facts.version(canonicalize_name(requirement.name))
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            fitting += 1
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        if version is None:
            if canonicalize_name(requirement.name) in related:
                checks.append(Check(Verdict.PROBLEM, wanted, "not installed", "the engine requires it"))
            else:
                others.append(f"{wanted} (missing)")
        elif canonicalize_name(requirement.name) in related:
            hint = f"{installation.engine.name} {installation.version} was built and tested with {wanted}"
            checks.append(Check(Verdict.PROBLEM, wanted, f"{version} is installed", hint))
        else:
            others.append(f"{wanted} (found {version})")
    checks.append(Check(Verdict.OK, "version pins", f"{fitting} requirements are met"))
    if others:
        more = f" and {len(others) - _OTHERS_SHOWN} more" if len(others) > _OTHERS_SHOWN else ""
        listed = ", ".join(others[:_OTHERS_SHOWN]) + more
        checks.append(Check(Verdict.NOTE, "other version pins", f"{len(others)} are not met: {listed}"))
    return checks


def matching_checks(groups: Sequence[Sequence[str]], facts: Surroundings) -> list[Check]:
    """Packages that must have one version between them."""
    checks = []
    for group in groups:
        versions = {name: version for name in group if (version := facts.version(name)) is not None}
        if len(versions) < 2:
            continue
        public = {version.partition("+")[0] for version in versions.values()}
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        if len(public) == 1:
            checks.append(Check(Verdict.OK, " / ".join(versions), found))
        else:
            hint = f"install the same version of each: pip install {' '.join(f'{n}==VERSION' for n in versions)}"
            checks.append(Check(Verdict.PROBLEM, " / ".join(versions), f"they differ: {found}", hint))
    return checks


# -- CUDA --------------------------------------------------------------------------------------------------------------


def _at_least(version: str, least: str) -> bool:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", text)[:2])

    return numbers(version) >= numbers(least)


def cuda_checks(facts: Surroundings, sms: Sequence[SM], least: Mapping[str, str]) -> list[Check]:
    """The CUDA that torch was built for, as its own version file says."""
    tree = facts.tree("torch")
    source = tree.get("torch/version.py") if tree is not None else None
    if source is None:
        return [Check(Verdict.NOTE, "torch", "not installed beside the engine")]
    match = re.search(rb"^cuda\s*(?::[^=\n]*)?=\s*['\"]([\d.]+)['\"]", source.data, re.MULTILINE)
    if match is None:
        return [Check(Verdict.PROBLEM, "torch", "a build without CUDA", "install a CUDA build of torch")]
    cuda = match[1].decode()
    checks = []
    for sm in sms:
        wanted = least.get(f"{sm.major}.{sm.minor}")
        if wanted is None or _at_least(cuda, wanted):
            checks.append(Check(Verdict.OK, f"torch for SM{sm}", f"built for CUDA {cuda}"))
        else:
            hint = f"SM{sm} needs a torch built for CUDA {wanted} or later"
            checks.append(Check(Verdict.PROBLEM, f"torch for SM{sm}", f"built for CUDA {cuda}", hint))
    return checks


def find_nvcc(roots: Sequence[Path]) -> tuple[Path, str] | None:
    """The nvcc that a JIT compilation would use, and its version."""
    places = [Path(home) / "bin" / "nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    if found := shutil.which("nvcc"):
        places.append(Path(found))
    places.append(Path("/usr/local/cuda/bin/nvcc"))
    for root in roots:
        places += [*sorted(root.glob("nvidia/cu*/bin/nvcc")), root / "nvidia/cuda_nvcc/bin/nvcc"]
    for place in places:
        if os.access(place, os.X_OK):
            try:
                said = subprocess.run(
                    [place, "--version"], capture_output=True, text=True, timeout=_NVCC_SECONDS, check=False
                )
            except (OSError, subprocess.SubprocessError):
                continue
            release = re.search(r"release ([\d.]+)", said.stdout)
            if release:
                return place, release[1]
    return None


def compiler_checks(facts: Surroundings, sms: Sequence[SM]) -> list[Check]:
    """nvcc, for kernels that are compiled when they are needed."""
    wanted = [sm for sm in sms if sm.major == 12]
    found = find_nvcc(facts.roots)
    if found is None:
        hint = "FlashInfer and DeepGEMM compile kernels at run time: install a CUDA toolkit and set CUDA_HOME"
        return [Check(Verdict.PROBLEM if wanted else Verdict.NOTE, "nvcc", "none found", hint)]
    _, version = found
    if not wanted or _at_least(version, FAMILY_CODE):
        suffix = ": knows sm_120a, sm_120f and sm_121a" if wanted else ""
        return [Check(Verdict.OK, "nvcc", f"{version}{suffix}")]
    hint = f"sm_120f and sm_121a need nvcc {FAMILY_CODE} or later"
    return [Check(Verdict.PROBLEM, "nvcc", version, hint)]


# -- kernels --------------------------------------------------------------------------------------------------


def kernel_checks(readings: Sequence[kernels.Reading], sms: Sequence[SM], known: Sequence[str]) -> list[Check]:
    """For each library and SM whether there is code for it, and the gates that this decides."""
    checks = []
    for reading in readings:
        gates = tuple(reading.library.gates(known)) if reading.library.decides != ("*",) else ()
        if reading.error is not None and reading.empty:
            checks.append(Check(Verdict.NOTE, reading.path, f"not read: {reading.error.what}", gates=gates))
            continue
        if reading.empty:
            checks.append(Check(Verdict.NOTE, reading.path, "holds no GPU code of its own", gates=gates))
            continue
        holds = fatbin.summary(reading.contents.code)
        for sm in sms:
            if reading.contents.runs_on(sm):
                checks.append(Check(Verdict.OK, reading.path, f"has machine code for SM{sm}: {holds}", gates=gates))
            elif reading.contents.compiles_for(sm):
                ptx = fatbin.summary(reading.contents.ptx)
                found = f"has no sm_{sm} machine code; PTX {ptx} is compiled by the driver at first use"
                checks.append(Check(Verdict.NOTE, reading.path, found, gates=gates))
            else:
                found = f"has no sm_{sm} code for {reading.library.holds}: {holds}"
                hint = f"opening {', '.join(gates)} cannot help where it calls into this library" if gates else ""
                checks.append(Check(Verdict.NOTE, reading.path, found, hint, gates))
    return checks


# -- for bug reports ------------------------------------------------------------------------------------------


def without_private_paths(text: str, installation: Installation) -> str:
    """The text with folders of this machine replaced by what they are."""
    replaced = [(str(installation.root), "<packages>")]
    if installation.environment.prefix is not None:
        replaced.append((str(installation.environment.prefix), "<environment>"))
    replaced += [(str(Path.home()), "~"), (str(Path.cwd()), ".")]
    for path, name in sorted(replaced, key=lambda pair: -len(pair[0])):
        if len(path) > 1:
            text = text.replace(path, name)
    return text
