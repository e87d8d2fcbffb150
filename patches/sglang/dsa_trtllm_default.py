"""The default backends of DeepSeek sparse attention (DSA, formerly NSA): trtllm, which SM12x must not get."""

from patcher.anchors import Mentions
from patcher.gate import Action, Direction, Evidence, Example, Gate, Level
from patcher.sites import GuardSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini
from patches.sglang._trtllm_gen import NO_CUBINS

_ARGS = "srt/server_args.py"
_OVERRIDES = "srt/arg_groups/overrides.py"


def _refuse(name: str) -> str:
    return f"""\
raise ValueError(
    "The trtllm backend of DeepSeek sparse attention has no kernel for SM12X. Name others with "
    "--{name}-prefill-backend and --{name}-decode-backend."
)
"""


def _chosen(name: str) -> str:
    return f'"trtllm" in (self.{name}_prefill_backend, self.{name}_decode_backend)'


_DECLARED = (
    '"trtllm" in ('
    'declared.get("dsa_prefill_backend", view.dsa_prefill_backend), '
    'declared.get("dsa_decode_backend", view.dsa_decode_backend))'
)


def _overrides(guard: str = "") -> str:
    return f"""\
from sglang.srt.runtime_context import get_platform


def _dsa_split_backend_resolution(view):
    declared = {{}}
    if view.enable_hisparse:
        prefill = declared.get("dsa_prefill_backend", view.dsa_prefill_backend)
        return declared
    default = "trtllm" if get_platform().major >= 10 else "flashmla_kv"
    if view.dsa_prefill_backend is None:
        declared["dsa_prefill_backend"] = default
    if view.dsa_decode_backend is None:
        declared["dsa_decode_backend"] = default
{guard}    prefill = declared.get("dsa_prefill_backend", view.dsa_prefill_backend)
    decode = declared.get("dsa_decode_backend", view.dsa_decode_backend)
    print(f"Set DSA backends: prefill={{prefill}}, decode={{decode}}.")
    return declared
"""


_GUARD = "".join(
    f"    {line}\n"
    for line in (
        "# sm-patch: dsa-trtllm-default",
        f"if get_platform().is_sm120 and {_DECLARED}:",
        *(f"    {line}" for line in _refuse("dsa").splitlines()),
    )
)
_FILE = f"sglang/{_OVERRIDES}"


class DsaTrtllmDefault(Gate):
    """The default DSA backends (DeepSeek-V3.2, GLM-5): trtllm for every GPU of major 10 and above.

    From 0.5.9 a server that names no DSA backend gets trtllm for decode, from 0.5.10 for both with an fp8 KV
    cache, wherever the major is at least 10. That means SM12x as well, for which there is no such kernel: the first
    request dies with ``TllmGenFmhaRunner: Unsupported architecture``. (0.5.17 takes GLM with an fp8 KV cache out:
    there SM12x gets flashinfer_sparse_mla, before the point that the recipe guards.) The other default,
    Hopper's flashmla, has no SM12x code either, so the recipe chooses nothing: it raises at start-up and names the
    flags, also where trtllm was asked for by hand. Earlier releases (0.5.3 to 0.5.8.post1) choose flashmla_sparse.
    """

    id = "dsa-trtllm-default"
    engine = "sglang"
    family = "dsa"
    title = "default DSA backends: not trtllm"
    action = Action.CLOSE
    level = Level.REPORTED
    targets = SM12X
    sites = (
        GuardSite(
            ">=0.5.9,<0.5.13",
            _ARGS,
            "ServerArgs._set_default_nsa_backends",
            Mentions(("logger", "warning", "nsa_prefill_backend")),
            _refuse("nsa"),
            True,
            _chosen("nsa"),
        ),
        GuardSite(
            ">=0.5.13,<0.5.15",
            _ARGS,
            "ServerArgs._set_default_dsa_backends",
            Mentions(("logger", "warning", "dsa_prefill_backend")),
            _refuse("dsa"),
            True,
            _chosen("dsa"),
        ),
        GuardSite(
            ">=0.5.15",
            _OVERRIDES,
            "_dsa_split_backend_resolution",
            Mentions(("prefill", "get", "declared", "dsa_prefill_backend")),
            _refuse("dsa"),
            True,
            _DECLARED,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/40558",
            "0.5.20 on SM120, a GLM DSA model: TllmGenFmhaRunner, unsupported architecture",
        ),
        Evidence("https://github.com/sgl-project/sglang/issues/29562", "trtllm DSA selected for GLM-5.2 on SM120"),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/37105",
            "what else keeps DSA models from SM120: kernels made for the shared memory of datacenter GPUs",
        ),
        NO_CUBINS,
    )
    risk = "Where it is left open, the server loads the whole model and dies at the first request."
    usage = (
        "--dsa-prefill-backend and --dsa-decode-backend (--nsa-… before 0.5.13): tilelang, or flashinfer_sparse_mla."
    )
    measure = "Nothing to measure: the server starts with backends that run, or says which flags to set."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _overrides()}, {_FILE: _overrides(_GUARD)}, "", Direction.CLOSE),
        Example("0.5.23", {**mini.PLATFORM, _FILE: _overrides(_GUARD)}, {}, "closed already", Direction.CLOSE),
    )
