"""MLA decode, CUTLASS_MLA backend."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.sites import ConditionSite


class MlaCutlass(Gate):
    """The CUTLASS MLA decode kernel: major 10 in every release. It is written in tcgen05 instructions and tensor
    memory, which SM12x does not have. SM12x gets TRITON_MLA.
    """

    id = "vllm.mla-cutlass"
    engine = "vllm"
    family = "attention"
    title = "MLA decode, CUTLASS_MLA backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        LocatedSite(
            ">=0.10.2,<0.11.1",
            "platforms/cuda.py",
            "CudaPlatformBase.get_attn_backend_cls",
            leads_to=("use_cutlassmla",),
            given=(("selected_backend", "None"),),
        ),
        ConditionSite(
            ">=0.11.1", "v1/attention/backends/mla/cutlass_mla.py", "CutlassMLABackend.supports_compute_capability"
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.20.2/csrc/attention/mla/sm100_cutlass_mla_kernel.cu",
            "the kernel, for SM100 by name and instructions",
        ),
    )
    risk = "the kernel is written for tcgen05 and tensor memory, which SM12x lacks; TRITON_MLA is what runs there"
