"""Each check of the proof refuses what it is there to refuse: results of real edits, tampered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.errors import ProofFailed
from patcher.gate import Action, Direction
from patcher.plan import Inspector
from patcher.proof import CHECKS, Claim, prove
from patcher.source import SourceTree
from patches.sglang import _miniature as mini
from tests.conftest import Met
from tests.machinery import IN_TREE, gate_of, inspect

GATE = catalogue.gates("sglang")["allreduce-fusion"]
AUTO = catalogue.gates("sglang")["allreduce-fusion-auto"]
COMMUNICATOR = "sglang/srt/layers/communicator.py"
FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"


def example_files(number: int) -> tuple[str, Mapping[str, str]]:
    example = GATE.examples[number]
    return example.version, example.before


Folder = Callable[[Mapping[str, str]], Path]


def check(
    folder_of: Folder, met: Met, number: int, path: str, tamper: Callable[[str], str], spelled: bool = True
) -> tuple[str, ...]:
    """Plan an example, tamper with the result, and prove it; ``spelled``: only in a declared spelling."""
    version, before = example_files(number)
    inspector = Inspector(catalogue.engine_named("sglang"), SourceTree(folder_of(before)), version, met)
    after = {p: change.after for p, change in inspector.plan({GATE: Direction.OPEN}).changes.items()}
    tampered = tamper(after[path].decode())
    result = inspector.replaced({**after, path: tampered.encode()})
    sites = [site for site in inspector.sites(GATE) if f"sglang/{site.path}" == path]
    claim = inspector.claim(sites, Direction.OPEN, GATE.targets)
    if not spelled:
        claim = Claim(sites, Direction.OPEN, GATE.targets)
    return prove(inspector.view(sites[0]), result.edited_view(sites[0]), claim)


def swap(old: str, new: str) -> Callable[[str], str]:
    def tamper(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return tamper


@pytest.mark.parametrize(("number", "path"), [(0, COMMUNICATOR), (1, COMMUNICATOR), (2, FUSION)])
def test_an_honest_result_passes_every_check(folder_of: Folder, met: Met, number: int, path: str) -> None:
    assert check(folder_of, met, number, path, lambda text: text) == CHECKS


OPEN = "(_is_sm90_supported or _is_sm100_supported or _is_sm120_supported)"
CASES = [
    ("compiles", 1, COMMUNICATOR, swap("def apply", "def (apply")),
    ("only-sites", 1, COMMUNICATOR, lambda text: text + "x = 1\n"),
    ("only-sites", 1, COMMUNICATOR, swap("_is_cuda = is_cuda()\n", "_is_cuda = bool(is_cuda())\n")),
    ("only-sites", 1, COMMUNICATOR, swap("_is_flashinfer_available = is_flashinfer_available()\n", "")),
    ("only-sites", 1, COMMUNICATOR, swap("fusion(size)", "fusion(size=1)")),
    ("only-sites", 1, COMMUNICATOR, swap("def apply_", "@f\ndef apply_")),
    ("only-sites", 1, COMMUNICATOR, swap("    is_sm90_supported,\n", "    is_sm90_supported as x,\n")),
    ("only-sites", 1, COMMUNICATOR, swap("    is_cuda,\n", "")),
    ("others-same", 1, COMMUNICATOR, swap(OPEN, OPEN.replace("_is_sm90_supported or ", ""))),
    ("only-sites", 1, COMMUNICATOR, swap(OPEN, "True")),
    ("others-same", 1, COMMUNICATOR, swap("size > 0", "size >= 0")),
    ("others-same", 1, COMMUNICATOR, swap("_is_cuda and is_sm120_supported()", "_is_cuda and not is_sm90_supported()")),
    ("others-same", 0, COMMUNICATOR, swap("is_cuda() and torch.cuda", "torch.cuda")),
    ("targets", 0, COMMUNICATOR, swap("((12, 0), (12, 1))", "((12, 0),)")),
    ("others-same", 2, FUSION, swap("if get_platform().is_sm120:", "if not get_platform().is_sm100:")),
    ("others-same", 2, FUSION, swap("if get_platform().is_sm120:", "if backend:")),
    ("only-sites", 2, FUSION, swap('return "trtllm"', 'return "mnnvl"')),
    ("only-sites", 2, FUSION, swap("continue\n", "continue\n        else:\n            sizes = ()\n")),
    ("targets", 1, COMMUNICATOR, swap(OPEN, "(_is_sm90_supported or _is_sm100_supported)")),
    ("names-bound", 1, COMMUNICATOR, swap("    is_sm120_supported,\n", "")),
    ("names-bound", 1, COMMUNICATOR, swap("    is_sm120_supported,\n", "    is_sm120_supportd,\n")),
]


@pytest.mark.parametrize(("failing", "number", "path", "tamper"), CASES)
def test_a_tampered_result_is_refused(
    folder_of: Folder, met: Met, failing: str, number: int, path: str, tamper: Callable[[str], str]
) -> None:
    with pytest.raises(ProofFailed) as raised:
        check(folder_of, met, number, path, tamper, spelled=False)
    assert f"'{failing}'" in raised.value.what
    assert raised.value.exit_code == 3


CHAIN = "(_is_sm100_supported or _is_sm120_supported)"
ALIAS = "is_cuda() and torch.cuda.get_device_capability() in ((12, 0), (12, 1))"
EXACT = "in ((12, 0), (12, 1))"
FACTS = (
    *('torch.version.cuda.startswith("13")', 'torch.version.cuda == "12.8"', 'torch.version.cuda == "12.4"'),
    *("not torch.cuda.is_initialized()", 'torch.version.hip == "6.3"', "torch.xpu.is_available()"),
    *("torch.hpu.is_available()", "torch.mps.is_available()", "torch.backends.mps.is_available()"),
)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("place", ["condition", "alias"])
def test_no_version_or_vendor_may_be_let_in_besides(folder_of: Folder, met: Met, fact: str, place: str) -> None:
    whole = {"condition": CHAIN, "alias": ALIAS}[place]
    tamper = swap(whole, f"{whole.removesuffix(')')} or {fact})" if place == "condition" else f"{whole} or {fact}")
    with pytest.raises(ProofFailed, match="others-same"):
        check(folder_of, met, 0, COMMUNICATOR, tamper, spelled=False)


@pytest.mark.parametrize(
    "test",
    [
        ">= (12, 0)",
        "not in ((7,0),(7,5),(8,0),(8,6),(8,7),(8,9),(9,0),(10,0),(10,1),(10,3),(11,0))",
        "in ((12, 0), (12, 1), (8, 8))",
        "in ((12, 0), (12, 1), (6, 0))",
        "in ((12, 0), (12, 1), (20, 0))",
    ],
)
def test_no_sm_that_is_yet_to_come_may_be_let_in(folder_of: Folder, met: Met, test: str) -> None:
    with pytest.raises(ProofFailed, match="others-same"):
        check(folder_of, met, 0, COMMUNICATOR, swap(EXACT, test), spelled=False)


def test_the_targets_are_named_in_a_declared_way(folder_of: Folder, met: Met) -> None:
    same = swap(EXACT, "in [(12, 0), (12, 1)]")
    assert check(folder_of, met, 0, COMMUNICATOR, same, spelled=False) == CHECKS
    with pytest.raises(ProofFailed, match="undeclared way"):
        check(folder_of, met, 0, COMMUNICATOR, same)


GUARD = "if get_platform().is_sm120:"
IN_ORDER = OPEN + " and _is_flashinfer_available and size > 0"
DEFINED = "_is_sm120_supported = _is_cuda and is_sm120_supported()"


def again(text: str) -> str:
    """The guard of the example twice."""
    start, end = text.index("    # sm-patch"), text.index("    if not (get_platform()")
    return text[:start] + text[start:end] + text[start:]


def at_the_end(text: str) -> str:
    line = next(line for line in text.splitlines(keepends=True) if line.startswith(DEFINED))
    return text.replace(line, "") + line


SPOILT = {
    "a guard that binds a parameter": (2, FUSION, swap(GUARD, "if (backend := get_platform().is_sm120):")),
    "a guard with an effect": (2, FUSION, swap(GUARD, "if get_platform().is_sm120 and not setattr(size, 'x', 1):")),
    "a guard twice": (2, FUSION, again),
    "an added target that binds": (1, COMMUNICATOR, swap(OPEN, f"{OPEN[:-20]}(size := _is_sm120_supported))")),
    "an old part that binds": (1, COMMUNICATOR, swap(OPEN, "((size := _is_sm90_supported)" + OPEN[19:])),
    "another order": (1, COMMUNICATOR, swap(IN_ORDER, "size > 0 and _is_flashinfer_available and " + OPEN)),
    "asked twice": (1, COMMUNICATOR, swap("and size > 0", "and size > 0 and size > 0")),
    "asked in vain": (1, COMMUNICATOR, swap(OPEN + " and", f"(size > 1 or not (size > 1)) and {OPEN} and")),
    "something that raises": (1, COMMUNICATOR, swap(OPEN + " and", f"(size.no or not size.no) and {OPEN} and")),
    "something with an effect": (1, COMMUNICATOR, swap(OPEN, f"{OPEN} and (print('x') or True)")),
    "an effect in what is added": (
        1,
        COMMUNICATOR,
        swap(OPEN, f"{OPEN[:-20]}_is_sm120_supported and not setattr(size, 'x', 1))"),
    ),
    "a lambda": (1, COMMUNICATOR, swap(DEFINED, f"{DEFINED} and (lambda: True)")),
    "python's own switch": (1, COMMUNICATOR, swap(DEFINED, f"{DEFINED} or not __debug__")),
    "an import too many": (
        1,
        COMMUNICATOR,
        swap("    is_sm120_supported,\n", "    is_sm120_supported,\n    is_blackwell_supported,\n"),
    ),
    "an alias twice": (1, COMMUNICATOR, swap("\n\ndef apply", f"\n{DEFINED}\n\ndef apply")),
    "an alias with another name": (1, COMMUNICATOR, swap(DEFINED, f"_is_cuda = {DEFINED}")),
    "an alias behind its reader": (1, COMMUNICATOR, at_the_end),
}


@pytest.mark.parametrize(("number", "path", "tamper"), SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("spelled", [True, False])
def test_nothing_else_may_happen(
    folder_of: Folder, met: Met, number: int, path: str, tamper: Callable[[str], str], spelled: bool
) -> None:
    with pytest.raises(ProofFailed):
        check(folder_of, met, number, path, tamper, spelled)


def test_the_checks_of_every_file_are_told(folder_of: Folder, met: Met) -> None:
    from tests.test_values import _SITE
    from tests.test_values import _source as launcher

    path = "srt/layers/two.py"
    fixed = replace(_SITE, path=path)
    right = launcher().replace("BLOCK = 128", "BLOCK = 8").replace("BLOCK = 64", "BLOCK = 8")
    gate = gate_of(_SITE, fixed, name="both", action=Action.FIX)
    files = {**mini.UTILS, IN_TREE: launcher(), f"sglang/{path}": right}
    step = inspect(folder_of(files)).plan({gate: Direction.FIX}).steps[0]
    assert step.checks == (*CHECKS, "values")


def test_a_gate_that_planning_again_would_edit_again_is_not_settled(
    folder_of: Folder, met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, before = example_files(1)
    inspector = Inspector(catalogue.engine_named("sglang"), SourceTree(folder_of(before)), version, met)
    monkeypatch.setattr("patcher.plan.prove", lambda *_: CHECKS)
    monkeypatch.setattr("patcher.plan.splice", lambda data, _: data + b"\n")  # an edit that does not take hold
    with pytest.raises(ProofFailed, match="settled"):
        inspector.plan({GATE: Direction.OPEN})


def test_a_plan_whose_proof_fails_changes_nothing(folder_of: Folder, met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    from patcher import edits

    version, before = example_files(1)
    root = folder_of(before)
    honest = edits.rewrite_expression
    monkeypatch.setattr(edits, "rewrite_expression", lambda text, t: honest(text, t).replace("_is_sm90", "_is_sm10"))
    inspector = Inspector(catalogue.engine_named("sglang"), SourceTree(root), version, met)
    with pytest.raises(ProofFailed, match="allreduce-fusion"):
        inspector.plan({GATE: Direction.OPEN})


_TWO = " and cfg.parallel_config.tensor_parallel_size == 2"
_FAMILY = "current_platform.is_device_capability_family(120)"


@pytest.mark.parametrize(
    ("tamper", "failing"),
    [
        (lambda text: text, ""),
        (swap(_TWO, ""), "only-sites"),
        (swap(_TWO, _TWO.replace("2", "4")), "only-sites"),
        (swap(_TWO, _TWO.replace("and", "or")), "only-sites"),
        (swap(f"current_platform.is_cuda() and {_FAMILY}{_TWO}", f"{_FAMILY}{_TWO}"), "others-same"),
        (swap(f"{_FAMILY}{_TWO}", f"{_FAMILY} and current_platform.other(){_TWO}"), "others-same"),
    ],
)
def test_what_the_targets_must_have_besides(
    folder_of: Folder, met: Met, tamper: Callable[[str], str], failing: str
) -> None:
    gate = catalogue.gates("vllm")["vllm.allreduce-rms-fusion"]
    path = "vllm/config/vllm.py"
    example = next(e for e in gate.examples if _TWO in e.after.get(path, ""))
    inspector = Inspector(catalogue.engine_named("vllm"), SourceTree(folder_of(example.before)), example.version, met)
    after = {p: change.after for p, change in inspector.plan({gate: Direction.OPEN}).changes.items()}
    result = inspector.replaced({**after, path: tamper(after[path].decode()).encode()})
    sites = [site for site in inspector.sites(gate) if f"vllm/{site.path}" == path]
    views = inspector.view(sites[0]), result.edited_view(sites[0])
    claim = inspector.claim(sites, Direction.OPEN, gate.targets)
    if not failing:
        assert prove(*views, claim) == CHECKS
        return
    with pytest.raises(ProofFailed, match=f"'{failing}'"):
        prove(*views, claim)
