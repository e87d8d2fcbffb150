"""Recipes as text: one site's line, and the skeleton of a whole gate from a place in installed source."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import combinations

from patcher.arch import ALL_SMS, SM, SM120, SM121
from patcher.condition import Truth
from patcher.errors import Unrecognised, UsageError
from patcher.plan import Inspector
from patcher.predicate import ALL_WORLDS, cuda_world
from patcher.sites import ConditionSite, Site, View, mentioned, view_of
from patcher.traces import Spot, spots, telling, truths


@dataclass(frozen=True)
class Sketch:
    """A gate that could be made of a condition: where, who gets through, and the site that finds it."""

    path: str
    line: int
    condition: str
    truths: dict[str, Truth]
    """By world: whether it lets through."""
    site: ConditionSite
    text: str
    """The recipe module."""


def sketch(inspector: Inspector, path: str, line: int, name: str, versions: str) -> Sketch:
    """The skeleton of a gate for the condition at a line. ``path`` is relative to the package.

    Raises UsageError where there is no condition on the GPU, Unrecognised where no site finds exactly it.
    """
    view = view_of(inspector.engine, path, inspector.predicates)
    full = f"{inspector.engine.package}/{path}"
    if view is None:
        raise UsageError("there is no such file in the installation", where=full)
    spot, holds = _condition_at(view, line)
    site = _site(inspector, spot, holds, path, versions)
    outcomes = dict(zip(map(str, ALL_WORLDS), holds, strict=True))
    if site.refuses:
        outcomes = {world: _OPPOSITE.get(outcome, outcome) for world, outcome in outcomes.items()}
    name = name or _kebab(spot.within.rpartition(".")[2] or path.rpartition("/")[2].removesuffix(".py"))
    text = _module(inspector, name, site, full, spot.node.lineno, outcomes)
    return Sketch(full, spot.node.lineno, ast.unparse(spot.node), outcomes, site, text)


_OPPOSITE = {Truth.ALWAYS: Truth.NEVER, Truth.NEVER: Truth.ALWAYS}


def _condition_at(view: View, line: int) -> tuple[Spot, tuple[Truth, ...]]:
    """The smallest condition on the GPU that a line is part of."""
    here = [spot for spot in spots(view.source, "condition") if _first(spot) <= line <= _last(spot)]
    told = [(spot, truths(spot, view)) for spot in here]
    deciding = [(spot, holds) for spot, holds in told if len(set(holds)) > 1]
    if not deciding:
        near = sorted(
            {spot.node.lineno for spot in spots(view.source, "condition") if len(set(truths(spot, view))) > 1},
            key=lambda number: abs(number - line),
        )
        hint = f"the nearest are at line {', '.join(map(str, near[:3]))}" if near else "this file has none"
        what = "no condition here is known to tell GPUs apart" if here else "there is no condition here"
        raise UsageError(what, where=f"{view.path}:{line}", hint=f"conditions that tell GPUs apart: {hint}")
    return min(deciding, key=lambda pair: _last(pair[0]) - _first(pair[0]))


def _first(spot: Spot) -> int:
    return min(spot.node.lineno, getattr(spot.owner, "lineno", spot.node.lineno))


def _last(spot: Spot) -> int:
    return spot.node.end_lineno or spot.node.lineno


def _site(inspector: Inspector, spot: Spot, holds: tuple[Truth, ...], path: str, versions: str) -> ConditionSite:
    """The plainest site that finds exactly this condition. Raises Unrecognised where none does."""
    body = getattr(spot.owner, "body", None)
    refuses = isinstance(spot.owner, ast.If) and isinstance(body, list) and isinstance(body[-1], ast.Raise)
    for mentions in _mentions(spot):
        for witness, outsider in _pairs(holds, refuses):
            site = ConditionSite(
                versions, path, spot.within, mentions=mentions, refuses=refuses, witness=witness, outsider=outsider
            )
            place = inspector.find(site).place
            if place is not None and place.node is spot.node:
                return site
    raise Unrecognised(
        "no site of the plain kind finds this condition alone",
        where=f"{inspector.engine.package}/{path}:{spot.node.lineno}",
        hint="docs/writing-recipes.md says what other kinds of sites there are",
    )


def _mentions(spot: Spot) -> Iterator[tuple[str, ...]]:
    """Nothing, then one name, then two: those that do not speak of the GPU first."""
    yield ()
    names = sorted(mentioned(spot.node), key=lambda name: (not telling({name}), name))
    for count in (1, 2):
        yield from combinations(names, count)


def _pairs(holds: tuple[Truth, ...], refuses: bool) -> Iterator[tuple[SM, SM]]:
    """An SM that gets through and one that does not: SM100 and SM80 where they do."""
    outcome = dict(zip(ALL_WORLDS, holds, strict=True))
    inside = [sm for sm in _WITNESSES if (outcome[cuda_world(sm)] is Truth.NEVER) is refuses]
    outside = [sm for sm in _OUTSIDERS if (outcome[cuda_world(sm)] is Truth.NEVER) is not refuses]
    for witness in inside[:1]:
        for outsider in outside[:1]:
            yield witness, outsider


_WITNESSES = (SM(10, 0), SM(9, 0), SM120, SM121, *ALL_SMS)
_OUTSIDERS = (SM(8, 0), SM120, SM121, *ALL_SMS)


def _module(
    inspector: Inspector, name: str, site: ConditionSite, path: str, line: int, outcomes: dict[str, Truth]
) -> str:
    shut = [sm for sm in (SM120, SM121) if outcomes[str(cuda_world(sm))] is Truth.NEVER]
    targets = shut or [SM120, SM121]
    action = "OPEN" if shut else "CLOSE"
    table = "\n".join(f"        {world:12} {outcome.value}" for world, outcome in outcomes.items())
    line_of_site = recipe_line(site)
    used = sorted(set(re.findall(r"\bSM\d*\b", line_of_site)) | {f"SM{sm}" for sm in targets})
    return f'''"""TODO: what the gate guards, in one line."""

from patcher.arch import {", ".join(used)}
from patcher.gate import Action, Gate, Level
from patcher.sites import ConditionSite


class {"".join(word.capitalize() for word in name.split("-"))}(Gate):
    """TODO: what it guards, why the targets are {"kept out" if shut else "let in"}, what has to hold to change that.

    Found at {path}:{line} of {inspector.engine.called} {inspector.version}. Who gets through:

{table}
    """

    id = "{name}"
    engine = "{inspector.engine.name}"
    family = "TODO"
    title = "TODO"
    action = Action.{action}
    level = Level.EXPERIMENTAL
    targets = frozenset({{{", ".join(f"SM{sm}" for sm in targets)}}})
    sites = (
        {line_of_site}
    )
    evidence = ()  # TODO: Evidence("https://…", "what it says", "what was measured")
    risk = "TODO: what goes wrong where it should not have been done."
    usage = "TODO: the flags that use it."
    measure = "TODO: how to tell whether it helps."
    examples = ()  # TODO: miniatures before and after; the tests want one of each kind
'''


def _kebab(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "new-gate"


# -- one site --------------------------------------------------------------------------------------------------------


def recipe_line(site: Site, old: Site | None = None) -> str:
    """A site as a recipe writes it. Long values that ``old`` has as well are left to be copied from it."""
    words = [_code(site.versions), _code(site.path), _code(site.within)]
    same = ""
    for part in fields(site):  # type: ignore[arg-type]
        value = getattr(site, part.name)
        default = part.default if part.default is not MISSING else None
        if part.name in ("versions", "path", "within", "kind") or value == default:
            continue
        text = _code(value)
        if old is not None and len(text) > _WIDE and value == getattr(old, part.name, None):
            text, same = "…", f"  # … as in the site for {old.versions}"
        words.append(f"{part.name}={text}")
    return f"{type(site).__name__}({', '.join(words)}),{same}"


_WIDE = 60


def _code(value: object) -> str:
    if is_dataclass(value) and not isinstance(value, type):
        inner = [f"{p.name}={_code(getattr(value, p.name))}" for p in fields(value)]
        return f"{type(value).__name__}({', '.join(inner)})"
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(sorted(_code(v) for v in value))}}})"
    if isinstance(value, SM):
        return f"SM({value.major}, {value.minor})"
    if isinstance(value, tuple):
        inner = [_code(part) for part in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
