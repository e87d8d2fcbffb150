"""trtllm sparse decode of Qwen sparse attention (QSA), which SM121 must not get."""

from patcher.arch import SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy

_BACKEND = "srt/layers/attention/qwen_sparse_attn_backend.py"


class QsaTrtllmDecode(Gate):
    """QSA decode through FlashInfer's trtllm call (XQA on SM12x): SM100 and exactly SM120.

    SM120 and SM121 are different targets here: upstream validated the path on SM120 and found that on SM121 it silently
    corrupts long-context decode, so the test is for 12.0 exactly, and SM121 has a kernel of its own instead. A
    proposal to admit all of major 12 had passed short tests on an SM121 machine. Never to be widened.
    """

    id = "qsa-trtllm-decode"
    engine = "sglang"
    family = "attention"
    title = "trtllm sparse decode of Qwen sparse attention, SM121"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM121})
    sites = (LocatedSite(">=0.5.20", _BACKEND, "_resolve_trtllm_sparse_decode", refuses=True),)
    requires = (
        ShutOutBy(
            "sglang",
            lines=((f"sglang/{_BACKEND}", r"silently corrupts"),),
            because="upstream says what happens on SM121",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/pull/36566",
            "the wider test, validated on SM121 with short contexts; closed",
        ),
        Evidence("https://github.com/sgl-project/sglang/pull/36556", "the same for SM120 and SM121, by another author"),
    )
    risk = "On SM121 long-context decode is silently corrupted; upstream has a kernel of its own there."
