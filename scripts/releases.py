"""The releases that recipes are tried on: which there are, and their unpacked wheels, pinned by hash.

python scripts/releases.py            download and unpack all of them
python scripts/releases.py --pin      write the hashes of what the index gave
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path

from packaging.version import Version

from patcher import wheels

PINS = Path(__file__).with_name("releases.json")


@cache
def pins() -> dict[str, dict[str, str]]:
    """Distribution → version → SHA-256 of the wheel."""
    loaded: dict[str, dict[str, str]] = json.loads(PINS.read_text())
    return loaded


def versions(distribution: str) -> list[str]:
    """The pinned versions of a distribution, oldest first."""
    return sorted(pins()[distribution], key=Version)


def unpacked(distribution: str, version: str) -> Path:
    """The unpacked wheel of a pinned release; read it, do not write to it."""
    return wheels.unpacked(distribution, version, sha256=pins()[distribution][version])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", action="store_true", help="rewrite the hashes from what the index gives")
    arguments = parser.parse_args()
    for distribution in pins():
        for version in versions(distribution):
            if arguments.pin:
                pins()[distribution][version] = wheels.file_digest(wheels.download(distribution, version))
            print(unpacked(distribution, version), file=sys.stderr)
    if arguments.pin:
        PINS.write_text(json.dumps(pins(), indent=1) + "\n")


if __name__ == "__main__":
    main()
