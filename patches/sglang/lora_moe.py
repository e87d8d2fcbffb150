"""LoRA on MoE layers."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X


class LoraMoe(Gate):
    """The MoE LoRA runner, which admits majors 9 and 10 and says why no other.

    Its base GEMMs are WGMMA (SM90) and tcgen05 (SM100) kernels; SM12x has neither kind of instruction, whatever its
    major number says. LoRA on dense layers is not concerned.
    """

    id = "lora-moe"
    engine = "sglang"
    family = "lora"
    title = "LoRA on MoE layers"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (LocatedSite(">=0.5.23", "srt/lora/moe/runner.py", "MoeLoraRunner._admit", refuses=True),)
    requires = (
        ShutOutBy(
            "sglang",
            lines=(("sglang/srt/lora/moe/runner.py", r"major not in \(9, 10\)"),),
            because="upstream names the kernels and the SMs that have them",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/lora/moe/runner.py",
            "the check and its reason: WGMMA and tcgen05 kernels only, SM120 named as not included",
        ),
    )
    risk = "Its base GEMMs are WGMMA (SM90) and tcgen05 (SM100) kernels, and SM12x has neither."
