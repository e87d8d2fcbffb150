"""MLA prefill, TRTLLM_RAGGED backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite

_ASKED = "use_trtllm_ragged_deepseek_prefill"


class MlaPrefillTrtllm(Gate):
    """The ragged prefill of trtllm-gen: SM10x in every release that has it (before 0.13 SM100 alone). Its kernels are
    cubins for SM10x.
    """

    id = "vllm.mla-prefill-trtllm"
    engine = "vllm"
    family = "attention"
    title = "MLA prefill, TRTLLM_RAGGED backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(">=0.11.1,<0.15", "v1/attention/backends/mla/common.py", _ASKED),
        LocatedSite(
            ">=0.15,<0.21",
            "model_executor/layers/attention/mla_attention.py",
            _ASKED,
            mentions=(_ASKED,),
            refuses=True,
            given=(
                ("flashinfer_available", "True"),
                ("has_flashinfer()", "True"),
                (f"vllm_config.attention_config.{_ASKED}", "True"),
            ),
        ),
        ConditionSite(
            ">=0.21",
            "v1/attention/backends/mla/prefill/trtllm_ragged.py",
            "TrtllmRaggedPrefillBackend.supports_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/24633",
            "trtllm MLA on SM120: prefill does not work",
        ),
    )
    risk = "the kernels are cubins for SM10x only"
