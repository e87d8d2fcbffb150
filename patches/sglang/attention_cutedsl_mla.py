"""The CuTe DSL MLA decode backend."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang._trtllm_gen import NO_CUBINS, RUNNER

_SAYS = ("CuteDSL MLA backend is only supported on Blackwell GPUs (SM100). Please use a different backend.",)


class AttentionCutedslMla(Gate):
    """The check that keeps ``cutedsl_mla`` to SM100.

    The decode kernel is CuTe DSL code for tcgen05 and tensor memory, which SM12x does not have, and the prefill
    that goes with it by default is ``trtllm_mla``, which has machine code for SM10x only. There is nothing to open.
    """

    id = "attention-cutedsl-mla"
    engine = "sglang"
    family = "attention"
    title = "CuTe DSL MLA decode backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.13,<0.5.15",
            "srt/server_args.py",
            "ServerArgs._handle_attention_backend_compatibility",
            under=("cutedsl_mla",),
            leads_to=_SAYS,
            refuses=True,
        ),
        LocatedSite(
            ">=0.5.15",
            "srt/arg_groups/overrides.py",
            "_cutedsl_prefill_backend_fill",
            leads_to=_SAYS,
            refuses=True,
        ),
    )
    requires = (RUNNER,)
    evidence = (
        NO_CUBINS,
        Evidence(
            "https://github.com/sgl-project/sglang/pull/28837",
            "what SM12x can use for MLA instead: triton, or trtllm_mla for decode alone",
        ),
    )
    risk = "The kernel needs tcgen05, which SM12x has not, and its prefill is trtllm-gen."
