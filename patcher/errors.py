"""Every error sm-patch reports: a stable id, what happened, where, what to do, and an exit code.

Exit codes (also in the README): 0 done or clean, 1 something pending or drifted, 2 usage, 3 no engine or
unsupported, 4 conflict or local edits, 5 recovery needed, 6 I/O or permission, 70 a defect of sm-patch itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from patcher.plan import FileChange


class SmPatchError(Exception):
    """Base of all errors that a user may see.

    ``what`` is one sentence, ``where`` a path or path:line, ``hint`` what to do next, ``link`` evidence.
    """

    id = "internal"
    exit_code = 3

    def __init__(self, what: str, *, where: str = "", hint: str = "", link: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.link = link
        self.gate = ""
        """The gate that could not be planned because of it."""

    def __str__(self) -> str:
        return self.what

    def as_dict(self) -> dict[str, str | int]:
        """The error as JSON-ready data."""
        texts = {"id": self.id, "what": self.what, "where": self.where, "hint": self.hint, "link": self.link}
        return {**texts, "exit_code": self.exit_code}


class Defect(SmPatchError):
    """Something that must not happen: a fault of sm-patch, or of a recipe, reported as such."""

    id = "defect"
    exit_code = 70

    @classmethod
    def of(cls, error: Exception) -> Defect:
        """The report of an unexpected exception: its kind, its text and where it came from."""
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
        hint = "please report it, with the output of the same command under SM_PATCH_TRACEBACK=1"
        return cls(f"sm-patch failed: {type(error).__name__}: {error}", where=where, hint=hint)


class UsageError(SmPatchError):
    id = "usage"
    exit_code = 2


class UnknownGate(UsageError):
    id = "unknown-gate"


class UnknownSM(UsageError):
    id = "unknown-sm"


class UnknownEngine(UsageError):
    id = "unknown-engine"


class UnknownPack(UsageError):
    id = "unknown-pack"


class BadAssumption(UsageError):
    id = "bad-assumption"


class NoEngine(SmPatchError):
    """No engine where it was looked for. ``elsewhere``: commands that work on the installations there are."""

    id = "no-engine"
    elsewhere: tuple[str, ...] = ()


class NoInterpreter(SmPatchError):
    id = "no-interpreter"


class Unrecognised(SmPatchError):
    """A site was not found as declared: zero, two, or a shape no recipe knows."""

    id = "unrecognised"


class Unparsable(SmPatchError):
    id = "unparsable"


class Refused(SmPatchError):
    """A requirement of the gate is not met, or the gate is one that must not be opened."""

    id = "refused"


class NothingToForce(SmPatchError):
    """A gate that ``--force`` cannot open either: it is not there, or is shown and never edited."""

    id = "nothing-to-force"


class ProofFailed(SmPatchError):
    id = "proof-failed"


class RecipeError(SmPatchError):
    """A recipe is wrong in itself: a defect of sm-patch or of a third-party pack."""

    id = "recipe"


class LocalEdits(SmPatchError):
    """``changes``: the edited files, as sm-patch wrote them and as they are."""

    id = "local-edits"
    exit_code = 4

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", link: str = "", changes: Sequence[FileChange] = ()
    ) -> None:
        super().__init__(what, where=where, hint=hint, link=link)
        self.changes = changes


class ChangedMeanwhile(SmPatchError):
    id = "changed-meanwhile"
    exit_code = 4


class Busy(SmPatchError):
    """Another sm-patch holds the lock of this installation."""

    id = "busy"
    exit_code = 4


class RecoveryNeeded(SmPatchError):
    id = "recovery-needed"
    exit_code = 5


class StoreDamaged(RecoveryNeeded):
    id = "store-damaged"


class IOFailure(SmPatchError):
    id = "io"
    exit_code = 6


class Untrusted(IOFailure):
    """sm-patch's own folder is in hands that could make it write what it must not."""

    id = "untrusted"
