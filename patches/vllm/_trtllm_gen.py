"""What the trtllm-gen MoE gates share: their kernels are machine code for SM10x only."""

from patcher.gate import Evidence

EVIDENCE = (
    Evidence(
        "https://github.com/vllm-project/vllm/pull/43906",
        "the gate opened for SM12x: testers report a crash",
    ),
    Evidence(
        "https://github.com/flashinfer-ai/flashinfer/issues/3294",
        "trtllm-gen kernels are cubins without an SM12x build",
    ),
)
RISK = "the kernels are cubins for SM10x only; the server crashes when it loads them"
