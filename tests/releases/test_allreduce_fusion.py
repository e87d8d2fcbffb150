"""The all-reduce fusion on real releases: the real patched functions run for every SM beside the originals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM, parse_sm
from patcher.catalogue import gates
from patcher.gate import Direction
from patcher.plan import FileChange
from scripts import releases
from scripts.matrix import inspector_of
from tests.releases.linker import Linker, torch_on

pytestmark = pytest.mark.releases

SMS = [parse_sm(text) for text in ("80", "90", "100", "103", "110", "120", "121")]
TARGETS = {SM(12, 0), SM(12, 1)}
GATE = gates("sglang")["allreduce-fusion"]
AUTO = gates("sglang")["allreduce-fusion-auto"]
RUN_TIME = {
    "0.5.8.post1": ("sglang.srt.layers.communicator", "apply_flashinfer_allreduce_fusion"),
    "0.5.14": ("sglang.srt.layers.communicator", "apply_flashinfer_allreduce_fusion"),
    "0.5.18": ("sglang.srt.layers.communicator", "apply_flashinfer_allreduce_fusion"),
    "0.5.23": ("sglang.srt.layers.layer_boundary.residual.add_norm", "flashinfer_ar_fusion_applies"),
}
FUSION = "sglang.srt.layers.flashinfer_comm_fusion"


@cache
def changes(release: str, auto: bool = False, direction: Direction = Direction.OPEN) -> Mapping[str, FileChange]:
    return inspector_of(release).plan({AUTO if auto else GATE: direction}).changes


def pair(release: str, sm: SM, module: str, name: str, stand_ins: Mapping[str, Any], **plan: Any) -> list[Any]:
    """The original and the patched function of a release, linked on a GPU of this SM."""
    patched = {path: change.after for path, change in changes(release, **plan).items()}
    root = releases.unpacked("sglang", release)
    names = {"torch": torch_on(sm), **stand_ins}
    return [Linker(root, "sglang", names, overlay).get(module, name) for overlay in ({}, patched)]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """What a call gives: its value, or the exception's kind and text."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def flags(fusion: bool) -> dict[str, Any]:
    """Stand-ins for every era's way to ask whether the user turned the fusion on."""
    backend = "auto" if fusion else None
    arguments = SimpleNamespace(
        enable_flashinfer_allreduce_fusion=fusion, flashinfer_allreduce_fusion_backend=backend, attn_cp_size=1
    )
    context = SimpleNamespace(comm=SimpleNamespace(flashinfer_allreduce_fusion_backend=backend))
    return {
        "is_flashinfer_available": lambda: True,
        "is_dp_attention_enabled": lambda: False,
        "is_flashinfer_allreduce_unavailable": lambda: False,
        "get_global_server_args": lambda: arguments,
        "get_server_args": lambda: arguments,
        "get_exec": lambda: context,
    }


@pytest.mark.parametrize("release", RUN_TIME)
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_run_time_gate(release: str, sm: SM) -> None:
    for fusion in (True, False):
        original, patched = pair(release, sm, *RUN_TIME[release], flags(fusion))
        for batch in (0, 1, 2048, 2049, 100_000):
            before, after = bool(original(batch)), bool(patched(batch))
            if sm in TARGETS:
                assert not before
                assert after is (fusion and 0 < batch <= 2048)
            else:
                assert after is before
    assert sm not in (SM(9, 0), SM(10, 0)) or original(1) is not None


@pytest.mark.parametrize("release", ["0.5.14", "0.5.18", "0.5.23"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_backend_resolver(release: str, sm: SM) -> None:
    original, patched = pair(release, sm, FUSION, "_resolve_backend", flags(True))
    for backend in ("auto", "trtllm", "mnnvl", "cutedsl"):
        for several_nodes in (False, True):
            before, after = outcome(original, backend, several_nodes), outcome(patched, backend, several_nodes)
            if sm not in TARGETS:
                assert after == before
            elif backend in ("auto", "trtllm") and not several_nodes:
                assert before[0] == "ValueError"
                assert after == "trtllm"
            else:
                kind, text = after
                assert kind == "ValueError"
                assert "SM12X" in text
                assert backend in text
                assert "non-Blackwell" not in text


class Driver:
    """A CUDA driver whose GPUs have multicast or not."""

    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED=1)
    CUmulticastGranularity_flags = SimpleNamespace(CU_MULTICAST_GRANULARITY_RECOMMENDED=1)
    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUmulticastObjectProp = SimpleNamespace

    def __init__(self, multicast: bool) -> None:
        self.multicast = multicast

    def cuMemGetAllocationGranularity(self, prop: Any, flag: int) -> tuple[int, int]:
        return 0, 2 << 20

    def cuMulticastGetGranularity(self, prop: Any, flag: int) -> tuple[int, int | None]:
        return (0, 512 << 20) if self.multicast else (801, None)


@pytest.mark.parametrize("release", ["0.5.11", "0.5.14", "0.5.18", "0.5.23"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_workspace_preflight(release: str, sm: SM) -> None:
    dtype = SimpleNamespace()
    name = "_flashinfer_trtllm_workspace_allocation_sizes"
    stand_ins = {**flags(True), "torch": torch_on(sm, float32=SimpleNamespace())}
    original, patched = pair(release, sm, FUSION, name, stand_ins)
    prop = SimpleNamespace(requestedHandleTypes=1)
    for multicast in (True, False):
        arguments = (Driver(multicast), prop, 2, 2048, 4096, dtype)
        before, after = outcome(original, *arguments), outcome(patched, *arguments)
        if sm not in TARGETS:
            assert after == before
        else:
            assert multicast or before[0] == "RuntimeError"
            assert len(after) == 3
            assert all(size % (2 << 20) == 0 for size in after)
            assert all(size < 512 << 20 for size in after)


def auto_enabled(function: Callable[..., Any], release: str, nodes: int) -> Any:
    config = SimpleNamespace(architectures=["Qwen3MoeForCausalLM"], model_type="", hidden_size=1)
    model = SimpleNamespace(hf_config=config, dtype=None)
    view = SimpleNamespace(
        get_model_config=lambda: model,
        flashinfer_allreduce_fusion_backend=None,
        tp_size=2,
        enable_dp_attention=False,
        nnodes=nodes,
        moe_a2a_backend="none",
        attn_cp_size=1,
        disable_custom_all_reduce=False,
    )
    return function(view)


@pytest.mark.parametrize("release", ["0.5.18", "0.5.23"])
@pytest.mark.parametrize("sm", SMS, ids=str)
def test_auto_enable(release: str, sm: SM) -> None:
    stand_ins = {
        **flags(False),
        "model_config_of": lambda view: view.get_model_config(),
        "attn_dp_enabled_of": lambda view: False,
        "register_post_process": lambda function: function,
        "envs": SimpleNamespace(SGLANG_FLASHINFER_MNNVL_CUTEDSL_AR_FUSION=SimpleNamespace(get=lambda: False)),
    }
    module, name = "sglang.srt.arg_groups.overrides", "_flashinfer_allreduce_fusion_auto_enable"
    original, patched = pair(release, sm, module, name, stand_ins, auto=True)
    for nodes in (1, 2):
        before, after = auto_enabled(original, release, nodes), auto_enabled(patched, release, nodes)
        if sm in TARGETS:
            assert before == {}
            assert after == ({"flashinfer_allreduce_fusion_backend": "auto"} if nodes == 1 else {})
        else:
            assert after == before
