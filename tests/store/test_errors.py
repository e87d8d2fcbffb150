"""ENOSPC, EIO, EACCES and EROFS at every step that changes the disk, once and for good."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patcher.arch import SM120
from patcher.errors import IOFailure, RecoveryNeeded, SmPatchError
from tests.store import engine
from tests.store.conftest import Change, Judge
from tests.store.faults import Failing, Steps, steps_of, using

_TAKES_SPACE = frozenset({"open_lock", "mkdir", "create", "write", "symlink", "set_attribute"})
ERRORS = [
    pytest.param(errno.ENOSPC, _TAKES_SPACE, id="ENOSPC"),
    pytest.param(errno.EIO, None, id="EIO"),
    pytest.param(errno.EACCES, None, id="EACCES"),
    pytest.param(errno.EROFS, None, id="EROFS"),
]


@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize(("error", "kinds"), ERRORS)
def test_error_at_every_step(
    change: Change,
    memory: Path,
    error: int,
    kinds: frozenset[str] | None,
    lasting: bool,
    injections: Callable[[int], None],
) -> None:
    judge = Judge(change, memory)
    log = steps_of(lambda: change.do(judge.world.copy("count").site))
    tried = 0
    for number, name in enumerate(log):
        if kinds is not None and name not in kinds:
            continue
        world = judge.world.copy("failing")
        system = Failing(number, error, kinds, lasting=lasting)
        failure = None
        with using(system):
            try:
                change.do(world.site)
            except (IOFailure, RecoveryNeeded) as caught:
                failure = caught
        assert system.reached
        tried += 1
        if failure is None or not isinstance(failure, RecoveryNeeded):
            # it says done, and is; or it says failed, and all is as before: at once, without another command
            assert judge.check(world.site) == ("new" if failure is None else "old")
        if failure is not None:
            assert failure.where
            assert failure.exit_code in (5, 6)
        engine.workplace(world.site).clean()
        judge.check(world.site)
    injections(tried)
    assert tried >= 10


@pytest.fixture
def open_site(memory: Path) -> Path:
    """An installation in a folder that other users can look into; all that is needed is imported already."""
    memory.chmod(0o755)
    engine.install(memory / "site")
    engine.workplace(memory / "site").dry_run([SM120])
    return memory / "site"


@contextmanager
def nobody() -> Iterator[None]:
    """Be a user without privileges, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_installation_is_told_before_anything_is_written(open_site: Path) -> None:
    folders = [open_site.parent, open_site, *(path for path in open_site.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    before = {path: path.stat().st_mtime_ns for path in open_site.parent.rglob("*")}
    system = Steps()
    with nobody():
        with using(system), pytest.raises(IOFailure) as caught:
            engine.apply(open_site)
        told = engine.workplace(open_site).dry_run([SM120])
    for folder in folders:
        folder.chmod(0o755)
    assert caught.value.exit_code == 6
    assert caught.value.where.startswith(str(open_site))
    assert not system.log
    assert {path: path.stat().st_mtime_ns for path in open_site.parent.rglob("*")} == before
    assert any("could not do it" in note and str(open_site) in note for note in told.notes)


def test_a_file_of_somebody_else_is_not_taken_over(open_site: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give files away")
    for folder in (open_site.parent, open_site, *open_site.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o777)
    with nobody(), pytest.raises(IOFailure, match="belongs to user 0"):
        engine.apply(open_site)


def test_owner_mode_and_attributes_are_kept(open_site: Path) -> None:
    path = open_site / engine.COMM_FUSION
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    attributes = True
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        attributes = False
    was = path.stat()
    for work in (engine.apply, engine.revert):
        work(open_site)
        now = path.stat()
        assert (now.st_mode, now.st_uid, now.st_gid) == (was.st_mode, was.st_uid, was.st_gid)
        assert now.st_ino != was.st_ino
        assert not attributes or os.getxattr(path, "user.note") == b"kept"


def test_a_backup_is_no_more_readable_than_the_file(site: Path) -> None:
    (site / engine.COMM_FUSION).chmod(0o600)
    engine.apply(site)
    store = engine.store(site)
    sha = engine.workplace(site).manifest.files[engine.COMM_FUSION].original
    assert stat.S_IMODE((store.state / "blobs" / sha).stat().st_mode) == 0o600


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
def test_set_user_id_is_refused(site: Path, bit: int) -> None:
    (site / engine.ADD_NORM).chmod(0o755 | bit)
    system = Steps()
    with using(system), pytest.raises(IOFailure, match="set-user-ID") as caught:
        engine.apply(site)
    assert caught.value.where.endswith(engine.ADD_NORM)
    assert not system.log
    assert engine.states(site)[engine.FUSION] == "closed"


@pytest.mark.parametrize("which", [engine.COMM_FUSION, str(Path(engine.ADD_NORM).parent)])
@pytest.mark.parametrize("flag", ["i", "a"])
def test_immutable_is_refused(site: Path, which: str, flag: str) -> None:
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, f"+{flag}", site / which], capture_output=True).returncode != 0:
        pytest.skip("this file system or user cannot mark files")
    try:
        system = Steps()
        with using(system), pytest.raises(IOFailure, match=r"immutable|append-only") as caught:
            engine.apply(site)
        assert caught.value.where.endswith(which)
        assert f"chattr -{flag}" in caught.value.hint
        assert not system.log
    finally:
        subprocess.run([chattr, f"-{flag}", site / which], check=True)
    engine.apply(site)
    assert engine.states(site)[engine.FUSION] == "patched"


def test_something_that_is_no_file(site: Path) -> None:
    (site / engine.COMM_FUSION).unlink()
    (site / engine.COMM_FUSION).mkdir()
    with pytest.raises(SmPatchError):
        engine.apply(site, engine.FUSION)
    assert engine.states(site)[engine.AUTO] == "closed"
    engine.apply(site, engine.AUTO)
    assert engine.states(site)[engine.AUTO] == "patched"
