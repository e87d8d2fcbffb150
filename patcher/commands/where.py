"""``sm-patch where``."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from patcher import console
from patcher.cli import Options, called, command
from patcher.commands.scan import through
from patcher.errors import NoEngine

if TYPE_CHECKING:
    from patcher.environment import Environment
    from patcher.gate import Engine
    from patcher.where import Answer, Found, Meaning, UnknownSymbol, Use

_USES_SHOWN = 12


@command
@click.argument("symbol")
@click.option("--all", "everything", is_flag=True, help="Show every use and every module that imports it.")
def where(options: Options, symbol: str, everything: bool) -> int:
    """Where a predicate is defined, how to import it, whom it admits, who uses it. SYMBOL is a name, a dotted path, an
    import statement or an expression such as get_platform().is_sm100."""
    from patcher import history
    from patcher.environment import installation_at
    from patcher.where import Finder, UnknownSymbol

    options.engine = options.engine or _engine_meant(symbol)
    environment, places = options.places()
    documents, unknown = [], []
    for engine, root in places:
        installation = installation_at(environment, engine, root)
        finder = Finder(engine, root, history.symbols(engine.name, installation.version))
        try:
            answer = finder.where(symbol)
        except UnknownSymbol as error:
            unknown.append((engine, error))
            continue
        documents.append({"engine": engine.name, "version": installation.version, **_data(answer)})
        if not options.json:
            console.say(f"{engine.name} {installation.version}, {installation.how}, in {root}")
            _show(answer, everything)
    if not documents:
        raise _nowhere(symbol, environment, unknown)
    if options.json:
        console.show_json("where", {"symbol": symbol, "installations": documents})
    return 0


def _engine_meant(symbol: str) -> str | None:
    """The engine whose package a dotted path begins with."""
    from patcher import catalogue

    head = re.match(r"\s*(?:from\s+|import\s+)?(\w+)(?=[.:\s])", symbol)
    engines = catalogue.engines().values()
    return next((engine.name for engine in engines if head and engine.package == head[1]), None)


def _nowhere(
    symbol: str, environment: Environment, unknown: Sequence[tuple[Engine, UnknownSymbol]]
) -> UnknownSymbol | NoEngine:
    """The error when no engine that is here has it: that of an absent engine that would, else what each has near it."""
    from patcher import catalogue, history
    from patcher.discovery import advise
    from patcher.where import UnknownSymbol, read_question

    here = [engine.name for engine, _ in unknown]
    for engine in catalogue.engines().values():
        name = read_question(symbol, engine.package).name
        if engine.name not in here and name in history.symbols(engine.name):
            what = f"{name} is of {engine.name}, and no {engine.name} is in {environment.label}, only {', '.join(here)}"
            return advise(NoEngine(what, where=str(environment.interpreter or "")), environment, [engine], called())
    if len(unknown) == 1:
        return unknown[0][1]
    hints = [f"{engine.name}: {error.hint}" for engine, error in unknown if error.hint]
    where = ", ".join(dict.fromkeys(error.where for _, error in unknown))
    return UnknownSymbol(f"no engine here defines {symbol}", where=where, hint="\n  ".join(hints))


def _show(answer: Answer, everything: bool) -> None:
    from patcher.vocabulary import speaks

    out = sys.stdout.write
    for remark in answer.remarks:
        out(f"note: {remark}\n")
    for found in answer.found:
        out(f"\n{found.name}\n")
        out(f"  defined  {found.path}:{found.line}  ({found.form})\n")
        for line in found.text.splitlines()[:8]:
            out(f"           | {line}\n")
        for label, statement in zip(["import"] + [""] * len(found.imports), found.imports, strict=False):
            out(f"  {label:8} {statement}\n")
        if found.leads_to:
            out(f"  means    {found.leads_to}\n")
        if found.also and everything:
            _line("also", f"imported for their own use by {', '.join(found.also)}")
        elif found.also:
            _line("also", f"{len(found.also)} modules import it for their own use (--all)")
        if found.meaning is not None:
            _show_meaning(found.meaning)
        elif found.form != "class" and speaks(found.name):
            _line("admits", "cannot be told from its source alone ('sm-patch probe' really calls predicates)")
        for gate in found.gates:
            whom = through(gate)
            _line("gate", f"{gate.path}:{gate.line} {gate.kind.value}, lets through {whom}: {gate.condition[:100]}")
        _show_uses(found.uses, everything)


def _line(label: str, text: str) -> None:
    """A labelled line, wrapped. Not for what is to be copied."""
    sys.stdout.write(f"{console.wrapped(text, ' ' * 11, f'  {label:8} ')}\n")


def _show_meaning(meaning: Meaning) -> None:
    if meaning.note:
        _line("admits", meaning.note)
        return
    if meaning.truth:
        _line("admits", ", ".join(f"SM{sm}" for sm in meaning.admits) or "no SM")
        refused = [str(sm) for sm, value in meaning.values.items() if value is False]
        _line("refuses", ", ".join(f"SM{sm}" for sm in refused) or "no SM")
        if meaning.cuda:
            _line("needs", meaning.cuda)
        return
    for sm, value in meaning.values.items():
        _line("value", f"SM{sm}: {value}")


def _show_uses(uses: list[Use], everything: bool) -> None:
    out = sys.stdout.write
    gates = sum(use.gate is not None for use in uses)
    _line("used", f"{len(uses)} times, {gates} of them in gates, in {len({use.module for use in uses})} modules")
    if everything:
        for use in uses:
            gate = f"  {use.gate.kind.value}: {use.gate.condition[:90]}" if use.gate else ""
            via = f" as {use.via}" if use.via else ""
            _line("", f"{use.path}:{use.line} in {use.within or 'the module'}{via}{gate}")
        return
    counts = Counter(use.module for use in uses)
    for module, count in counts.most_common(_USES_SHOWN):
        out(f"           {module} ({count})\n")
    if len(counts) > _USES_SHOWN:
        out(f"           and {len(counts) - _USES_SHOWN} more (--all)\n")


def _data(answer: Answer) -> dict[str, Any]:
    return {"remarks": answer.remarks, "found": [_found_data(found) for found in answer.found]}


def _found_data(found: Found) -> dict[str, Any]:
    meaning = found.meaning
    return {
        "name": found.name,
        "module": found.module,
        "path": found.path,
        "line": found.line,
        "form": found.form,
        "imports": found.imports,
        "imported_by": found.also,
        "stands_for": found.leads_to or None,
        "meaning": None
        if meaning is None
        else {
            "predicate": meaning.truth,
            "admits": [str(sm) for sm in meaning.admits],
            "values": {str(sm): value for sm, value in meaning.values.items()},
            "elsewhere": dict(meaning.elsewhere),
            "cuda": meaning.cuda or None,
            "note": meaning.note or None,
        },
        "gates": [
            {"path": g.path, "line": g.line, "kind": g.kind.value, "condition": g.condition, "admits": through(g)}
            for g in found.gates
        ],
        "uses": [
            {
                "module": use.module,
                "path": use.path,
                "line": use.line,
                "within": use.within,
                "via": use.via or None,
                "gate": use.gate.condition if use.gate else None,
            }
            for use in found.uses
        ],
    }
