"""NVFP4 quantisation while loading (MoE)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.sites import ConditionSite


class OnlineNvfp4(Gate):
    """Online NVFP4 quantisation of MoE weights: SM10x only. Whether SM12x can do it is not known: no report is
    public.
    """

    id = "vllm.online-nvfp4"
    engine = "vllm"
    family = "quantisation"
    title = "NVFP4 quantisation while loading (MoE)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        ConditionSite(
            ">=0.26",
            "model_executor/layers/quantization/online/nvfp4.py",
            "Nvfp4OnlineMoEMethod.__init__",
            refuses=True,
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/model_executor/layers/quantization/online/nvfp4.py",
            "the refusal",
        ),
    )
    risk = "no report on SM12x is public; load a checkpoint that is NVFP4 already"
