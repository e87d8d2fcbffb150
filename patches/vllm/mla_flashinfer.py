"""MLA, FLASHINFER_MLA backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite


class MlaFlashinfer(Gate):
    """FlashInfer's trtllm-gen MLA: major 10 in every release. FlashInfer answers SM12x decode through XQA, but
    prefill has trtllm-gen cubins only, and vLLM's backend asks for both.
    """

    id = "vllm.mla-flashinfer"
    engine = "vllm"
    family = "attention"
    title = "MLA, FLASHINFER_MLA backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.10.2,<0.11.1",
            "platforms/cuda.py",
            "CudaPlatformBase.get_attn_backend_cls",
            leads_to=("use_flashinfermla",),
            given=(("selected_backend", "None"),),
        ),
        ConditionSite(
            ">=0.11.1",
            "v1/attention/backends/mla/flashinfer_mla.py",
            "FlashInferMLABackend.supports_compute_capability",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/24633",
            "trtllm MLA on SM120: decode through XQA works, prefill does not",
        ),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/3263",
            "the same asked of FlashInfer",
        ),
    )
    risk = "prefill would load trtllm-gen cubins, and there are none for SM12x"
