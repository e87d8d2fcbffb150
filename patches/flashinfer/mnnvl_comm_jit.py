"""All-reduce kernels over NVLink multicast (MNNVL)."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class MnnvlCommJit(Gate):
    """The majors that the MNNVL all-reduce is built for: 9 and 10 in every release. It needs NVLink multicast (NVLS),
    which SM12x boards do not have.
    """

    id = "flashinfer.mnnvl-comm-jit"
    engine = "flashinfer"
    family = "comm"
    title = "all-reduce kernels over NVLink multicast (MNNVL)"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.13", "jit/comm.py", "gen_trtllm_mnnvl_comm_module", Unit.MAJOR, keyword="supported_major_versions"
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/pull/1213",
            "what the mnnvl all-reduce is built on: multicast over NVLink",
        ),
    )
    risk = "no SM12x board has the NVLink multicast that these kernels run over; nothing to upgrade to"
