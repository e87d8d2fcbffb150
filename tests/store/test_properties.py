"""Whatever happens in whatever order, no given byte is lost and status tells no lie."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from patcher.errors import SmPatchError
from patcher.operations import Edited
from patcher.plan import Inspector
from patcher.verification import verify
from tests.store import engine
from tests.store.conftest import remember_plans
from tests.store.faults import killed

GATES = (engine.FUSION, engine.AUTO, engine.BESIDE)
SETS = [c for n in (1, 2, 3) for c in combinations(GATES, n)]
FILES = (engine.ADD_NORM, engine.COMM_FUSION, engine.OVERRIDES)


class Installation(RuleBasedStateMachine):
    """An installation and what is known of it.

    ``base``: for every file the bytes that its owner gave it last, and that revert must give back. ``given``: all that
    anybody but sm-patch ever gave it. ``free``: the files that somebody edited on top of sm-patch's edit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sm-patch-tests-", dir="/dev/shm" if _MEMORY else None))
        self.moves = 0
        self.releases = 0
        self.edits = 0
        self.free: set[str] = set()
        self.kept = False  # whether an edit on top of sm-patch's was kept: then a gate may be left half open

    @property
    def site(self) -> Path:
        return self.folder / str(self.moves) / "site"

    @initialize()
    def first(self) -> None:
        self.base = engine.install(self.site)
        self.given = {path: {data} for path, data in self.base.items()}

    def teardown(self) -> None:
        try:
            if hasattr(self, "base"):
                engine.workplace(self.site).revert((), Edited.RESTORE)
                assert engine.tree(self.site) == self.base
                allowed = {"closed", "partial", "open", "modified"} if self.kept else {"closed"}
                assert set(engine.states(self.site).values()) <= allowed
        finally:
            shutil.rmtree(self.folder)

    # -- what sm-patch does ------------------------------------------------------------------------------------

    def _may_refuse(self, gates: Iterable[str] = ()) -> None:
        """Refusing is right only where somebody edited on top of sm-patch's edit."""
        assert self.free, "refused without a reason"

    @rule(gates=st.sampled_from(SETS))
    def apply(self, gates: tuple[str, ...]) -> None:
        try:
            engine.apply(self.site, *gates)
        except SmPatchError:
            self._may_refuse()
        else:
            states = engine.states(self.site)
            assert {states[gate] for gate in gates} == {"patched"}

    @rule()
    def apply_what_was_lost(self) -> None:
        before = engine.states(self.site)
        try:
            engine.apply(self.site)
        except SmPatchError:
            self._may_refuse()
        else:
            after = engine.states(self.site)
            if not self.free:
                assert {after[gate] for gate, state in before.items() if state in ("lost", "patched")} <= {"patched"}

    @rule(gates=st.sampled_from([(), *SETS]), choice=st.sampled_from(Edited))
    def revert(self, gates: tuple[str, ...], choice: Edited) -> None:
        engine.workplace(self.site).clean()  # so that what is interrupted is settled before we look
        unclaimed = engine.workplace(self.site).unclaimed
        recorded = engine.workplace(self.site).manifest.gates
        leaving = {g for g in recorded if not gates or g in gates}
        try:
            engine.workplace(self.site).revert(gates, choice)
        except SmPatchError:
            self._may_refuse()
            return
        kept = {path for gate in leaving for path in recorded[gate].files} | {*(() if gates else unclaimed)}
        still = engine.workplace(self.site).manifest.files
        for path in kept & self.free:
            if choice is Edited.KEEP and path not in still:
                self.base[path] = (self.site / path).read_bytes()
                self.kept = self.kept or path in self.free
                self.free.discard(path)
            elif choice is Edited.RESTORE:
                self.free.discard(path)
        if not gates:
            assert set(engine.states(self.site).values()) <= {"closed", "modified", "partial", "open"}

    @rule()
    def collect_garbage(self) -> None:
        engine.workplace(self.site).clean()
        assert not engine.store(self.site).interrupted()

    @rule(
        gates=st.sampled_from([(), *SETS]),
        step=st.integers(24, 48),
        mode=st.sampled_from(["before", "after", "torn"]),
        what=st.sampled_from(["apply", "revert", "clean"]),
    )
    def crash(self, gates: tuple[str, ...], step: int, mode: str, what: str) -> None:
        def work() -> None:
            try:
                if what == "apply":
                    engine.apply(self.site, *gates)
                elif what == "revert":
                    engine.revert(self.site, *gates)
                else:
                    engine.workplace(self.site).clean()
            except SmPatchError:
                pass

        killed(work, step, mode)

    # -- what others do ------------------------------------------------------------------------------------------

    @rule(path=st.sampled_from(FILES))
    def edit(self, path: str) -> None:
        self.edits += 1
        before = (self.site / path).read_bytes()
        after = before + f"# edit {self.edits}\n".encode()
        engine.put(self.site / path, after)
        self.given[path].add(after)
        # An edit of a file that is on record counts as one on top, even where a reinstall put the original back.
        if before == self.base[path] and path not in engine.workplace(self.site).manifest.files:
            self.base[path] = after
        else:
            self.free.add(path)

    @rule()
    def reinstall(self) -> None:
        self._install()

    @rule()
    def upgrade(self) -> None:
        self.releases += 1
        self._install()

    def _install(self) -> None:
        line = f"# release {self.releases}\n".encode() if self.releases else b""
        contents = {path: (line if path in FILES else b"") + data for path, data in engine.files().items()}
        self.base = engine.install(self.site, f"0.5.{23 + self.releases}", contents)
        self.free.clear()
        self.kept = False
        for path, data in self.base.items():
            self.given[path].add(data)

    @rule(copy=st.booleans())
    def move(self, copy: bool) -> None:
        before = self.folder / str(self.moves)
        self.moves += 1
        if copy:
            shutil.copytree(before, self.folder / str(self.moves))
            shutil.rmtree(before)
        else:
            before.rename(self.folder / str(self.moves))

    @precondition(lambda self: self.free)
    @rule()
    def take_out_the_edits(self) -> None:
        for path in self.free:
            lines = (self.site / path).read_bytes().split(b"\n")
            engine.put(self.site / path, b"\n".join(line for line in lines if not line.startswith(b"# edit")))
            self.given[path].add((self.site / path).read_bytes())

    # -- what must hold, always -----------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "base"):
            return
        workplace = engine.workplace(self.site)
        states = engine.states(self.site)
        for path, data in engine.tree(self.site).items():
            if path not in self.base:
                assert workplace.store.interrupted() or "/.sm-patch-" in path, f"{path} is left over"
                continue
            assert data in self.given[path] or self._derived(path, data), f"{path} has bytes that nobody gave it"
            # The owner's bytes are in the file, or the store has them under its name.
            if data != self.base[path] and path not in self.free and not workplace.store.interrupted():
                record = workplace.manifest.files[path]
                assert workplace.store.blob(record.original) == self.base[path]
        if not workplace.store.interrupted():
            told = verify(workplace).proofs
            for gate, state in states.items():
                assert (state == "patched") == (told.get(gate) == "ok"), f"{gate} is called {state}: {told.get(gate)}"

    def _derived(self, path: str, data: object) -> bool:
        """Whether bytes are what some gates make of something that was given."""
        workplace = engine.workplace(self.site)
        for given in self.given[path]:
            for gates in SETS:
                plan = _plan(workplace.inspector.replaced({path: given}), path, gates)
                if plan == data:
                    return True
        return False


_MEMORY = Path("/dev/shm").is_dir()
_plans: dict[object, bytes | None] = {}


def _plan(inspector: Inspector, path: str, gates: tuple[str, ...]) -> bytes | None:
    source = inspector.predicates.tree.get(path)
    assert source is not None
    key = (path, source.digest, gates)
    if key not in _plans:
        pristine = inspector.replaced({p: d for p, d in engine.files().items() if p != path})
        try:
            changes = pristine.plan({engine.GATES[g]: engine.OPEN for g in gates}).changes
            _plans[key] = changes[path].after if path in changes else None
        except SmPatchError:
            _plans[key] = None
    return _plans[key]


@pytest.mark.usefixtures("memory")
def test_any_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_plans(monkeypatch)
    from hypothesis.stateful import run_state_machine_as_test

    chosen = settings(
        max_examples=40,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run_state_machine_as_test(Installation, settings=chosen)
