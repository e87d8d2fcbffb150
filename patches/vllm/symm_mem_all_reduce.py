"""All-reduce through torch symmetric memory."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class SymmMemAllReduce(Gate):
    """The sizes up to which torch's symmetric-memory all-reduce is used, by capability: 9.0 and 10.x. It runs over
    NVLink multicast; where there is none (multicast_ptr is 0, as on every SM12x board) the communicator turns
    itself off anyway.
    """

    id = "vllm.symm-mem-all-reduce"
    engine = "vllm"
    family = "comm"
    title = "all-reduce through torch symmetric memory"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.10.2",
            "distributed/device_communicators/all_reduce_utils.py",
            "",
            Unit.DOTTED,
            name="SYMM_MEM_ALL_REDUCE_MAX_SIZES",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/distributed/device_communicators/symm_mem.py",
            "turns itself off without multicast",
        ),
    )
    risk = "no SM12x board has the NVLink multicast that it runs over; an entry would change nothing"
