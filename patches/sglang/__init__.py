"""SGLang: where its names are, and how it writes "the GPU is an SM12x" from release to release."""

from collections.abc import Sequence

from patcher.arch import SM, SM120, SM121
from patcher.gate import Engine, Spelling

SM12X = frozenset({SM120, SM121})

SHARED_MEMORY = {SM120: 101_376, SM121: 101_376}
"""Bytes of shared memory that one block may have (cudaDevAttrMaxSharedMemoryPerBlockOptin)."""


def _spellings(*named: str, sms: Sequence[SM]) -> tuple[Spelling, ...]:
    """Ways to write "one of these SMs": SGLang's own names first, then what can be had in files without them.

    AMD's GPUs have capabilities too, some of them 12.0, and a CPU has none to ask for: hence the guards.
    """
    if len(sms) == 1:
        (sm,) = sms
        capability, number = f"== ({sm.major}, {sm.minor})", f"== {sm}"
    else:
        pairs, numbers = (", ".join(texts) for texts in ([f"({sm.major}, {sm.minor})" for sm in sms], map(str, sms)))
        capability, number = f"in ({pairs})", f"in ({numbers})"
    capability = f"torch.cuda.get_device_capability() {capability}"
    texts = (
        *named,
        capability,
        f"is_cuda() and {capability}",
        f"is_cuda() and get_device_sm() {number}",
        f"_is_cuda and {capability}",
        f"_is_cuda and get_device_sm() {number}",
    )
    anywhere = f"torch.version.cuda is not None and torch.cuda.is_available() and {capability}"
    return (*map(Spelling, texts), Spelling(anywhere, last=True))


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    package="sglang",
    distributions=("sglang",),
    related=("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "sgl-kernel", "sglang-kernel", "torch"),
    verified=">=0.4.6,<0.5.24",
    essential=("srt",),
    newest="0.5.23",
    version_files=("version.py", "_version.py"),
    objects={"sglang.srt.environ.envs": {}},
    spellings={
        # is_sm120 of the platform and is_sm120_supported mean major 12, whatever their names say.
        SM12X: _spellings("get_platform().is_sm120", "is_sm120_supported()", sms=(SM120, SM121)),
        frozenset({SM120}): _spellings("is_sm120()", sms=(SM120,)),  # from 0.5.20: exactly 12.0
        frozenset({SM121}): _spellings("is_sm121()", sms=(SM121,)),  # from 0.5.18: exactly 12.1
    },
)
