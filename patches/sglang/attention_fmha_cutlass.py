"""FlashInfer's CUTLASS FMHA inside the flashinfer attention backends."""

from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_LEADS = ("fmha_backend", "cutlass")


class AttentionFmhaCutlass(Gate):
    """The choice of ``fmha_backend="cutlass"`` for ragged prefill in the flashinfer backends, for SM100 only.

    That kernel (``fmha_cutlass_sm100a``) is written with tcgen05 instructions, which SM12x does not have, and
    FlashInfer builds it for majors 10 and 11 alone. On SM12x the ``auto`` that SGLang passes instead becomes
    FlashInfer's fa2, which is right there. Nothing is to be gained by opening it.
    """

    id = "attention-fmha-cutlass"
    engine = "sglang"
    family = "attention"
    title = "FlashInfer CUTLASS FMHA (tcgen05) for ragged prefill"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.4.7",
            "srt/layers/attention/flashinfer_backend.py",
            "FlashInferAttnBackend.__init__",
            leads_to=_LEADS,
        ),
        LocatedSite(
            ">=0.4.7",
            "srt/layers/attention/flashinfer_mla_backend.py",
            "FlashInferMLAAttnBackend.__init__",
            leads_to=_LEADS,
        ),
    )
    requires = (
        ShutOutBy(
            "flashinfer-python",
            lines=(
                (
                    "flashinfer/jit/attention/modules.py",
                    r"(?s)def gen_fmha_cutlass_sm100a_module\(.*?supported_major_versions=",
                ),
            ),
            because="FlashInfer builds this kernel for the majors that it lists, with tcgen05 instructions",
            link="https://github.com/flashinfer-ai/flashinfer/pull/1039",
        ),
    )
    evidence = (
        Evidence("https://github.com/sgl-project/sglang/pull/6930", "the gate's origin: FlashInfer's FMHA for SM100"),
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/issues/2555",
            "which attention kernels there are for SM12x, and that it goes to the generic fa2",
        ),
    )
    risk = "SM12x has no tcgen05: the kernel does not build for it, and the server dies at the first prefill."
