"""Full attention of hybrid GDN models (Qwen3-Next, Qwen3.5) with the flashinfer backend."""

from patcher.arch import SM
from patcher.gate import Action, Evidence, Example, Gate, Level
from patcher.located import AcceptsSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_REGISTRY = "srt/layers/attention/attention_registry.py"
_FILE = f"sglang/{_REGISTRY}"


_NAMES = "is_blackwell_supported, is_cuda"


def _registry(accepted: str, test: str = "is_blackwell_supported()", names: str = _NAMES) -> str:
    return f"""\
import logging

logger = logging.getLogger(__name__)


def attn_backend_wrapper(runner, full_attn_backend):
    if cfg := runner.mambaish_config:
        from sglang.srt.utils import {names}

        if runner.hybrid_gdn_config is not None:
            if {test}:
                assert (
                    {accepted}
                ), "not a supported backend on Blackwell GPUs for hybrid GDN models"
            logger.info("Using hybrid linear attention backend for hybrid GDN models.")
        return cfg
    return full_attn_backend
"""


_TRITON = 'runner.server_args.attention_backend == "triton"'
_BOTH = f'{_TRITON}\n                    or runner.server_args.attention_backend == "flashinfer"'
_OPENED = _registry(
    _TRITON,
    "is_blackwell_supported() and not is_sm120_supported()",
    f"{_NAMES}, is_sm120_supported",
)


class HybridGdnAttention(Gate):
    """The assert that limits hybrid GDN models on Blackwell GPUs to the triton (and trtllm_mha) attention backend.

    From 0.5.4.post2 "Blackwell" includes SM12x here, whose default backend is flashinfer: a default start ends in the
    assert, and the only way out is --attention-backend triton. (In 0.5.3 to 0.5.4.post1 the test means SM10x
    only, and SM12x is not limited.) FlashInfer's attention for SM12x is its ordinary one (fa2), which has no
    quarrel with these models. Upstream lists flashinfer for every Blackwell GPU from 0.5.10, and from 0.5.16 has a
    list of its own for SM12x with flashinfer in it. The recipe lets SM12x past the assert, as it lets SM80
    and SM90 past it; trtllm_mha and fa3 are stopped for SM12x by checks of their own.

    Upstream proposal for SM12x: https://github.com/sgl-project/sglang/pull/18758
    """

    id = "hybrid-gdn-attention"
    engine = "sglang"
    family = "attention"
    title = "hybrid GDN models with the flashinfer attention backend"
    action = Action.OPEN
    level = Level.BACKPORT
    targets = SM12X
    upstream_since = "0.5.10"
    sites = (
        AcceptsSite(
            ">=0.5.3",
            _REGISTRY,
            "attn_backend_wrapper",
            refuses=True,
            witness=SM(8, 0),
            outsider=SM(10, 0),
            leads_to=("triton",),
            accepts="flashinfer",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/18758",
            "the assert split so that SM12x may use flashinfer; closed, the same came by other changes",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/issues/35080",
            "the same assert in the way of other Blackwell GPUs, with what runs once it is out of the way",
        ),
    )
    risk = "A backend that fails on these models would fail later, at model load, instead of at the assert."
    usage = "Nothing to set: flashinfer is the default on SM12x. --attention-backend triton still works."
    measure = "Compare time to first token and decode tokens/s with --attention-backend triton."
    examples = (
        Example("0.5.8.post1", {**mini.UTILS, _FILE: _registry(_TRITON)}, {_FILE: _OPENED}),
        Example("0.5.8.post1", {**mini.UTILS, _FILE: _OPENED}, {}, "open already: nothing to do"),
        Example("0.5.15.post1", {**mini.UTILS, _FILE: _registry(_BOTH)}, {}, "upstream accepts flashinfer"),
        Example(
            "0.5.4",
            {**mini.UTILS, _FILE: _registry(_TRITON, "is_sm100_supported()", "is_sm100_supported, is_cuda")},
            {},
            "the assert is not reached on SM12x",
        ),
    )
