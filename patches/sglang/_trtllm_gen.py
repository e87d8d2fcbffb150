"""What several gates share: FlashInfer's trtllm-gen attention has machine code for SM10x only."""

from patcher.gate import Evidence
from patcher.requirements import ShutOutBy

RUNNER = ShutOutBy(
    "flashinfer-python",
    lines=(("flashinfer/data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh", r"kSM_100"),),
    because="trtllm-gen attention ships as machine code for SM10x; there is no source to build for SM12x",
    link="https://github.com/flashinfer-ai/flashinfer/issues/3170",
)

NO_CUBINS = Evidence(
    "https://github.com/flashinfer-ai/flashinfer/issues/3170",
    "FlashInfer plans no trtllm-gen attention for SM12x; decode has XQA instead",
)
