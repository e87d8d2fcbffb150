"""Quantization of MoE experts to NVFP4 while they are loaded."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_ARGS = "srt/server_args.py"
_OVERRIDES = "srt/arg_groups/overrides.py"
_SAYS = "--quantization nvfp4_online is supported only on NVIDIA Blackwell SM100/SM103 GPUs."


class MoeNvfp4Online(Gate):
    """``--quantization nvfp4_online``: refused at start-up everywhere but on SM100 and SM103.

    It needs an MoE runner that scales activations for each token, and the ones that do are trtllm-gen and, later,
    CuteDSL kernels for SM100. The CUTLASS runner, which SM12x has for NVFP4, takes one scale for all. Checkpoints
    that are NVFP4 already are another matter (moe-runner-modelopt-fp4).
    """

    id = "moe-nvfp4-online"
    engine = "sglang"
    family = "moe"
    title = "NVFP4 quantization of experts at load time"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.14,<0.5.15",
            _ARGS,
            "ServerArgs._handle_moe_kernel_config",
            leads_to=(_SAYS,),
            refuses=True,
        ),
        LocatedSite(
            ">=0.5.15",
            _OVERRIDES,
            "_moe_runner_backend_quant_constraints",
            leads_to=(_SAYS,),
            refuses=True,
        ),
    )
    requires = (
        ShutOutBy(
            "sglang",
            lines=tuple((f"sglang/{path}", r"nvfp4_online is supported only on") for path in (_OVERRIDES, _ARGS)),
            because="the runners that it needs are trtllm-gen and CuteDSL, for SM100",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/26083",
            "what it needs: MoE runners of trtllm-gen with a scale for each token",
        ),
    )
    risk = "The MoE runners that it needs are machine code for SM10x; without them no expert can be run."
