"""The two MegaMoE paths: one kernel for all of an expert-parallel MoE layer."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_MEGA = "srt/arg_groups/mega_moe_hook.py"
_A2A = "srt/arg_groups/moe_hook.py"


class MoeMega(Gate):
    """``--moe-a2a-backend megamoe`` (DeepGEMM) and ``flashinfer_megamoe``: refused at start-up but on SM90 and SM100.

    DeepGEMM's kernels are written for SM100's tcgen05 and tensor memory, with a port to SM90 (WGMMA); SM12x has
    neither kind of instruction and nobody has begun a port. FlashInfer's is for the SM100 family. Expert parallelism
    works on SM12x with the other all-to-all backends.
    """

    id = "moe-mega"
    engine = "sglang"
    family = "moe"
    title = "MegaMoE of DeepGEMM and of FlashInfer"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.20",
            _A2A,
            "handle_a2a_moe",
            leads_to=(
                "FlashInfer MegaMOE currently requires an SM100-family CUDA device for all supported quantization"
                " formats.",
            ),
            refuses=True,
        ),
        LocatedSite(">=0.5.22", _MEGA, "check_mega_moe_compat", mentions=("is_sm100",), refuses=True),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=(
                (f"sglang/{_MEGA}", r"megamoe needs a CUDA SM90 GPU"),
                (f"sglang/{_A2A}", r"FlashInfer MegaMOE currently requires"),
            ),
            because="upstream names the GPUs that the kernels are for",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/deepseek-ai/DeepGEMM/issues/356",
            "MegaMoE on RTX 50: SM100 only, made of tcgen05 and tensor memory; no port to SM120 begun",
        ),
        Evidence(
            "https://github.com/sgl-project/sglang/pull/34827",
            "DeepGEMM's other MoE kernels on SM120, megamoe refused there instead of a crash",
        ),
    )
    risk = "The kernels are SM100's (tcgen05, tensor memory) or SM90's (WGMMA): SM12x has neither."
