"""What the tests of sites and proofs share: gates made on the spot, and inspectors of miniature trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from patcher import catalogue
from patcher.arch import SM
from patcher.gate import Action, Gate, Level
from patcher.plan import Inspector
from patcher.sites import Site
from patcher.source import SourceTree
from patches.sglang import SM12X
from tests.conftest import Met

FILE = "srt/layers/thing.py"
IN_TREE = f"sglang/{FILE}"


def gate_of(
    *sites: Site,
    name: str = "a-gate",
    action: Action = Action.OPEN,
    level: Level = Level.BACKPORT,
    targets: frozenset[SM] = SM12X,
    **more: object,
) -> type[Gate]:
    """A recipe with these sites."""
    facts = {"id": name, "engine": "sglang", "family": "test", "title": name, "action": action, "level": level}
    return type("Made", (Gate,), {**facts, "targets": targets, "sites": sites, "risk": "it crashes", **more})


def inspect(root: Path, version: str = "0.5.18") -> Inspector:
    return Inspector(catalogue.engine_named("sglang"), SourceTree(root), version, Met())


def applied(inspector: Inspector, gates: Sequence[type[Gate]]) -> Mapping[str, str]:
    """The files as they are with the gates applied, each in the direction of its action."""
    plan = inspector.plan({gate: gate.direction() for gate in gates})
    return {path: change.after.decode() for path, change in plan.changes.items()}
