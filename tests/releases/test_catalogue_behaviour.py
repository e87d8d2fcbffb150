"""Recipes on real releases: the real patched functions run beside the originals, for every SM.

The same for all others; for the targets what the recipe promises. Nothing here uses the proof's own way to run
functions (patcher.values): names are linked from source, torch and kernels are stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from patcher.arch import SM, SM120, SM121, parse_sm
from patcher.catalogue import gates
from patcher.gate import Direction, State
from scripts import releases
from scripts.matrix import inspector_of
from tests.releases.linker import Anything, Linker, torch_on

pytestmark = pytest.mark.releases

SMS = [parse_sm(text) for text in ("80", "90", "100", "103", "110", "120", "121")]
TARGETS = {SM120, SM121}
LIMIT = 101_376
# Base classes that the functions do not use.
_BASES = {"FusedMoEMethodBase": object, "LinearMethodBase": object, "QuantizationConfig": object}
Way = Mapping[str, Any]


@cache
def overlay(gate: str, release: str, direction: Direction) -> Mapping[str, bytes]:
    plan = inspector_of(release).plan({gates("sglang")[gate]: direction})
    assert plan.changes, f"{gate} changes nothing in {release}"
    return {path: change.after for path, change in plan.changes.items()}


def pair(gate: str, release: str, sm: SM, module: str, name: str, stand_ins: Way) -> list[Any]:
    """The original and the patched function, linked on a GPU of this SM."""
    direction = gates("sglang")[gate].direction()
    if gates("sglang")[gate].closes_when_unmet:
        direction = Direction.CLOSE
    root, names = releases.unpacked("sglang", release), {"torch": torch_on(sm), **_BASES, **stand_ins}
    patched = overlay(gate, release, direction)
    return [Linker(root, "sglang", names, files).get(module, name) for files in ({}, patched)]


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """What a call gives: its value, or the exception's kind."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__


def asked(*true: str) -> Any:
    """An object whose ``is_x()`` holds for the named ones only."""

    class Answers:
        def __getattr__(self, name: str) -> Callable[[], bool]:
            return lambda: name in true

    return Answers()


def each(*cases: str) -> list[Any]:
    """Every release with every SM."""
    return [pytest.param(release, sm, id=f"{release}-{sm}") for release in cases for sm in SMS]


# -- open ----------------------------------------------------------------------------------------------------------

_RUNNER = "sglang.srt.model_executor.model_runner"


@pytest.mark.parametrize(("release", "sm"), each("0.5.7", "0.5.9", "0.5.12.post1"))
def test_autotune_lists_cutlass_for_the_targets(release: str, sm: SM) -> None:
    name = "ModelRunner._should_run_flashinfer_autotune"
    original, patched = pair("moe-autotune-cutlass", release, sm, _RUNNER, name, {})
    for backend in ("auto", "triton", "flashinfer_trtllm", "flashinfer_mxfp4", "flashinfer_cutlass"):
        for disabled in (False, True):
            arguments = SimpleNamespace(
                disable_flashinfer_autotune=disabled, moe_runner_backend=backend, moe_a2a_backend="none"
            )
            runner = SimpleNamespace(server_args=arguments, spec_algorithm=asked(), is_draft_worker=False)
            before, after = original(runner), patched(runner)
            if sm in TARGETS and backend == "flashinfer_cutlass" and not disabled:
                assert (before, after) == (False, True)
            else:
                assert after is before


@pytest.mark.parametrize(("release", "sm"), each("0.4.9", "0.5.3", "0.5.4.post1"))
def test_nvfp4_method_is_made_on_the_targets(release: str, sm: SM) -> None:
    module, name = "sglang.srt.layers.quantization.modelopt_quant", "ModelOptNvFp4FusedMoEMethod.__init__"
    stand_ins = {"should_use_flashinfer_trtllm_moe": lambda: False, "get_moe_runner_backend": lambda: asked()}
    original, patched = pair("moe-nvfp4-method", release, sm, module, name, stand_ins)
    before, after = (outcome(function, SimpleNamespace(), SimpleNamespace()) for function in (original, patched))
    assert before == (None if sm in (SM(10, 0), SM(10, 3)) else "ValueError")
    assert after == (None if sm in TARGETS else before)


_RESOLVERS = {
    "0.5.15": ("sglang.srt.arg_groups.overrides", "_moe_runner_backend_quant_constraints"),
    "0.5.18": ("sglang.srt.arg_groups.overrides", "_moe_runner_backend_quant_constraints"),
    "0.5.23": ("sglang.srt.arg_groups.overrides", "_moe_runner_backend_quant_constraints"),
}


@pytest.mark.parametrize(("release", "sm"), each(*_RESOLVERS))
def test_mixed_checkpoints_get_the_cutlass_runner_on_the_targets(release: str, sm: SM) -> None:
    functions = pair("moe-runner-modelopt-mixed", release, sm, *_RESOLVERS[release], {"logger": Anything()})
    for quantization in ("modelopt_fp4", "modelopt_mixed", "fp8", None):
        for runner in ("auto", "triton", "flashinfer_trtllm"):
            view = SimpleNamespace(
                moe_runner_backend=runner,
                quantization=quantization,
                moe_a2a_backend="none",
                ep_size=1,
                speculative_moe_runner_backend=None,
            )
            before, after = (outcome(function, view) for function in functions)
            assert not isinstance(before, str), before
            if sm in TARGETS and quantization == "modelopt_mixed" and runner == "auto":
                assert before.get("moe_runner_backend", "auto") == "auto"
                assert after["moe_runner_backend"] == "flashinfer_cutlass"
            else:
                assert after == before


@pytest.mark.parametrize(("release", "sm"), each("0.5.21", "0.5.23"))
def test_sm121_spares_dense_weights_as_sm120_does(release: str, sm: SM) -> None:
    module, name = "sglang.srt.model_loader.utils", "should_deepgemm_weight_requant_ue8m0"
    wrapper = SimpleNamespace(ENABLE_JIT_DEEPGEMM=True, DEEPGEMM_SCALE_UE8M0=True)
    stand_ins = {"deep_gemm_wrapper": wrapper}
    original, patched = pair("deepgemm-requant", release, sm, module, name, stand_ins)
    before, after = original([128, 128]), patched([128, 128])
    assert before is (sm != SM120)
    assert after is (sm not in TARGETS)


# -- close ---------------------------------------------------------------------------------------------------------

_CONFIGURERS = {
    "0.4.9": ("sglang.srt.layers.quantization.deep_gemm_wrapper.configurer", TARGETS),
    "0.5.4": ("sglang.srt.layers.deep_gemm_wrapper.configurer", TARGETS),
    "0.5.12.post1": ("sglang.srt.layers.deep_gemm_wrapper.configurer", TARGETS),
    "0.5.18": ("sglang.srt.layers.deep_gemm_wrapper.configurer", {SM121}),
    "0.5.20": ("sglang.srt.layers.deep_gemm_wrapper.configurer", {SM121}),
}


@pytest.mark.parametrize(("release", "sm"), each(*_CONFIGURERS))
def test_deepgemm_is_closed_to_whom_it_has_no_code_for(release: str, sm: SM) -> None:
    module, closed = _CONFIGURERS[release]
    enabled = SimpleNamespace(SGLANG_ENABLE_JIT_DEEPGEMM=SimpleNamespace(get=lambda: True))
    stand_ins = {
        "deep_gemm": SimpleNamespace(m_grouped_fp8_fp4_gemm_nt_contiguous=len),
        "envs": enabled,
        "get_bool_env_var": lambda *args, **kwargs: True,
        "logger": Anything(),
    }
    original, patched = pair("deepgemm-enable", release, sm, module, "_compute_enable_deep_gemm", stand_ins)
    before, after = original(), patched()
    assert before is (sm != SM(8, 0) and not (sm == SM120 and release == "0.5.18"))
    assert after is (False if sm in closed else before)


@pytest.mark.parametrize(("release", "sm"), each("0.5.6.post2", "0.5.9"))
def test_block_fp8_auto_takes_cutlass_on_the_targets(release: str, sm: SM) -> None:
    module = "sglang.srt.layers.quantization.fp8_utils"
    names = [f"{kind}_w8a8_block_fp8_linear_with_fallback" for kind in ("flashinfer_gemm", "cutlass", "deepgemm")]
    stand_ins = {
        "deep_gemm_wrapper": SimpleNamespace(ENABLE_JIT_DEEPGEMM=False),
        "is_flashinfer_available": lambda: True,
        **{name: name for name in (*names, "triton_w8a8_block_fp8_linear", "aiter_w8a8_block_fp8_linear")},
        "_use_aiter": False,
    }
    original, patched = pair("gemm-fp8-block-auto", release, sm, module, "_dispatch_auto_backend", stand_ins)
    before, after = original(), patched()
    if sm in TARGETS:
        assert (before, after) == (names[0], names[1])
    else:
        assert after == before


@pytest.mark.parametrize(("release", "sm"), each("0.5.10", "0.5.18", "0.5.23"))
def test_the_fp8_cutlass_assertion_keeps_the_targets_out(release: str, sm: SM) -> None:
    module, name = "sglang.srt.layers.quantization.fp8", "Fp8MoEMethod.__init__"
    stand_ins = {
        "get_moe_runner_backend": lambda: asked("is_cutlass"),
        "cutlass_fp8_supported": lambda: True,
        "_mxfp8_to_block_fp8_required": False,
    }
    functions = pair("moe-fp8-cutlass", release, sm, module, name, stand_ins)
    config = SimpleNamespace(
        weight_block_size=[128, 128], convert_mxfp8_to_block_fp8=None, is_fp4_experts=False, dequant_fp4_to_fp8=False
    )
    before, after = (outcome(function, SimpleNamespace(), config) for function in functions)
    assert before == ("AssertionError" if sm in (SM(8, 0), SM(11, 0)) else None)
    assert after == ("AssertionError" if sm in TARGETS else before)


# -- fix -------------------------------------------------------------------------------------------------------------

_TRITON = SimpleNamespace(
    next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
    cdiv=lambda a, b: (a + b - 1) // b,
    jit=lambda function: function,
)


class Kernel:
    """Records launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.launches.append((grid, kwargs))


class Tensor:
    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        self.shape, self._size = shape, size

    def element_size(self) -> int:
        return self._size

    def stride(self, axis: int) -> int:
        return axis + 1


def launched(function: Callable[..., Any], kernel: Kernel, *args: Any) -> tuple[Any, dict[str, Any]]:
    kernel.launches.clear()
    function(*args)
    ((grid, kwargs),) = kernel.launches
    return grid, kwargs


_PREFILL = {
    "0.4.6": "sglang.srt.layers.attention.triton_ops.prefill_attention",
    "0.5.11": "sglang.srt.layers.attention.triton_ops.prefill_attention",
    "0.5.23": "sglang.kernels.ops.attention.prefill_attention",
}


@pytest.mark.parametrize(("release", "sm"), each(*_PREFILL))
def test_prefill_attention_fits(release: str, sm: SM) -> None:
    kernel = Kernel()
    stand_ins = {"triton": _TRITON, "_fwd_kernel": kernel}
    name = "context_attention_fwd"
    original, patched = pair("prefill-attention-block", release, sm, _PREFILL[release], name, stand_ins)
    failing = 0
    for head in (13, 64, 72, 80, 96, 128, 160, 256):
        for size in (2, 4):
            q, index = Tensor((256, 8, head), size), Tensor((2,), 4)
            args = (q, q, q, q, index, index, 128)
            before, after = launched(original, kernel, *args), launched(patched, kernel, *args)
            if sm not in TARGETS:
                assert after == before
                continue
            m, n, d = (after[1][key] for key in ("BLOCK_M", "BLOCK_N", "BLOCK_DMODEL"))
            assert m == n and 16 <= m <= 64 and size * (m * d + n * d + m * n) <= LIMIT
            assert m == 64 or size * (64 * d * 2 + 64 * 64) > LIMIT, "no smaller than it must be"
            failing += before[1]["BLOCK_M"] * (2 * d + before[1]["BLOCK_M"]) * size > LIMIT
            assert {k: v for k, v in after[1].items() if k not in ("BLOCK_M", "BLOCK_N")} == {
                k: v for k, v in before[1].items() if k not in ("BLOCK_M", "BLOCK_N")
            }
    assert (failing > 0) is (sm in TARGETS)


_EXTEND = {
    "0.4.6": "sglang.srt.layers.attention.triton_ops.extend_attention",
    "0.5.3": "sglang.srt.layers.attention.triton_ops.extend_attention",
    "0.5.8.post1": "sglang.srt.layers.attention.triton_ops.extend_attention",
}


@pytest.mark.parametrize(("release", "sm"), each(*_EXTEND))
def test_extend_attention_fits(release: str, sm: SM) -> None:
    kernel = Kernel()
    stand_ins = {"triton": _TRITON, "_fwd_kernel": kernel}
    original, patched = pair("extend-attention-block", release, sm, _EXTEND[release], "extend_attention_fwd", stand_ins)
    too_large = 0
    for lq, lv in ((64, 64), (128, 128), (192, 128), (256, 256), (288, 256), (576, 512)):
        for size in (2, 4):
            q, v, index = Tensor((64, 8, lq), size), Tensor((64, 8, lv), size), Tensor((3,), 4)
            args = (q, q, v, v, q, v, index, index, index, None, True, None, 40)
            before, after = launched(original, kernel, *args), launched(patched, kernel, *args)
            if sm not in TARGETS:
                assert after == before
                continue
            assert needed(after[1], size) <= LIMIT
            too_large += needed(before[1], size) > LIMIT
            if size == 2:  # upstream's own sizes from 0.5.9 on
                wanted = (64, 128) if lq <= 128 else (64, 64) if lq <= 256 else (32, 32)
                assert (after[1]["BLOCK_M"], after[1]["BLOCK_N"]) == wanted
    assert (too_large > 0) is (sm in TARGETS)


def needed(launch: Mapping[str, int], size: int) -> int:
    """Bytes of shared memory: query tile, the larger of key and value tile, scores."""
    m, n = launch["BLOCK_M"], launch["BLOCK_N"]
    wide = launch["BLOCK_DMODEL"] + launch["BLOCK_DPE"]
    return size * (m * wide + n * max(launch["BLOCK_DMODEL"], launch["BLOCK_DV"]) + m * n)


def test_the_sizes_are_those_that_upstream_takes_from_0_5_9_on() -> None:
    name = "_get_block_sizes_for_extend_attention"
    for release, module in (("0.5.9", _EXTEND["0.5.3"]), ("0.5.23", "sglang.kernels.ops.attention.extend_attention")):
        names = {"torch": torch_on(SM120), "triton": _TRITON, "_is_gfx95": False}
        sizes = Linker(releases.unpacked("sglang", release), "sglang", names).get(module, name)
        for lq, wanted in ((64, (64, 128)), (128, (64, 128)), (256, (64, 64)), (576, (32, 32))):
            assert sizes(lq, min(lq, 512))[3:5] == wanted


_DOUBLE_SPARSITY = "sglang.srt.layers.attention.triton_ops.double_sparsity_attention"


@pytest.mark.parametrize(("release", "sm"), each("0.4.6", "0.5.8.post1", "0.5.10"))
def test_double_sparsity_fits(release: str, sm: SM) -> None:
    kernel = Kernel()
    stand_ins = {"triton": _TRITON, "_fwd_kernel": kernel}
    name = "extend_attention_fwd"
    original, patched = pair("double-sparsity-block", release, sm, _DOUBLE_SPARSITY, name, stand_ins)
    too_large = set()
    for lq, lv in ((64, 64), (128, 128), (192, 128), (256, 256), (576, 512)):
        for size in (2, 4):
            q, v, index = Tensor((64, 8, lq), size), Tensor((64, 8, lv), size), Tensor((3,), 4)
            args = (q, q, v, v, q, v, index, index, index, index, index, 40)
            before, after = launched(original, kernel, *args), launched(patched, kernel, *args)
            if sm not in TARGETS:
                assert after == before
                continue
            assert needed(after[1], size) <= LIMIT
            if needed(before[1], size) > LIMIT:
                too_large.add((lq, size))
            kept = {key: value for key, value in after[1].items() if key not in ("BLOCK_M", "BLOCK_N")}
            assert kept == {key: before[1][key] for key in kept}
    assert too_large == ({(128, 4), (192, 4), (256, 2), (256, 4), (576, 2), (576, 4)} if sm in TARGETS else set())


_CONFIG = {
    "0.4.6": "sglang.srt.layers.moe.fused_moe_triton.fused_moe",
    "0.5.4": "sglang.srt.layers.moe.fused_moe_triton.fused_moe_triton_config",
    "0.5.8.post1": "sglang.srt.layers.moe.fused_moe_triton.fused_moe_triton_config",
    "0.5.13": "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config",
}
_SETTINGS = SimpleNamespace(enable_deterministic_inference=False)


def moe_bytes(config: Mapping[str, int], size: int) -> int:
    """Bytes of shared memory: a tile of each operand for every stage but one."""
    tiles = config["BLOCK_SIZE_K"] * (config["BLOCK_SIZE_M"] + config["BLOCK_SIZE_N"])
    return (config.get("num_stages", 3) - 1) * tiles * size


@pytest.mark.parametrize(("release", "sm"), each(*_CONFIG))
def test_the_default_tiles_of_fp8_experts_fit(release: str, sm: SM) -> None:
    stand_ins = {"get_global_server_args": lambda: _SETTINGS}
    functions = pair("moe-triton-fp8-config", release, sm, _CONFIG[release], "get_default_config", stand_ins)
    too_large = 0
    for tokens in (1, 16, 64, 128, 4096):
        for experts in (8, 60, 128):
            for dtype, size in (("fp8_w8a8", 1), ("int8_w8a8", 1), ("int8_w8a16", 2), ("float32", 4), (None, 2)):
                for blocks in (None, [128, 128]):
                    args = (tokens, experts, 768, 2048, 8, dtype, False, blocks)
                    before, after = (function(*args) for function in functions)
                    if sm not in TARGETS or dtype != "fp8_w8a8" or blocks:
                        assert after == before
                        continue
                    assert moe_bytes(after, size) <= LIMIT
                    too_large += moe_bytes(before, size) > LIMIT
                    assert after == upstream_default(tokens, experts)
    assert (too_large > 0) is (sm in TARGETS)


@cache
def _config_of_0_5_14() -> Callable[..., dict[str, int]]:
    module = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
    names = {
        "torch": torch_on(SM120),
        "get_global_server_args": lambda: _SETTINGS,
        "_get_cuda_shared_memory_per_block_optin": lambda: LIMIT,
    }
    function: Callable[..., dict[str, int]] = Linker(releases.unpacked("sglang", "0.5.14"), "sglang", names).get(
        module, "get_default_config"
    )
    return function


def upstream_default(tokens: int, experts: int) -> dict[str, int]:
    """What upstream gives a GPU with 101,376 bytes from 0.5.14 on."""
    return _config_of_0_5_14()(tokens, experts, 768, 2048, 8, "fp8_w8a8", False, None)


_INKLING = {
    "0.5.16": ("sglang.srt.layers.moe.moe_runner.triton_utils.inkling_moe", TARGETS),
    "0.5.18": ("sglang.kernels.ops.moe.inkling_moe", {SM120}),
    "0.5.23": ("sglang.kernels.ops.moe.inkling_moe", {SM120}),
}


class Operand(Tensor):
    """A tensor with the dtype and the size that Inkling's grouped GEMM asks about."""

    nbytes = 1024
    device = "cuda"

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, 2)
        self.dtype = "bfloat16"

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return 300


@pytest.mark.parametrize(("release", "sm"), each(*_INKLING))
def test_the_grouped_gemm_of_inkling_fits(release: str, sm: SM) -> None:
    module, wrong = _INKLING[release]
    kernel = Kernel()
    profiler = SimpleNamespace(record_function=lambda name: nullcontext())
    torch = torch_on(sm, profiler=profiler, empty=lambda shape, **more: Operand(shape), float32="float32")
    stand_ins = {"triton": _TRITON, "_grouped_gemm_kernel": kernel, "torch": torch}
    functions = pair("inkling-grouped-gemm-stages", release, sm, module, "grouped_gemm_triton", stand_ins)
    for rows, stages in ((16, 4), (128, 3)):
        a, b, index = Operand((64, 4096)), Operand((256, 4096, 4096)), Operand((257,))
        launches = [launched(f, kernel, a, b, 256, index, index, index, index, rows)[1] for f in functions]
        for launch in launches:
            for name in "ABC":
                launch.pop(name)
        before, after = launches
        assert before["num_stages"] == (3 if sm not in wrong and sm in TARGETS else stages)
        if sm in TARGETS:
            assert (moe_bytes(before, 2) > LIMIT) is (sm in wrong and rows == 16)
            assert moe_bytes(after, 2) <= LIMIT
            assert after == {**before, "num_stages": 3}
        else:
            assert after == before


_INVARIANT = "sglang.srt.batch_invariant_ops.batch_invariant_ops"


@pytest.mark.parametrize(("release", "sm"), each("0.5.3.post3", "0.5.8.post1", "0.5.23"))
def test_the_matmuls_of_deterministic_inference_fit(release: str, sm: SM) -> None:
    kernel = Kernel()
    sizes = {"bfloat16": 2, "float16": 2, "float32": 4}
    torch = torch_on(sm, **{name: name for name in sizes})
    torch.empty = lambda shape, device, dtype: Matrix(shape, dtype)
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(
        major=sm.major, minor=sm.minor, multi_processor_count=48
    )
    stand_ins = {
        "triton": _TRITON,
        "torch": torch,
        "get_device_core_count": lambda: 48,
        "matmul_kernel_persistent": kernel,
        "bmm_kernel_persistent": kernel,
    }
    names: dict[str, tuple[int, ...]] = {"_matmul_persistent_triton": (), "bmm_batch_invariant": (8,)}
    if release.startswith("0.5.3"):
        names = {"matmul_persistent": ()}
    for name, batch in names.items():
        functions = pair("batch-invariant-stages", release, sm, _INVARIANT, name, stand_ins)
        for dtype, size in sizes.items():
            a, b = Matrix((*batch, 64, 4096), dtype), Matrix((*batch, 4096, 1024), dtype)
            more = (dtype,) if name.startswith("_") and release == "0.5.23" else ()
            before, after = (launched(function, kernel, a, b, *more)[1] for function in functions)
            needs = [moe_bytes(config, size) + 4096 * size for config in (before, after)]
            if sm in TARGETS and dtype == "float16":
                assert needs == [106_496, 57_344]
                assert after == {**before, "num_stages": 2}
            else:
                assert after == before
                assert sm not in TARGETS or needs[1] <= LIMIT


class Matrix:
    """A tensor for matmuls: a shape, a dtype by name."""

    device = "cuda"

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)

    def stride(self, axis: int) -> int:
        return axis + 1

    def numel(self) -> int:
        return 4096


# -- borders -----------------------------------------------------------------------------------------------------------

BORDERS = [
    ("moe-autotune-cutlass", "120", "0.5.12.post1", State.CLOSED, "0.5.13", State.OPEN),
    ("deepgemm-enable", "120", "0.5.12.post1", State.TOO_OPEN, "0.5.13", State.CLOSED),
    ("deepgemm-enable", "121", "0.5.12.post1", State.TOO_OPEN, "0.5.13", State.TOO_OPEN),
    ("deepgemm-ue8m0", "121", "0.5.20", State.REFUSED, "0.5.21", State.OPEN),
    ("extend-attention-block", "120", "0.5.8.post1", State.CLOSED, "0.5.9", State.OPEN),
    ("moe-nvfp4-method", "120", "0.5.4.post1", State.CLOSED, "0.5.4.post2", State.OPEN),
    ("moe-runner-modelopt-fp4", "121", "0.5.12.post1", State.ABSENT, "0.5.13", State.OPEN),
    ("moe-fp8-cutlass", "121", "0.5.9", State.CLOSED, "0.5.10", State.TOO_OPEN),
    ("mxfp4-gptoss-moe", "120", "0.5.4.post1", State.CLOSED, "0.5.4.post2", State.TOO_OPEN),
    ("mxfp4-gptoss-moe", "120", "0.5.9", State.TOO_OPEN, "0.5.10", State.CLOSED),
    ("moe-triton-fp8-config", "121", "0.5.13.post1", State.CLOSED, "0.5.14", State.OPEN),
    ("inkling-grouped-gemm-stages", "120", "0.5.17", State.CLOSED, "0.5.18", State.CLOSED),
    ("inkling-grouped-gemm-stages", "121", "0.5.17", State.CLOSED, "0.5.18", State.OPEN),
    ("gemm-fp8-per-tensor", "120", "0.5.16", State.CLOSED, "0.5.17", State.OPEN),
    ("diffusion-attention-default", "120", "0.5.6.post2", State.TOO_OPEN, "0.5.7", State.ABSENT),
    ("gemm-fp8-block-auto", "120", "0.5.9", State.TOO_OPEN, "0.5.10", State.CLOSED),
    ("gemm-fused-a", "120", "0.5.4.post1", State.TOO_OPEN, "0.5.4.post2", State.REFUSED),
    ("gemm-fused-a", "120", "0.5.14", State.REFUSED, "0.5.15", State.OPEN),
    ("mxfp4-method", "120", "0.5.16", State.REFUSED, "0.5.17", State.OPEN),
    ("dsv4-moe", "121", "0.5.15.post1", State.REFUSED, "0.5.16", State.OPEN),
]


@pytest.mark.parametrize(("gate", "sm", "last", "was", "first", "became"), BORDERS)
def test_a_state_is_right_at_the_border(gate: str, sm: str, last: str, was: State, first: str, became: State) -> None:
    recipe = gates("sglang")[gate]
    states = [inspector_of(release).report(recipe, parse_sm(sm)) for release in (last, first)]
    assert [self_checked(report) for report in states] == [was, became]


def self_checked(report: Any) -> State:
    """The state that the gate itself has: unmet requirements of other packages aside."""
    state: State = report.state
    code = all(f.met for f in report.findings if not f.needs.startswith("SGLang"))
    return State.CLOSED if state is State.REFUSED and not code and report.gate.action.value == "open" else state


@pytest.mark.parametrize(
    ("release", "sm120", "sm121"),
    [
        ("0.5.12.post1", State.TOO_OPEN, State.TOO_OPEN),
        ("0.5.13", State.CLOSED, State.TOO_OPEN),
        ("0.5.19", State.CLOSED, State.TOO_OPEN),
        ("0.5.20", State.OPEN, State.TOO_OPEN),
        ("0.5.21", State.OPEN, State.OPEN),
        ("0.5.23", State.OPEN, State.OPEN),
    ],
)
@pytest.mark.parametrize("has_apis", [True, False])
def test_deepgemm_by_release_sm_and_installed_deep_gemm(
    release: str, sm120: State, sm121: State, has_apis: bool
) -> None:
    inspector = inspector_of(release)
    inspector.facts = DeepGemm(has_apis)
    for sm, state in ((SM120, sm120), (SM121, sm121)):
        report = inspector.report(gates("sglang")["deepgemm-enable"], sm)
        if state is State.OPEN and not has_apis:
            assert report.state is State.CLOSED and "upstream checks for itself" in report.reason
        else:
            assert report.state is state


class DeepGemm:
    """Facts of an environment whose deep_gemm has the functions of the SM120 kernels, or none of them."""

    def __init__(self, has_apis: bool) -> None:
        self.has_apis = has_apis

    def version(self, distribution: str) -> str | None:
        return ("0.2.0" if self.has_apis else "0.1.0") if distribution == "sgl-deep-gemm" else None

    def assumed(self, distribution: str) -> bool:
        return distribution == "sgl-deep-gemm"

    def tree(self, package: str) -> None:
        return None
