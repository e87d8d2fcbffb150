"""The releases that recipes are tried on: which there are, and their unpacked wheels, pinned by hash.

python scripts/releases.py                  download and unpack SGLang's and FlashInfer's
python scripts/releases.py vllm             those of one distribution (vLLM: 36 wheels of 250 to 440 MB)
python scripts/releases.py sglang --pin     write the hashes of what the index gave

Of a vLLM wheel only the Python files and the metadata are kept. FlashInfer has no wheels before 0.5: its source
distributions stand in, which pip only gives out where setuptools >= 77 is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
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


_SOURCE_ONLY = "vllm"
_NO_WHEELS = {"flashinfer-python": Version("0.5")}
"""Distributions whose releases before this version have no wheel on the index."""


def unpacked(distribution: str, version: str) -> Path:
    """The unpacked wheel of a pinned release; read it, do not write to it."""
    sha256 = pins()[distribution][version]
    folder = wheels.cache_folder() / "unpacked" / f"{distribution}-{version}"
    if folder.is_dir():
        return folder
    if Version(version) < _NO_WHEELS.get(distribution, Version("0")):
        _unpack_sdist(distribution, version, sha256, folder)
    elif distribution == _SOURCE_ONLY:
        wheel = wheels.download(distribution, version, sha256=sha256)
        wheels.unpack(wheel, folder, only=wheels.is_source)
        wheel.unlink()  # kernels, hundreds of megabytes
    return wheels.unpacked(distribution, version, sha256=sha256)


def _unpack_sdist(distribution: str, version: str, sha256: str, folder: Path) -> None:
    """Have pip fetch the source distribution, checked against its pin before anything of it runs, and unpack it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text(f"{distribution}=={version} --hash=sha256:{sha256}\n")
        fetch = ["--no-deps", "--no-binary=:all:", "--no-build-isolation", "--require-hashes", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *fetch, f"--dest={scratch}", f"--requirement={wanted}"]
        subprocess.run(command, check=True)
        with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
            archive.extractall(scratch, filter="data")
        (Path(scratch) / f"{distribution.replace('-', '_')}-{version}").rename(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("distributions", nargs="*", default=[name for name in pins() if name != _SOURCE_ONLY])
    parser.add_argument("--pin", action="store_true", help="rewrite the hashes from what the index gives")
    arguments = parser.parse_args()
    for distribution in arguments.distributions:
        for version in versions(distribution):
            if arguments.pin:
                pins()[distribution][version] = wheels.file_digest(wheels.download(distribution, version))
            print(unpacked(distribution, version), file=sys.stderr)
    if arguments.pin:
        PINS.write_text(json.dumps(pins(), indent=1) + "\n")


if __name__ == "__main__":
    main()
