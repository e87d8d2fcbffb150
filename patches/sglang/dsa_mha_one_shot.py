"""Dense one-shot MHA for short DSA prefills."""

from patcher.arch import SM
from patcher.gate import Action, Evidence, Gate, Level
from patcher.located import LocatedSite
from patches.sglang import SM12X
from patches.sglang._trtllm_gen import NO_CUBINS, RUNNER

_CAPABILITY = "torch.cuda.get_device_capability()[0] * 10 + torch.cuda.get_device_capability()[1]"
_GIVEN = (("device_sm", _CAPABILITY), ("_IS_GFX95", "False"), ("is_dsa_enable_prefill_cp", "self.prefill_cp"))
_DSA = "srt/layers/attention/dsa_backend.py"
_SET = "DeepseekSparseAttnBackend.set_dsa_prefill_impl"


class DsaMhaOneShot(Gate):
    """The range test (SM90, or SM100 to below SM110) that lets short DSA prefills run as dense attention.

    The kernel behind it on Blackwell is FlashInfer's ``trtllm_ragged_attention_deepseek``, trtllm-gen machine
    code for SM10x. SM12x keeps the sparse path, which is slower for short prompts and works. Nothing to open.
    """

    id = "dsa-mha-one-shot"
    engine = "sglang"
    family = "dsa"
    title = "dense one-shot MHA for short DSA prefills"
    action = Action.OPEN
    level = Level.REFUSED
    targets = SM12X
    sites = (
        LocatedSite(
            ">=0.5.5,<0.5.5.post1",
            "srt/models/deepseek_v2.py",
            "handle_attention_nsa",
            leads_to=("is_hopper",),
            witness=SM(9, 0),
        ),
        LocatedSite(
            ">=0.5.5.post1,<0.5.6",
            "srt/models/deepseek_v2.py",
            "handle_attention_nsa",
            leads_to=("supports_mha",),
        ),
        LocatedSite(
            ">=0.5.6,<0.5.13",
            "srt/layers/attention/nsa_backend.py",
            "NativeSparseAttnBackend.set_nsa_prefill_impl",
            leads_to=("use_mha",),
        ),
        LocatedSite(">=0.5.13", _DSA, _SET, leads_to=("use_mha",), given=_GIVEN),
    )
    requires = (RUNNER,)
    evidence = (
        Evidence(
            "https://github.com/sgl-project/sglang/issues/24633",
            "the same kernel on SM120: TllmGenFmhaRunner, unsupported architecture",
        ),
        NO_CUBINS,
    )
    risk = "The kernel is trtllm-gen and dies with 'Unsupported architecture' on SM12x."
