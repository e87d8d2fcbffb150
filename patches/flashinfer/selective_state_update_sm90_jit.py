"""Mamba selective state update, the SM90 build."""

from patcher.arch import SM120, SM121
from patcher.gate import Action, Evidence, Gate, Level
from patcher.keyed import KeyedSite, Unit


class SelectiveStateUpdateSm90Jit(Gate):
    """The majors of the SM90 build of Mamba's selective state update. On SM12x FlashInfer takes another build: the
    SM100 one from 0.6.2 to 0.6.4 and from 0.6.8, which lists 12.
    """

    id = "flashinfer.selective-state-update-sm90-jit"
    engine = "flashinfer"
    family = "mamba"
    title = "Mamba selective state update, the SM90 build"
    action = Action.OPEN
    level = Level.REFUSED
    targets = frozenset({SM120, SM121})
    sites = (
        KeyedSite(
            ">=0.6.2",
            "jit/mamba/selective_state_update.py",
            "gen_selective_state_update_sm90_module",
            Unit.MAJOR,
            keyword="supported_major_versions",
        ),
    )
    evidence = (
        Evidence(
            "https://github.com/flashinfer-ai/flashinfer/releases/tag/v0.6.16",
            "took majors that never use this build out of its list",
        ),
    )
    risk = "there is nothing to gain: on SM12x another build is used, which lists 12"
