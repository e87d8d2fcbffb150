"""FlashInfer's all-to-all for decode context parallelism."""

from patcher.gate import Action, Evidence, Example, Gate, Level, Package
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang import _miniature as mini

_COMMON = "srt/utils/common.py"
_FILE = f"sglang/{_COMMON}"


def _common(test: str) -> str:
    platform = """

def get_platform():
    from sglang.srt.runtime_context import get_platform

    return get_platform()


"""
    return (
        mini.PLATFORM[_FILE]
        + platform
        + f"""\
def is_fi_a2a_supported(dcp_size, tp_size):
    if {test}:
        return False
    return tp_size % dcp_size == 0
"""
    )


_CLOSED = _common("not get_platform().is_sm100")
_OPENED = _common("not get_platform().is_sm100 and not get_platform().is_sm120")


class FlashinferA2a(Gate):
    """``fi_a2a``, FlashInfer's all-to-all over MNNVL memory for decode context parallelism, for SM100 only.

    FlashInfer builds a portable form of the kernel for major 12 as well, but its workspace is memory that every GPU
    of the group maps (MNNVL, or one node with peer access), which PCIe boxes may not give. Opening it also makes it
    the default of --dcp-comm-backend. Nobody has published a run on SM12x: experimental. The default there, a2a,
    works.
    """

    id = "flashinfer-a2a"
    engine = "sglang"
    family = "all-to-all"
    title = "FlashInfer all-to-all for decode context parallelism"
    action = Action.OPEN
    level = Level.EXPERIMENTAL
    targets = SM12X
    requires = (
        Package(
            "flashinfer-python",
            ">=0.6.17",
            because="its all-to-all for decode context parallelism lists major 12 (gen_dcp_alltoall in jit/comm.py)",
            link="https://github.com/flashinfer-ai/flashinfer/blob/v0.6.17/flashinfer/jit/comm.py",
        ),
    )
    sites = (LocatedSite(">=0.5.20", _COMMON, "is_fi_a2a_supported", refuses=True),)
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt/utils/common.py",
            "the check: SM100, then fabric memory or a group inside one node",
        ),
    )
    risk = "The workspace may not be mappable over PCIe: the server dies at start-up, or hangs."
    usage = "--dcp-size 2 (or more); --dcp-comm-backend a2a goes back."
    measure = "Compare decode tokens/s with --dcp-comm-backend a2a on long prompts."
    examples = (
        Example("0.5.23", {**mini.PLATFORM, _FILE: _CLOSED}, {_FILE: _OPENED}),
        Example("0.5.23", {**mini.PLATFORM, _FILE: _OPENED}, {}, "open already: nothing to do"),
    )
