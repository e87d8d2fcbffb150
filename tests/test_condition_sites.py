"""Refusing conditions, exact targets, comparisons widened: the edit, the proof, and who is let through."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.condition import Truth
from patcher.errors import ProofFailed, Refused, Unrecognised
from patcher.gate import Action, Direction, Gate, Level, State
from patcher.operations import _refused
from patcher.predicate import ALL_WORLDS
from patcher.proof import Claim, prove
from patcher.sites import Assigns, ConditionSite, EqualsSite, GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

_IMPORT = "from sglang.srt.utils import get_device_sm, is_cuda, is_sm100_supported, is_sm120_supported\n\n"


def _enable(test: str) -> str:
    return f"{_IMPORT}def enable(flag):\n    if {test}:\n        return False\n    return flag\n"


@pytest.mark.parametrize(
    ("direction", "targets", "before", "after"),
    [
        (Action.CLOSE, SM12X, "get_device_sm() < 90", "get_device_sm() < 90 or is_sm120_supported()"),
        (Action.OPEN, SM12X, "not is_sm100_supported()", "(not is_sm100_supported()) and not is_sm120_supported()"),
        (Action.CLOSE, {SM121}, "get_device_sm() < 90", "get_device_sm() < 90 or is_cuda() and get_device_sm() == 121"),
        (
            Action.CLOSE,
            {SM120, SM121},
            "get_device_sm() < 90 or get_device_sm() == 120",
            "get_device_sm() < 90 or get_device_sm() == 120 or is_cuda() and get_device_sm() == 121",
        ),
    ],
)
def test_a_refusing_condition(
    direction: Action, targets: frozenset[SM], before: str, after: str, folder_of: Folder
) -> None:
    site = ConditionSite("", FILE, "enable", refuses=True)
    gate = gate_of(site, action=direction, targets=frozenset(targets))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _enable(before)}))

    text = applied(inspector, [gate])[IN_TREE]
    place = inspector.replaced({IN_TREE: text.encode()}).find(site).place
    assert place is not None
    original = inspector.find(site).place
    assert original is not None
    for world in ALL_WORLDS:
        if world.sm in targets:
            assert (place.admits(world) is Truth.NEVER) is (direction is Action.CLOSE)
        else:
            assert place.admits(world) is original.admits(world)
    assert eval_shape(text) == eval_shape(_enable(after))


def eval_shape(text: str) -> str:
    """The text without the parentheses that only group operands of one kind."""
    return ast.dump(_Flat().visit(ast.parse(text)))


class _Flat(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        values: list[ast.expr] = []
        for value in node.values:
            same = isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)
            values += value.values if same and isinstance(value, ast.BoolOp) else [value]
        return ast.BoolOp(node.op, values)


def test_exactly_one_sm_is_spelled_exactly(folder_of: Folder) -> None:
    site = ConditionSite("", FILE, "enable")
    text = _enable("is_sm100_supported()")
    for sm in (SM120, SM121):
        gate = gate_of(site, targets=frozenset({sm}))
        inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
        changed = inspector.replaced({IN_TREE: applied(inspector, [gate])[IN_TREE].encode()})
        place = changed.find(site).place
        assert place is not None
        assert {w.sm for w in ALL_WORLDS if place.admits(w) is Truth.ALWAYS and w.sm in SM12X} == {sm}
        assert {str(w) for w in ALL_WORLDS if place.admits(w) is Truth.ALWAYS} == {"SM100", "SM101", "SM103", f"SM{sm}"}


def test_a_too_wide_spelling_fails_the_proof(folder_of: Folder) -> None:
    site = ConditionSite("", FILE, "enable")
    before = inspect(folder_of({**mini.UTILS, IN_TREE: _enable("is_sm100_supported()")}))
    after = before.replaced({IN_TREE: _enable("is_sm100_supported() or is_sm120_supported()").encode()})
    with pytest.raises(ProofFailed, match="others-same"):
        prove(before.view(site), after.view(site), Claim([site], Direction.OPEN, frozenset({SM120})))


_RUNNER = """\
from sglang.srt.utils import is_sm100_supported, is_sm120_supported


def runner(view, backend):
    if backend == "auto" and view.quantization == "fp4" and is_sm120_supported():
        backend = "cutlass"
    return backend
"""
_EQUALS = EqualsSite("", FILE, "runner", mentions=("is_sm120_supported",), equals="fp4", also="mixed")


def test_a_comparison_takes_another_value_for_the_targets(folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _RUNNER}))
    wide = '(view.quantization == "fp4" or (view.quantization == "mixed" and is_sm120_supported()))'

    assert inspector.report(gate_of(_EQUALS), SM120).state is State.CLOSED
    text = applied(inspector, [gate_of(_EQUALS)])[IN_TREE]
    assert text == _RUNNER.replace('view.quantization == "fp4"', wide)
    assert inspector.replaced({IN_TREE: text.encode()}).report(gate_of(_EQUALS), SM121).state is State.OPEN


@pytest.mark.parametrize(
    "wide",
    [
        'view.quantization in ("fp4", "mixed")',  # for SM100 as well, were it not for the rest
        'view.quantization == "mixed"',
        '(view.quantization == "fp4" or is_sm120_supported()) and backend',
    ],
)
def test_another_widening_fails_the_proof_or_is_equal_for_others(wide: str, folder_of: Folder) -> None:
    text = _RUNNER.replace("is_sm120_supported():", "(is_sm120_supported() or is_sm100_supported()):")
    before = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    after = before.replaced({IN_TREE: text.replace('view.quantization == "fp4"', wide).encode()})
    with pytest.raises(ProofFailed):
        prove(before.view(_EQUALS), after.view(_EQUALS), Claim([_EQUALS], Direction.OPEN, SM12X))


def test_a_change_beside_the_site_fails_the_proof(folder_of: Folder) -> None:
    site = ConditionSite("", FILE, "pick")
    text = f"{_IMPORT}def pick(a):\n    return dict(x=a + 1, y=2 if is_sm100_supported() else 3)\n"
    before = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    right = text.replace("is_sm100_supported() else", "(is_sm100_supported() or is_sm120_supported()) else")
    claim = Claim([site], Direction.OPEN, SM12X)

    good = before.replaced({IN_TREE: right.encode()})
    assert prove(before.view(site), good.view(site), claim)
    bad = before.replaced({IN_TREE: right.replace("a + 1", "a + 2").encode()})
    with pytest.raises(ProofFailed, match="beside the declared site"):
        prove(before.view(site), bad.view(site), claim)


def test_a_guard_that_closes(folder_of: Folder) -> None:
    text = f"{_IMPORT}def enable(flag):\n    chosen = flag\n    return chosen\n"
    site = GuardSite("", FILE, "enable", Assigns("chosen", fails_on=frozenset()), "return False\n", closes=True)
    gate = gate_of(site, action=Action.CLOSE)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))

    assert inspector.report(gate, SM120).direction is Direction.CLOSE
    guard = "    # sm-patch: a-gate\n    if is_sm120_supported():\n        return False\n    chosen"
    changed = applied(inspector, [gate])
    assert changed == {IN_TREE: text.replace("    chosen", guard, 1)}
    after = inspector.replaced({IN_TREE: changed[IN_TREE].encode()})
    assert after.report(gate, SM120).state is State.CLOSED
    with pytest.raises(Unrecognised, match="only close"):
        after.plan({gate: Direction.OPEN})


# -- states ------------------------------------------------------------------------------------------------------


def _gate(**more: object) -> type[Gate]:
    return gate_of(ConditionSite("", FILE, "enable"), **more)  # type: ignore[arg-type]


def test_a_refused_gate_is_shown_and_never_opened(folder_of: Folder) -> None:
    gate = _gate(level=Level.REFUSED)
    report = inspect(folder_of({**mini.UTILS, IN_TREE: _enable("is_sm100_supported()")})).report(gate, SM120)

    assert (report.state, report.direction) == (State.REFUSED, None)
    assert "it crashes" in report.reason
    error = _refused(report)
    assert isinstance(error, Refused) and error.exit_code == 3


def test_code_that_the_release_has_not(folder_of: Folder) -> None:
    gate = _gate(needs_release=">=0.5.15", needs_because="the kernel is not in it")
    root = folder_of({**mini.UTILS, IN_TREE: _enable("is_sm100_supported()")})

    early, late = inspect(root, "0.5.14").report(gate, SM120), inspect(root, "0.5.15").report(gate, SM120)
    assert (early.state, early.direction) == (State.REFUSED, None)
    assert "SGLang >=0.5.15" in early.reason and "the kernel is not in it" in early.reason
    assert (late.state, late.direction) == (State.CLOSED, Direction.OPEN)


def test_since_when_is_told_by_sm(folder_of: Folder) -> None:
    gate = _gate(upstream_since={SM120: "0.5.10", SM121: "0.5.21"})
    root = folder_of({**mini.UTILS, IN_TREE: _enable("is_sm100_supported() or is_sm120_supported()")})

    assert inspect(root, "0.5.21").report(gate, SM121).reason == "upstream lets it in since 0.5.21"
    assert inspect(root, "0.5.20").report(gate, SM121).reason == "upstream lets it in"
    assert inspect(root, "0.5.20").report(gate, SM120).reason == "upstream lets it in since 0.5.10"


def test_a_gate_that_closes_where_a_requirement_is_unmet(folder_of: Folder) -> None:
    text = _enable("is_sm100_supported() or is_sm120_supported()")
    root = folder_of({**mini.UTILS, IN_TREE: text})
    gate = _gate(action=Action.CLOSE, closes_when_unmet=True, needs_release=">=0.5.15", needs_because="no kernel")

    early, late = inspect(root, "0.5.14").report(gate, SM120), inspect(root, "0.5.15").report(gate, SM120)
    assert (early.state, early.direction) == (State.TOO_OPEN, Direction.CLOSE)
    assert (late.state, late.direction) == (State.OPEN, None)


# -- what is assumed -----------------------------------------------------------------------------------------------


def _auto(test: str) -> str:
    return f'{_IMPORT}def pick(backend):\n    if {test}:\n        backend = "triton"\n    return backend\n'


def test_an_assumed_part_decides_who_is_let_through(folder_of: Folder) -> None:
    text = _auto('backend == "auto" and is_sm120_supported()')
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    site = ConditionSite("", FILE, "pick", mentions=("auto",), refuses=True, outsider=SM120)
    loose = inspector.find(site).place
    strict = inspector.find(replace(site, assuming="backend == 'auto'")).place
    assert loose is not None and strict is not None
    for world in ALL_WORLDS:
        refused = world.sm in SM12X
        assert loose.admits(world) is (Truth.DEPENDS if refused else Truth.ALWAYS)
        assert strict.admits(world) is (Truth.NEVER if refused else Truth.ALWAYS)


def test_an_assumed_part_that_is_not_there_is_unrecognised(folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _auto("backend and is_sm120_supported()")}))
    site = ConditionSite("", FILE, "pick", refuses=True, outsider=SM120, assuming="backend == 'auto'")
    report = inspector.find(site)
    assert report.place is None and report.error is not None
    assert "is not part of the condition" in report.error.what


def test_an_assumed_part_that_another_recipe_shut_does_not_hide_the_site(folder_of: Folder) -> None:
    """Two gates in series: the second is found and closed although the first already keeps the targets out."""
    lines = 'ON = os.environ.get("ON") == "1" and not is_sm120_supported()\nFAST = ON and get_device_sm() >= 100\n'
    text = f"import os\n\n{_IMPORT}{lines}"
    gate = gate_of(ConditionSite("", FILE, "", mentions=("ON",), assuming="ON"), action=Action.CLOSE)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))
    assert inspector.report(gate, SM121).direction is Direction.CLOSE
    changed = applied(inspector, [gate])[IN_TREE]
    assert "FAST = ON and (get_device_sm() >= 100 and not is_sm120_supported())" in changed


def test_of_two_parts_the_one_that_asks_nothing_else_is_widened(folder_of: Folder) -> None:
    source = (
        "import torch\n\n\ndef make(runner):\n"
        "    major = torch.cuda.get_device_capability()[0]\n"
        "    assert (major == 8 and not runner.mla) or major == 9\n"
    )
    site = ConditionSite("", FILE, "make", witness=SM(9, 0), outsider=SM(7, 5))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: source}))
    text = applied(inspector, [gate_of(site)])[IN_TREE]
    assert "(major == 8 and not runner.mla) or (major == 9 or (" in text or "or major == 9 or " in text


@pytest.mark.parametrize(
    ("head", "written"),
    [
        ("import torch\n", "torch.version.cuda is not None and torch.cuda.is_available() and torch.cuda.get_device"),
        ("import torch\nfrom sglang.srt.utils import get_device_sm\n", "is_sm120_supported()"),
    ],
)
def test_the_longest_way_is_the_last(head: str, written: str, folder_of: Folder) -> None:
    source = f"{head}\n\ndef make():\n    major = torch.cuda.get_device_capability()[0]\n    return major == 10\n"
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: source}))
    assert written in applied(inspector, [gate_of(ConditionSite("", FILE, "make"))])[IN_TREE]


def test_an_import_inside_the_definition_counts(folder_of: Folder) -> None:
    source = (
        "def make():\n    import torch\n\n    major = torch.cuda.get_device_capability()[0]\n    return major == 10\n"
    )
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: source}))
    assert "torch.version.cuda is not None" in applied(inspector, [gate_of(ConditionSite("", FILE, "make"))])[IN_TREE]
