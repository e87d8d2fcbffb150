"""In which releases of an engine a name exists, from the catalogue's data: its symbol table and its recipes' sites."""

from __future__ import annotations

from patcher import catalogue

Era = tuple[str, str, str]
"""First release, last release, file."""


def symbols(engine: str, version: str | None = None) -> dict[str, list[Era]]:
    """Name to eras. A name that a recipe's site lies in is known from the site's range of versions.

    Where such a site exists under another name in ``version``, the era of that one follows.
    """
    data = catalogue.data(engine, "symbols")
    known: dict[str, list[Era]] = {}
    if data is not None:
        for name, eras in data.SYMBOLS.items():
            known[name] = [(first, last or data.NEWEST, path) for first, last, path in eras]
    for gate in catalogue.gates(engine).values():
        for site in gate.sites:
            name = getattr(site, "within", "").rpartition(".")[2]
            if not name or (data is not None and name in data.SYMBOLS):
                continue
            first, last = _bounds(site.versions)
            here = f"{site.path} (gate {gate.id})"
            known.setdefault(name, []).append((first or "the first release", last or "the newest", here))
            if version is not None:
                now = [s for s in gate.sites_for(version) if getattr(s, "within", "") != getattr(site, "within", "")]
                for other in now[:1]:
                    known[name].append((version, version, f"{other.path} as {getattr(other, 'within', '')}"))
    return known


def _bounds(versions: str) -> tuple[str, str]:
    first = last = ""
    for part in versions.split(","):
        part = part.strip()
        if part.startswith(">="):
            first = part[2:]
        elif part.startswith("<="):
            last = part[2:]
        elif part.startswith("<"):
            last = f"before {part[1:]}"
        elif part.startswith("=="):
            first = last = part[2:]
    return first, last
