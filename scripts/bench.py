"""How long the commands take, as multiples of starting Python with click and rich.table on the same machine.

    python -m scripts.bench [--release 0.5.23] [-n 11]

Whole processes, interleaved run by run so that a slow moment of the machine meets all of them; medians are
compared. ``status`` is shown cold (its cache empty) and warm (nothing changed since the last call).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import matrix, releases

LIMITS = {"status (warm)": 3.0, "apply": 12.0}
BASE = "python -c 'import click, rich.table'"


def seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


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
            "apply": [*sm_patch, "apply", "--root", str(busy), *assume],
            "revert": [*sm_patch, "revert", "--root", str(busy)],
        }
        environment = {**os.environ, "SM_PATCH_CACHE": str(Path(scratch) / "cache")}
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            shutil.rmtree(environment["SM_PATCH_CACHE"], ignore_errors=True)
            for name, command in commands.items():
                taken[name].append(seconds(command, environment))
        return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="0.5.23")
    parser.add_argument("-n", "--runs", type=int, default=11)
    arguments = parser.parse_args()
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
