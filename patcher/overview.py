"""How the gates of an installation look in ``status``: by family, readable in 80 columns, and what to do next.

Works on the JSON-ready dicts of ``console.report_data``, so that a remembered document shows without the recipes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from patcher.console import plain, say, wrapped

Gate = Mapping[str, Any]

_COLOURS = {
    "open": "green",
    "patched": "green",
    "closed": "yellow",
    "too-open": "red",
    "partial": "red",
    "refused": "magenta",
    "modified": "red",
    "lost": "red",
    "unrecognised": "red",
}
_BLANK = "\ufffc"
_REASON = " " * 6


def concerns(gate: Gate) -> bool:
    """Whether a gate is shown without ``--all``: something is done, to be done, wrong, or missing to get it.

    Left out: what the release has not, what is as it should be, and what must never be opened.
    """
    state = gate["state"]
    if state == "refused":
        return bool(gate["level"] != "refused")
    if state == "closed":
        return gate["would"] is not None
    return state not in ("absent", "open")


def show_gates(gates: Sequence[Gate], everything: bool) -> None:
    """The gates to stdout, by family; how many are left out, to stderr."""
    shown = [gate for gate in gates if everything or concerns(gate)]
    several = len({gate["sm"] for gate in gates}) > 1
    families = dict.fromkeys(gate["family"] for gate in shown)
    for family in sorted(families):
        sys.stdout.write(f"{_styled(family, bold=True)}\n")
        for lines in _entries([gate for gate in shown if gate["family"] == family], several):
            sys.stdout.write("".join(f"{line}\n" for line in lines))
    if not shown:
        sys.stdout.write("nothing here concerns this GPU\n")
    left_out = Counter(gate["state"] for gate in gates if gate not in shown)
    if left_out:
        counts = ", ".join(f"{number} {state}" for state, number in sorted(left_out.items()))
        say(f"not shown: {counts} ('sm-patch status --all')")


def _entries(gates: Sequence[Gate], several: bool) -> list[list[str]]:
    """The lines of each gate. SMs for which a gate stands alike share an entry."""
    entries: dict[tuple[Any, ...], list[str]] = {}
    by_key: dict[tuple[Any, ...], Gate] = {}
    for gate in gates:
        key = (gate["gate"], gate["state"], gate["reason"])
        entries.setdefault(key, []).append(gate["sm"])
        by_key.setdefault(key, gate)
    return [_lines(by_key[key], f" SM{'/'.join(sms)}" if several else "") for key, sms in entries.items()]


def _lines(gate: Gate, sms: str) -> list[str]:
    found, expected = gate["sites"]["found"], gate["sites"]["expected"]
    sites = f"{found}/{expected} {'site' if expected == 1 else 'sites'}"
    facts = ", ".join(part for part in (gate["level"], sites if expected else "", gate["opt_in"] and "opt-in") if part)
    state = gate["state"]
    blank = _BLANK * len(state)  # colours have no width
    head = wrapped(f"{gate['gate']}{sms}: {blank} ({facts})", "    ", "  ")
    return [head.replace(blank, _styled(state, fg=_COLOURS.get(state))), wrapped(gate["reason"], _REASON)]


def _styled(text: str, **style: Any) -> str:
    return text if plain() else click.style(text, **style)


def show_next(document: Mapping[str, Any]) -> None:
    """What to do next, as prose on stderr. There is always one line."""
    gates = document["gates"]
    pending = list(document["pending"])
    if pending:
        say(wrapped(f"next: 'sm-patch apply' would change {', '.join(pending)}", "  ", ""))
    unfounded = document.get("unfounded", ())
    if unfounded:
        say(wrapped(f"next: 'sm-patch revert --gate {','.join(unfounded)}': what it needs is gone", "  ", ""))
    too_open = _ids(g for g in gates if g["state"] == "too-open" and g["gate"] not in pending)
    if too_open:
        say(wrapped(f"next: 'sm-patch apply --gate {','.join(too_open)}' closes what is too open", "  ", ""))
    optional = _ids(g for g in gates if g["state"] == "closed" and g["would"] and g["gate"] not in pending)
    if optional:
        say(wrapped(f"only when named ('sm-patch apply --gate NAME'): {', '.join(optional)}", "  ", ""))
    unmet = _ids(g for g in gates if g["state"] == "refused" and concerns(g))
    if unmet:
        say(wrapped(f"'sm-patch explain NAME' says what these need: {', '.join(unmet)}", "  ", ""))
    if not pending and not too_open and not unfounded:
        say("next: nothing to do; 'sm-patch explain NAME' tells all about a gate")


def _ids(gates: Iterable[Gate]) -> list[str]:
    return list(dict.fromkeys(gate["gate"] for gate in gates))
