"""The server's default attention backend for MLA models."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X

_ARGS = "srt/server_args.py"
_DECIDES = ("attention_backend",)
_FLASHINFER = ("flashinfer",)


class AttentionMlaDefault(Gate):
    """The default that picks flashinfer for MLA models (DeepSeek, GLM-4.7-Flash, Kimi) on SM100 and triton elsewhere.

    On SM12x triton works. The flashinfer backend starts, and garbage was reported from it for an MLA model on
    SM120, so making it the default would be wrong. --attention-backend flashinfer still tries it by hand.
    """

    id = "attention-mla-default"
    engine = "sglang"
    family = "attention"
    title = "default attention backend of MLA models: flashinfer instead of triton"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.4.7,<0.5.4.post1",
            "srt/model_executor/model_runner.py",
            "ModelRunner.model_specific_adjustment",
            decides=_DECIDES,
            leads_to=_FLASHINFER,
        ),
        LocatedSite(
            ">=0.5.4.post1,<0.5.10",
            _ARGS,
            "ServerArgs._handle_attention_backend_compatibility",
            decides=_DECIDES,
            leads_to=_FLASHINFER,
        ),
        LocatedSite(">=0.5.10,<0.5.19", _ARGS, "ServerArgs._get_default_attn_backend", leads_to=_FLASHINFER),
        LocatedSite(
            ">=0.5.19",
            "srt/arg_groups/model_override_base.py",
            "get_default_attn_backend",
            leads_to=_FLASHINFER,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/18874",
            "garbage from GLM-4.7-Flash (MLA) on SM120 with --attention-backend flashinfer",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/18758", "proposed flashinfer here for SM12x; closed"),
    )
    risk = "Garbage was reported from an MLA model with the flashinfer backend on SM120; triton works."
