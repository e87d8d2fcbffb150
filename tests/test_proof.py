"""Each check of the proof refuses what it is there to refuse: results of real edits, tampered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher import catalogue
from patcher.errors import ProofFailed
from patcher.gate import Direction
from patcher.plan import Inspector
from patcher.proof import CHECKS, Claim, prove
from patcher.source import SourceTree
from tests.conftest import Met

GATE = catalogue.gates("sglang")["allreduce-fusion"]
AUTO = catalogue.gates("sglang")["allreduce-fusion-auto"]
COMMUNICATOR = "sglang/srt/layers/communicator.py"
FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"


def example_files(number: int) -> tuple[str, Mapping[str, str]]:
    example = GATE.examples[number]
    return example.version, example.before


Folder = Callable[[Mapping[str, str]], Path]


def check(folder_of: Folder, met: Met, number: int, path: str, tamper: Callable[[str], str]) -> tuple[str, ...]:
    """Plan an example, tamper with the result, and prove it."""
    version, before = example_files(number)
    inspector = Inspector(catalogue.engine_named("sglang"), SourceTree(folder_of(before)), version, met)
    after = {p: change.after for p, change in inspector.plan({GATE: Direction.OPEN}).changes.items()}
    tampered = tamper(after[path].decode())
    result = inspector.replaced({**after, path: tampered.encode()})
    sites = [site for site in inspector.sites(GATE) if f"sglang/{site.path}" == path]
    return prove(inspector.view(sites[0]), result.edited_view(sites[0]), Claim(sites, Direction.OPEN, GATE.targets))


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
        check(folder_of, met, number, path, tamper)
    assert f"'{failing}'" in raised.value.what
    assert raised.value.exit_code == 3


def test_a_plan_whose_proof_fails_changes_nothing(folder_of: Folder, met: Met, monkeypatch: pytest.MonkeyPatch) -> None:
    from patcher import edits

    version, before = example_files(1)
    root = folder_of(before)
    honest = edits.rewrite_expression
    monkeypatch.setattr(edits, "rewrite_expression", lambda text, t: honest(text, t).replace("_is_sm90", "_is_sm10"))
    inspector = Inspector(catalogue.engine_named("sglang"), SourceTree(root), version, met)
    with pytest.raises(ProofFailed, match="allreduce-fusion"):
        inspector.plan({GATE: Direction.OPEN})
