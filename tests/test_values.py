"""Value sites: functions run with stand-ins, and fixes that are written only when the values prove right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.errors import ProofFailed, Unrecognised
from patcher.gate import Action, Direction, State
from patcher.predicate import ALL_WORLDS, World, cuda_world
from patcher.proof import Claim, prove
from patcher.values import Run, Tensor, ValueCheck, ValueSite, run_cases
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from tests.machinery import FILE, IN_TREE, applied, gate_of, inspect

Folder = Callable[[Mapping[str, str]], Path]

_SOURCE = """\
import torch
import triton

from sglang.srt.utils import is_cuda, is_sm120_supported

_is_cuda = is_cuda()
if _is_cuda:
    CAPABILITY = torch.cuda.get_device_capability()


@triton.jit
def _kernel(x, BLOCK):
    pass


def _rows(x):
    return x.shape[0]


def launch(x: "torch.Tensor", warps=4):
    if _is_cuda and CAPABILITY[0] >= 9:
        BLOCK = 128
    else:
        BLOCK = 64
{guard}    _kernel[(triton.cdiv(_rows(x), BLOCK),)](x, BLOCK=BLOCK, warps=warps)
"""
_GUARD = "    # sm-patch: a-gate\n    if {test}:\n        {body}\n"
_BODY = "BLOCK = 64 // x.element_size()"


def _source(test: str = "", body: str = _BODY) -> str:
    return _SOURCE.replace("{guard}", _GUARD.format(test=test, body=body) if test else "")


def _needed(run: Run, case: Mapping[str, int]) -> int:
    (launch,) = run.launches
    return int(launch.kwargs["BLOCK"] * case["size"])


_CHECK = ValueCheck(
    cases=[{"size": 2}, {"size": 4}],
    arguments=lambda case: {"x": Tensor((100, 8), case["size"])},
    needed=_needed,
    limits={SM120: 128, SM121: 128},
    varies=frozenset({"BLOCK"}),
)
_SITE = ValueSite("", FILE, "launch", names=("BLOCK",), body=_BODY, check=_CHECK)
_GATE = gate_of(_SITE, action=Action.FIX)


def test_a_function_runs_with_stand_ins(folder_of: Folder) -> None:
    view = inspect(folder_of({**mini.UTILS, IN_TREE: _source()})).view(_SITE)

    blocks = {}
    for world in ALL_WORLDS:
        (run,) = run_cases(view, "launch", world, [{"x": Tensor((100, 8))}])
        (launch,) = run.launches
        assert launch.kernel == "_kernel" and launch.kwargs["warps"] == 4
        assert launch.grid == (-(-100 // launch.kwargs["BLOCK"]),)
        blocks[str(world)] = launch.kwargs["BLOCK"]
    assert {name for name, block in blocks.items() if block == 128} == {
        "SM90",
        "SM100",
        "SM101",
        "SM103",
        "SM110",
        "SM120",
        "SM121",
    }


def test_the_fix(folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _source()}))

    assert [inspector.report(_GATE, sm).state for sm in (SM120, SM121)] == [State.CLOSED, State.CLOSED]
    assert inspector.report(_GATE, SM120).direction is Direction.FIX
    assert applied(inspector, [_GATE]) == {IN_TREE: _source("is_sm120_supported()")}
    step = inspector.plan({_GATE: Direction.FIX}).steps[0]
    assert step.checks[-1] == "values"


def test_right_values_are_left_alone(folder_of: Folder) -> None:
    gate = gate_of(_SITE, action=Action.FIX, upstream_since="0.5.9")
    text = _source().replace("BLOCK = 128", "BLOCK = 32 if CAPABILITY[0] == 12 else 128")
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))

    assert inspector.report(gate, SM120).reason == "upstream has the right values since 0.5.9"
    assert applied(inspector, [gate]) == {}


_SPOILT = {
    "for one target only": _source("torch.cuda.get_device_capability() == (12, 0)"),
    "for SM100 too": _source("CAPABILITY[0] >= 10"),
    "an AMD GPU too": _source("torch.cuda.get_device_capability()[0] == 12"),
    "a body of its own": _source("is_sm120_supported()", "BLOCK = 32"),
    "no guard": _source().replace("BLOCK = 128", "BLOCK = 16"),
    "a launch changed too": _source("is_sm120_supported()").replace("warps=warps", "warps=8"),
}


@pytest.mark.parametrize("text", _SPOILT.values(), ids=_SPOILT)
def test_the_proof_rejects(text: str, folder_of: Folder) -> None:
    before = inspect(folder_of({**mini.UTILS, IN_TREE: _source()}))
    after = before.replaced({IN_TREE: text.encode()})
    with pytest.raises(ProofFailed):
        prove(before.view(_SITE), after.view(_SITE), Claim([_SITE], Direction.FIX, SM12X))


@pytest.mark.parametrize(
    ("body", "check"),
    [
        ("BLOCK = 128 // x.element_size()", "targets"),  # 32 bits fit, 16 bits do not
        ("warps = 1", "only-sites|others-same"),  # binds what it must not
    ],
)
def test_a_fix_that_does_not_prove_is_not_planned(body: str, check: str, folder_of: Folder) -> None:
    checks = ValueCheck(_CHECK.cases, _CHECK.arguments, _needed, {SM120: 100, SM121: 100}, frozenset({"BLOCK"}))
    site = ValueSite("", FILE, "launch", names=("BLOCK",), body=body, check=checks)
    with pytest.raises(ProofFailed, match=check):
        applied(inspect(folder_of({**mini.UTILS, IN_TREE: _source()})), [gate_of(site, action=Action.FIX)])


def test_more_than_the_declared_arguments_may_not_change_on_the_targets(folder_of: Folder) -> None:
    strict = ValueCheck(_CHECK.cases, _CHECK.arguments, _needed, _CHECK.limits, frozenset({"warps"}))
    site = ValueSite("", FILE, "launch", names=("BLOCK",), body=_BODY, check=strict)
    with pytest.raises(ProofFailed, match="values"):
        applied(inspect(folder_of({**mini.UTILS, IN_TREE: _source()})), [gate_of(site, action=Action.FIX)])


_UNFIT = {
    "it imports": ("    import os\n", "imports something"),
    "it decides by something unknown": ("    if torch.is_grad_enabled():\n        pass\n", "no stand-in"),
    "it reaches for the machine": ("    open('x')\n", "NameError"),
}


@pytest.mark.parametrize(("line", "why"), _UNFIT.values(), ids=_UNFIT)
def test_what_cannot_be_run_is_unrecognised(line: str, why: str, folder_of: Folder) -> None:
    text = _SOURCE.replace("{guard}", line)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: text}))

    assert inspector.report(_GATE, SM120).state is State.UNRECOGNISED
    with pytest.raises(Unrecognised, match=why):
        _CHECK.within_limits(inspector.view(_SITE), "launch", cuda_world(SM(12, 0)))


_SETTINGS = """\
import torch
import triton

from sglang.srt.utils import is_sm120_supported

DEFAULT = 128


@triton.jit
def _kernel(x, BLOCK):
    pass


def settings():
    raise RuntimeError("there is no server")


def most():
    return torch.cuda.get_device_properties(0).shared_memory_per_block_optin


def launch(x, most_rows=DEFAULT):
    if settings().exact:
        BLOCK = 1
        return BLOCK
    BLOCK = most_rows if (most() or 0) > 100 else 16
    _kernel[lambda META: (triton.cdiv(x.shape[0], META["BLOCK"]),)](x, BLOCK=BLOCK)
"""


def test_settings_and_what_the_driver_says_are_given_by_world(folder_of: Folder) -> None:
    def given(world: World) -> Mapping[str, Any]:
        return {"settings": lambda: SimpleNamespace(exact=False), "most": lambda: 99 if world.sm == SM120 else 228}

    check = replace(_CHECK, given=given)
    site = replace(_SITE, check=check)
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SETTINGS}))
    view = inspector.view(site)

    def launched(sm: SM) -> tuple[Any, int]:
        (run, _) = check.runs(view, "launch", cuda_world(sm))
        (launch,) = run.launches
        return launch.grid, launch.kwargs["BLOCK"]

    # The default of the argument and the grid, which is a function, are what they come to.
    assert launched(SM120) == ((7,), 16)
    assert launched(SM(9, 0)) == ((1,), 128)


def test_what_is_bound_on_the_way_out_is_not_the_place(folder_of: Folder) -> None:
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _SETTINGS}))
    place = inspector.find(_SITE).place
    assert place is not None and place.text.startswith("BLOCK = most_rows")


def test_without_them_it_is_not_recognised(folder_of: Folder) -> None:
    view = inspect(folder_of({**mini.UTILS, IN_TREE: _SETTINGS})).view(_SITE)
    (run, _) = _CHECK.runs(view, "launch", cuda_world(SM120))
    assert run.raised == "RuntimeError"


_INSIDE = """\
import triton

from sglang.srt.utils import is_sm120_supported


@triton.jit
def _kernel(x, BLOCK):
    pass


def launch(x):
    if x.ndim == 2:
        BLOCK = 128
        _kernel[(1,)](x, BLOCK=BLOCK)
        return BLOCK
    else:
        raise ValueError("two dimensions")
"""


def test_a_statement_inside_a_branch_can_be_the_place(folder_of: Folder) -> None:
    check = replace(_CHECK, varies=frozenset({"BLOCK", "return"}))
    inspector = inspect(folder_of({**mini.UTILS, IN_TREE: _INSIDE}))
    gate = gate_of(replace(_SITE, check=check, inside=("ndim",)), action=Action.FIX)
    text = applied(inspector, [gate])[IN_TREE]
    assert "        if is_sm120_supported():\n            BLOCK = 64 // x.element_size()\n" in text
    assert inspector.replaced({IN_TREE: text.encode()}).report(gate, SM120).state is State.OPEN
