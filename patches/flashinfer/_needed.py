"""What recipes of other engines need of FlashInfer."""

from patcher.gate import Package
from patcher.requirements import OtherGate
from patches.flashinfer.comm_jit import CommJit

ALL_REDUCE = (
    Package(
        "flashinfer-python",
        ">=0.6.17",
        because="before 0.6.17 the SM12x all-reduce kernels are compiled empty and return garbage without an error",
        link="https://github.com/flashinfer-ai/flashinfer/pull/3903",
    ),
    OtherGate(
        CommJit,
        distribution="flashinfer-python",
        since=">=0.6.17",
        because="FlashInfer builds this kernel only for the majors that it lists",
        link="https://github.com/flashinfer-ai/flashinfer/pull/3903",
    ),
)
