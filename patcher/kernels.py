"""The compiled libraries beside an engine: what they are called, what they hold, and which gates they decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from patcher import fatbin
from patcher.arch import SM
from patcher.errors import SmPatchError


@dataclass(frozen=True)
class KernelLibrary:
    """Compiled kernels of one package. ``files``: glob below the package; ``decides``: gate ids (globs)."""

    name: str
    package: str
    files: str
    holds: str
    decides: Sequence[str] = ()

    def gates(self, known: Iterable[str]) -> list[str]:
        """The known gates that it decides."""
        return [gate for gate in known if any(fnmatchcase(gate, pattern) for pattern in self.decides)]


@dataclass
class Reading:
    """What was found in one file (or, for cubins, in all files of one library)."""

    library: KernelLibrary
    path: str
    contents: fatbin.Contents = field(default_factory=fatbin.Contents)
    files: int = 1
    error: SmPatchError | None = None

    @property
    def empty(self) -> bool:
        return not self.contents.code and not self.contents.ptx

    def serves(self, sm: SM) -> bool:
        return self.contents.runs_on(sm) or self.contents.compiles_for(sm)


def readings(libraries: Sequence[KernelLibrary], roots: Sequence[Path]) -> list[Reading]:
    """What the installed ones hold; libraries that are not installed are left out."""
    found: list[Reading] = []
    for library in libraries:
        holder = next((root for root in roots if (root / library.package).is_dir()), None)
        if holder is None:
            continue
        paths = sorted((holder / library.package).glob(library.files))
        if library.files.endswith(".cubin"):
            if paths:
                found.append(_cubins(library, paths))
            continue
        for path in paths:
            reading = Reading(library, path.relative_to(holder).as_posix())
            try:
                reading.contents = fatbin.read(path)
            except SmPatchError as error:
                reading.error = error
            found.append(reading)
    return found


def _cubins(library: KernelLibrary, paths: Sequence[Path]) -> Reading:
    reading = Reading(library, f"{library.package}/**/*.cubin", files=len(paths))
    counts: Counter[fatbin.Arch] = Counter()
    for path in paths:
        try:
            arch = fatbin.cubin_arch(path)
        except SmPatchError as error:
            reading.error = error
            continue
        if arch is not None:
            counts[arch] += 1
    reading.contents.code = counts
    return reading
