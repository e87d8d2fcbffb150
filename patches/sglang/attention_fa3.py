"""The FlashAttention 3 backend."""

from patcher.arch import SM
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patcher.requirements import ShutOutBy
from patches.sglang import SM12X

_RUNNER = "srt/model_executor/model_runner.py"
_REGISTRY = "srt/layers/attention/attention_registry.py"
_FA3 = ("FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.",)
_HOPPER = SM(9, 0)
_TURING = SM(7, 5)


class AttentionFa3(Gate):
    """The assert that keeps the fa3 backend to SM8x and SM90.

    FlashAttention 3 is in the kernel library (sgl-kernel, sglang-kernel: flash_ops) as machine code for SM80, SM86 and
    SM90, without PTX: no GPU of another family can run it. (0.4.6 and 0.4.6.post1 ask for "9 or newer" and have no
    such gate; SM12x does not get there unless fa3 is asked for by hand.)
    """

    id = "attention-fa3"
    engine = "sglang"
    family = "attention"
    title = "FlashAttention 3 backend"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.4.6.post2,<0.4.7",
            _RUNNER,
            "ModelRunner.init_attention_backend",
            witness=_HOPPER,
            outsider=_TURING,
        ),
        LocatedSite(
            ">=0.4.7,<0.4.9.post5",
            _RUNNER,
            "ModelRunner._get_attention_backend",
            witness=_HOPPER,
            outsider=_TURING,
        ),
        LocatedSite(
            ">=0.4.9.post5,<0.5.3",
            _RUNNER,
            "ModelRunner._get_attention_backend_from_str",
            witness=_HOPPER,
            outsider=_TURING,
        ),
        LocatedSite(
            ">=0.5.3",
            _REGISTRY,
            "create_flashattention_v3_backend",
            leads_to=_FA3,
            witness=_HOPPER,
            outsider=_TURING,
        ),
    )
    requires = (
        ShutOutBy(
            "sglang-kernel",
            lines=(
                ("sgl_kernel/flash_attn.py", r"(?s)def is_fa3_supported.*?get_device_capability"),
                ("sglang/kernels/ops/attention/flash_attention_v3.py", r"build fa3 on"),
            ),
            because="the kernel library holds FlashAttention 3 for SM80, SM86 and SM90 only, without PTX",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang-omni/issues/160",
            "what FA3 does on an RTX 5090: no kernel image is available for execution on the device",
        ),
    )
    risk = "The kernel library has no FA3 machine code for SM12x: 'no kernel image is available' at the first request."
