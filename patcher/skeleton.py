"""Recipes as text: one site's line, and the skeleton of a whole gate from a place in installed source."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from itertools import combinations
from pathlib import PurePosixPath

from patcher.arch import ALL_SMS, SM, SM120, SM121
from patcher.bindings import bound_names
from patcher.condition import Truth
from patcher.errors import Unrecognised, UsageError
from patcher.keyed import KeyedSite, Unit, entries
from patcher.literals import Literal, constants
from patcher.plan import Inspector
from patcher.predicate import ALL_WORLDS, cuda_world
from patcher.sites import ConditionSite, Site, View, mentioned, view_of
from patcher.traces import Spot, spots, telling, truths


@dataclass(frozen=True)
class Sketch:
    """A gate that could be made of a condition or a list: where, who gets through, and the site that finds it."""

    path: str
    line: int
    condition: str
    truths: dict[str, Truth]
    """By world: whether it lets through."""
    site: ConditionSite | KeyedSite
    text: str
    """The recipe module."""


def sketch(inspector: Inspector, path: str, line: int, name: str, versions: str) -> Sketch:
    """The skeleton of a gate for the condition, or the list of SMs, at a line. ``path`` is relative to the package.

    Raises UsageError where there is none of both, Unrecognised where no site finds exactly it.
    """
    view = view_of(inspector.engine, path, inspector.predicates)
    full = f"{inspector.engine.package}/{path}"
    if view is None:
        raise UsageError("there is no such file in the installation", where=full)
    site: ConditionSite | KeyedSite
    conditions, listed = _conditions_at(view, line), _lists_at(view, line, versions, path)
    if conditions:
        spot, holds = min(conditions, key=lambda pair: _last(pair[0]) - _first(pair[0]))
        site = _site(inspector, spot, holds, path, versions)
        outcomes = dict(zip(map(str, ALL_WORLDS), holds, strict=True))
        if site.refuses:
            outcomes = {world: _OPPOSITE.get(outcome, outcome) for world, outcome in outcomes.items()}
    elif listed:
        spot, site = min(listed, key=lambda pair: _last(pair[0]) - _first(pair[0]))
        place = inspector.find(site).place
        if place is None or place.node is not spot.node:
            raise _no_site(full, spot)
        outcomes = {str(world): place.admits(world) for world in ALL_WORLDS}
    else:
        raise _nothing_at(view, line)
    own = site.name if isinstance(site, KeyedSite) else ""
    called = name or _called(inspector, own or spot.within.rpartition(".")[2] or PurePosixPath(path).stem)
    table = isinstance(spot.node, ast.Dict)
    text = _module(inspector, called, site, full, spot.node.lineno, outcomes, "value" if table else "")
    return Sketch(full, spot.node.lineno, ast.unparse(spot.node), outcomes, site, text)


def _called(inspector: Inspector, name: str) -> str:
    """An id made of a name, with the engine before it where its gates are called so."""
    from patcher import catalogue

    engine = inspector.engine.name
    ids = catalogue.gates(engine)
    prefix = f"{engine}." if ids and all(known.startswith(f"{engine}.") for known in ids) else ""
    return prefix + _kebab(name)


_OPPOSITE = {Truth.ALWAYS: Truth.NEVER, Truth.NEVER: Truth.ALWAYS}


def _conditions_at(view: View, line: int) -> list[tuple[Spot, tuple[Truth, ...]]]:
    """The conditions that tell GPUs apart and that a line is part of."""
    here = [spot for spot in spots(view.source, "condition") if _first(spot) <= line <= _last(spot)]
    told = [(spot, truths(spot, view)) for spot in here]
    return [(spot, holds) for spot, holds in told if len(set(holds)) > 1]


def _lists_at(view: View, line: int, versions: str, path: str) -> list[tuple[Spot, KeyedSite]]:
    """The lists of SMs that a line is part of, with the site of each."""
    found = []
    for spot in spots(view.source, "literal"):
        unit, given = _unit(spot.node), _given(spot)
        if _first(spot) <= line <= _last(spot) and unit is not None and given:
            found.append((spot, KeyedSite(versions, path, spot.within, unit, **given)))
    return found


def _unit(node: ast.AST) -> Unit | None:
    """How a literal writes SMs, where every entry of it can be one and some are known."""
    assert isinstance(node, Literal)
    keys = constants(node)
    if not keys or len(keys) != len(entries(node)):
        return None
    for unit, written in _WRITTEN.items():
        known = {unit.key(sm) for sm in ALL_SMS}
        if known & set(keys) and all(
            type(key) is type(unit.key(SM120)) and written.fullmatch(str(key)) for key in keys
        ):
            return unit
    return None


_WRITTEN = {
    Unit.MAJOR: re.compile(r"[5-9]|1\d"),
    Unit.CAPABILITY: re.compile(r"[5-9]\d|1\d\d"),
    Unit.DOTTED: re.compile(r"([5-9]|1\d)\.\d"),
}


def _given(spot: Spot) -> dict[str, str]:
    """What a literal is given to, as a site says it."""
    owner, definition = spot.owner, spot.definition
    if isinstance(owner, ast.keyword) and owner.arg:
        return {"keyword": owner.arg}
    if isinstance(owner, ast.Call) and owner in getattr(definition, "decorator_list", []):
        return {"decorator": ast.unparse(owner.func).rpartition(".")[2]}
    names = bound_names(owner) if isinstance(owner, ast.Assign | ast.AnnAssign) and owner.value is spot.node else []
    return {"name": names[0]} if len(names) == 1 else {}


def _nothing_at(view: View, line: int) -> UsageError:
    here = any(_first(spot) <= line <= _last(spot) for spot in spots(view.source, "condition"))
    near = {spot.node.lineno for spot in spots(view.source, "condition") if len(set(truths(spot, view))) > 1}
    near |= {spot.node.lineno for spot in spots(view.source, "literal") if _unit(spot.node) and _given(spot)}
    nearest = sorted(near, key=lambda number: abs(number - line))[:3]
    hint = f"the nearest are at line {', '.join(map(str, nearest))}" if near else "this file has none"
    what = "no condition here is known to tell GPUs apart" if here else "there is no condition and no list of SMs here"
    return UsageError(what, where=f"{view.path}:{line}", hint=f"conditions and lists that tell GPUs apart: {hint}")


def _no_site(path: str, spot: Spot) -> Unrecognised:
    return Unrecognised(
        "no site of the plain kind finds this place alone",
        where=f"{path}:{spot.node.lineno}",
        hint="docs/writing-recipes.md says what other kinds of sites there are",
    )


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
    raise _no_site(f"{inspector.engine.package}/{path}", spot)


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
    inspector: Inspector,
    name: str,
    site: ConditionSite | KeyedSite,
    path: str,
    line: int,
    outcomes: dict[str, Truth],
    missing: str,
) -> str:
    shut = [sm for sm in (SM120, SM121) if outcomes[str(cuda_world(sm))] is Truth.NEVER]
    targets = shut or [SM120, SM121]
    keyed = isinstance(site, KeyedSite)
    action = "OPEN" if shut or keyed else "CLOSE"  # a list can only be extended
    table = "\n".join(f"        {world:12} {outcome.value}" for world, outcome in outcomes.items())
    line_of_site = recipe_line(site)
    lacks = f'  # TODO: {missing}="…", the source of what the targets get' if missing else ""
    used = sorted(set(re.findall(r"\bSM\d*\b", line_of_site)) | {f"SM{sm}" for sm in targets})
    kinds = "patcher.keyed import KeyedSite, Unit" if keyed else "patcher.sites import ConditionSite"
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name.removeprefix(f"{inspector.engine.name}.")) if word]
    named = "".join(word.capitalize() for word in words)
    return f'''"""TODO: what the gate guards, in one line."""

from patcher.arch import {", ".join(used)}
from patcher.gate import Action, Gate, Level
from {kinds}


class {named if named.isidentifier() else f"Gate{named}"}(Gate):
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
        {line_of_site}{lacks}
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
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, SM):
        return f"SM({value.major}, {value.minor})"
    if isinstance(value, tuple):
        inner = [_code(part) for part in value]
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
