"""Write patches/sglang/_symbols.py: in which releases each public architecture predicate exists, and in which file.

python scripts/symbols.py            from the pinned releases
python scripts/symbols.py FOLDER     from unpacked wheels FOLDER/sglang-<version>/
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.version import Version

from patcher import vocabulary
from patcher.scan import python_files
from scripts import releases

TARGET = Path(__file__).parents[1] / "patches" / "sglang" / "_symbols.py"
_CHAINED = re.compile(rb"^\w+ = ([A-Za-z]\w*) = ", re.MULTILINE)
_NAMES = re.compile(rb"^(?:def )?([A-Za-z_]\w*)(?=\(| *=[^=]| *:[^=\n]*=)", re.MULTILINE)
_KEYS = re.compile(rb'^    "(is_\w+)": "is_\w+",$', re.MULTILINE)
_ASKED = re.compile(r"(?:is|has)_\w+|get_device_(?:sm|capability)")
_ALSO = ("is_ampere_with_cuda_12_3", "is_arch_support_pdl", "_check_cuda_device_version")
_SKIPPED = ("/test/", "/tests/", "multimodal_gen/", "/bench")

HEADER = '''"""SGLang's architecture predicates: in which releases each exists, and in which file. Facts only.

Written by scripts/symbols.py; the eras before 0.4.6 are not looked at, so "0.4.6" means 0.4.6 or earlier.
"""

# What ``probe`` calls.
PREDICATES = (
{predicates})

NEWEST = "{newest}"

# Name → (first release, last release or None for the newest, file below the package).
SYMBOLS: dict[str, tuple[tuple[str, str | None, str], ...]] = {{
{symbols}}}
'''


def defined(root: Path) -> dict[str, str]:
    """The public architecture predicates defined at the top of a module below ``root``: name to file."""
    found: dict[str, str] = {}
    for path in python_files(root, "sglang"):
        if any(part in path for part in _SKIPPED):
            continue
        data = (root / path).read_bytes()
        if not vocabulary.might_speak(data):
            continue
        names = [
            match[1].decode() for match in (*_NAMES.finditer(data), *_CHAINED.finditer(data), *_KEYS.finditer(data))
        ]
        for name in names:
            if (vocabulary.speaks(name) and _ASKED.fullmatch(name)) or name in _ALSO:
                found.setdefault(name, path.removeprefix("sglang/"))
    return found


def main() -> None:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        roots = {path.name.removeprefix("sglang-"): path for path in folder.glob("sglang-*")}
    else:
        roots = {version: releases.unpacked("sglang", version) for version in releases.versions("sglang")}
    ordered = sorted(roots, key=Version)
    eras: dict[str, list[list[str]]] = {}
    for position, version in enumerate(ordered):
        for name, path in defined(roots[version]).items():
            spans = eras.setdefault(name, [])
            if spans and spans[-1][2] == path and spans[-1][1] == ordered[position - 1]:
                spans[-1][1] = version
            else:
                spans.append([version, version, path])
    lines = []
    for name, spans in sorted(eras.items()):
        ends = [(first, None if last == ordered[-1] else last, path) for first, last, path in spans]
        texts = [f'("{a}", {f"{chr(34)}{b}{chr(34)}" if b else None}, "{path}")' for a, b, path in ends]
        lines.append(f'    "{name}": (\n' + "".join(f"        {text},\n" for text in texts) + "    ),\n")
    predicates = "".join(f'    "{name}",\n' for name in sorted(eras) if not name.startswith("_"))
    TARGET.write_text(HEADER.format(predicates=predicates, newest=ordered[-1], symbols="".join(lines)))


if __name__ == "__main__":
    main()
