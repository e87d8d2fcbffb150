"""How long the commands take, as multiples of starting Python with click and rich.table on the same machine.

    python -m scripts.bench [--release 0.5.23] [-n 11]
    python -m scripts.bench --scan          sm-patch scan beside ast-grep (pip install ast-grep-cli)
    python -m scripts.bench --libraries DIR sm-patch's reading of .so and .cubin files beside cuobjdump --list-elf

Whole processes, interleaved run by run so that a slow moment of the machine meets all of them; medians are
compared. ``status`` is shown cold (its cache empty) and warm (nothing changed since the last call).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patcher import fatbin
from scripts import matrix, releases

LIMITS = {"status (warm)": 3.0, "status (cold)": 8.0, "apply one gate": 12.0}
BASE = "python -c 'import click, rich.table'"


def seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def _as_installed(scratch: str) -> dict[str, str]:
    """The environment for every command: bytecode is compiled once and kept, as pip does when it installs."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(scratch) / "bytecode")}


def measure(release: str, runs: int) -> dict[str, float]:
    """Median seconds of each command, by name."""
    with tempfile.TemporaryDirectory(prefix="sm-patch-bench-") as scratch:
        still, busy = Path(scratch) / "still", Path(scratch) / "busy"
        for root in (still, busy):
            matrix.linked_copy(releases.unpacked("sglang", release), root)
        settled = time.time() - 3600
        for path in still.rglob("*"):
            os.utime(path, (settled, settled))
        time.sleep(3)  # an answer about files that changed just now is not kept
        sm_patch = [sys.executable, "-m", "patcher"]
        assume = ["--assume", "flashinfer-python==0.7.2", "--sm", "120"]
        commands = {
            BASE: [sys.executable, "-c", "import click, rich.table"],
            "status (cold)": [*sm_patch, "status", "--root", str(still), *assume],
            "status (warm)": [*sm_patch, "status", "--root", str(still), *assume],
            "apply one gate": [*sm_patch, "apply", "--gate", "allreduce-fusion", "--root", str(busy), *assume],
            "revert": [*sm_patch, "revert", "--root", str(busy)],
            "apply the default set": [*sm_patch, "apply", "--root", str(busy), *assume],
            "revert it": [*sm_patch, "revert", "--root", str(busy)],
        }
        environment = _as_installed(scratch) | {"SM_PATCH_CACHE": str(Path(scratch) / "cache")}
        for command in commands.values():
            seconds(command, environment)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            shutil.rmtree(environment["SM_PATCH_CACHE"], ignore_errors=True)
            for name, command in commands.items():
                taken[name].append(seconds(command, environment))
        return {name: statistics.median(values) for name, values in taken.items()}


SCAN_LIMIT = 0.7
# The names that the scan's vocabulary is about, as one identifier rule.
AST_GREP_RULE = r"""
id: gates
language: python
rule:
  kind: identifier
  regex: '^_*(is|use|can|has|on|supports?|needs)_(\w*_)?(sm_?\d{2,3}|blackwell|hopper)|capability|device_sm|cuda_arch'
"""


def measure_scan(release: str, runs: int) -> tuple[float, float]:
    """Median seconds of ``sm-patch scan`` and of ``ast-grep scan`` on one release, run by run in turn."""
    root = str(releases.unpacked("sglang", release))
    tool = shutil.which("ast-grep", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if tool is None:
        sys.exit("ast-grep is not installed: pip install ast-grep-cli")
    with tempfile.TemporaryDirectory(prefix="sm-patch-bench-") as scratch:
        rule = Path(scratch) / "rule.yml"
        rule.write_text(AST_GREP_RULE)
        environment = _as_installed(scratch)
        ours = [sys.executable, "-m", "patcher", "scan", "--root", root, "--format", "json"]
        theirs = [tool, "scan", "--rule", str(rule), "--json=stream", root]
        seconds(ours, environment)
        taken = [(seconds(ours, environment), seconds(theirs, environment)) for _ in range(runs)]
    return statistics.median(a for a, _ in taken), statistics.median(b for _, b in taken)


def measure_libraries(folder: Path) -> bool:
    """Print, for every .so below a folder and for all .cubin files together, whether both tools agree, and how long
    each took (files in the cache). Whether they agree on everything, ours in a twentieth of the time or less."""
    cuobjdump = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump")
    if cuobjdump is None:
        sys.exit("cuobjdump is not on the PATH: pip install nvidia-cuda-cuobjdump, or set CUOBJDUMP")
    rows: list[tuple[bool, float, float]] = []

    def compare(name: str, paths: Sequence[Path], read: Callable[[Path], Mapping[fatbin.Arch, int]]) -> None:
        for path in paths:
            read(path)
        started = time.perf_counter()
        found = [read(path) for path in paths]
        between = time.perf_counter()
        told = [subprocess.run([cuobjdump, "--list-elf", p], capture_output=True, text=True).stdout for p in paths]
        ended = time.perf_counter()
        differing = [p for p, ours, said in zip(paths, found, told, strict=True) if _numbers(ours) != _listed(said)]
        verdict = "agree" if not differing else f"DIFFER: {differing[0].name} and {len(differing) - 1} more"
        rows.append((not differing, between - started, ended - between))
        print(f"{name:50} {verdict:8} {between - started:8.4f} s {ended - between:8.2f} s", flush=True)

    for path in sorted(folder.rglob("*.so")):
        compare(path.name, [path], lambda path: fatbin.read(path).code)
    if cubins := sorted(folder.rglob("*.cubin")):
        compare(f"{len(cubins)} cubins", cubins, lambda path: {arch: 1} if (arch := fatbin.cubin_arch(path)) else {})
    ours, theirs = (sum(row[column] for row in rows) for column in (1, 2))
    print(f"{'all':59} {ours:8.4f} s {theirs:8.2f} s, {theirs / max(ours, 1e-9):.0f} times as long")
    return all(agree for agree, _, _ in rows) and all(mine * LIBRARIES_FASTER <= other for _, mine, other in rows)


LIBRARIES_FASTER = 20


def _numbers(found: Mapping[fatbin.Arch, int]) -> Counter[str]:
    """As cuobjdump prints them: 90a, and 120f as plain 120."""
    counts: Counter[str] = Counter()
    for arch, count in found.items():
        counts[f"{arch.number}{arch.letter if arch.letter == 'a' else ''}"] += count
    return counts


def _listed(said: str) -> Counter[str]:
    return Counter(re.findall(r"\.sm_(\d+a?)f?\.cubin", said))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="0.5.23")
    parser.add_argument("-n", "--runs", type=int, default=11)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--libraries", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.libraries:
        sys.exit(0 if measure_libraries(arguments.libraries) else 1)
    if arguments.scan:
        ours, theirs = measure_scan(arguments.release, arguments.runs)
        print(f"sm-patch scan {ours:.2f} s, ast-grep scan {theirs:.2f} s: {ours / theirs:.2f}x (limit {SCAN_LIMIT:g}x)")
        sys.exit(1 if ours > SCAN_LIMIT * theirs else 0)
    medians = measure(arguments.release, arguments.runs)
    base = medians[BASE]
    over = []
    print(f"sglang {arguments.release}, median of {arguments.runs} interleaved runs")
    for name, median in medians.items():
        limit = LIMITS.get(name)
        if limit is not None and median > limit * base:
            over.append(name)
        print(f"{name:40} {median:7.3f} s {median / base:6.2f}x{f'  (limit {limit:g}x)' if limit else ''}")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
