"""Edits, links, odd bytes, moved and upgraded installations: no byte is lost, and status says how it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patcher.arch import SM120
from patcher.errors import ChangedMeanwhile, LocalEdits, Refused, SmPatchError
from patcher.operations import Edited, FileState
from patcher.verification import verify
from tests.store import engine

EDIT = b"\n# my own line\n"


def _append(path: Path, data: bytes = EDIT) -> bytes:
    engine.put(path, path.read_bytes() + data)
    return path.read_bytes()


def _backups(site: Path) -> set[bytes]:
    return {path.read_bytes() for path in (engine.store(site).state / "blobs").iterdir()}


# -- edits after apply -------------------------------------------------------------------------------------------


def test_revert_refuses_an_edited_file_with_a_diff(site: Path) -> None:
    engine.apply(site)
    mine = _append(site / engine.ADD_NORM)
    before = engine.tree(site)
    with pytest.raises(LocalEdits) as caught:
        engine.revert(site)
    assert caught.value.exit_code == 4
    assert "--keep-mine" in caught.value.hint
    assert "--theirs" in caught.value.hint
    (change,) = caught.value.changes
    assert change.after == mine
    assert change.before + EDIT == mine  # against what sm-patch wrote, not the original: only the user's own lines
    assert engine.tree(site) == before
    assert engine.states(site)[engine.FUSION] == "modified"
    assert verify(engine.workplace(site)).exit_code == 4


def test_keep_mine_leaves_the_edited_file_and_reverts_the_others(site: Path) -> None:
    engine.apply(site)
    mine = _append(site / engine.ADD_NORM)
    outcome = engine.workplace(site).revert((), Edited.KEEP)
    assert engine.tree(site) == {**engine.files(), engine.ADD_NORM: mine}
    assert engine.ADD_NORM in outcome.forgotten
    assert engine.files()[engine.ADD_NORM] in _backups(site)  # until gc
    assert engine.states(site)[engine.FUSION] != "closed"


def test_theirs_gives_back_the_original_and_keeps_the_edits(site: Path) -> None:
    engine.apply(site)
    mine = _append(site / engine.ADD_NORM)
    outcome = engine.workplace(site).revert((), Edited.RESTORE)
    assert engine.tree(site) == engine.files()
    assert mine in _backups(site)
    assert any("your version" in note for note in outcome.notes)
    engine.workplace(site).clean()
    assert mine not in _backups(site)


@pytest.mark.parametrize("choice", [Edited.KEEP, Edited.RESTORE])
def test_an_edited_file_that_two_gates_share(site: Path, choice: Edited) -> None:
    engine.apply(site, engine.FUSION, engine.BESIDE)
    mine = _append(site / engine.ADD_NORM)
    with pytest.raises(LocalEdits):
        engine.revert(site, engine.FUSION)
    engine.workplace(site).revert([engine.FUSION], choice)
    states = engine.states(site)
    if choice is Edited.KEEP:
        assert (site / engine.ADD_NORM).read_bytes() == mine
        assert states[engine.BESIDE] == "modified"
    else:
        assert states == {engine.FUSION: "closed", engine.AUTO: "closed", engine.BESIDE: "patched"}
        assert mine in _backups(site)
    engine.workplace(site).revert((), Edited.RESTORE)
    assert engine.tree(site) == engine.files()


def test_apply_does_not_touch_an_edited_file(site: Path) -> None:
    engine.apply(site)
    mine = _append(site / engine.ADD_NORM)
    with pytest.raises(LocalEdits):
        engine.apply(site, engine.BESIDE)
    outcome = engine.apply(site, engine.AUTO)  # another file: goes ahead
    assert [change.path for change in outcome.written] == [engine.OVERRIDES]
    assert (site / engine.ADD_NORM).read_bytes() == mine
    assert engine.states(site)[engine.FUSION] == "modified"
    # and the other file of the gate that was edited is as sm-patch wrote it, still
    assert engine.workplace(site).file_states[engine.COMM_FUSION] is FileState.OURS


def test_edits_taken_out_again_are_forgotten(site: Path) -> None:
    engine.apply(site)
    written = (site / engine.ADD_NORM).read_bytes()
    _append(site / engine.ADD_NORM)
    engine.put(site / engine.ADD_NORM, written)
    engine.revert(site)
    assert engine.tree(site) == engine.files()


# -- edits before apply ------------------------------------------------------------------------------------------


def test_edits_before_apply_are_told_and_come_back(site: Path) -> None:
    mine = _append(site / engine.ADD_NORM)
    outcome = engine.apply(site)
    assert any(engine.ADD_NORM in note and "edited before" in note for note in outcome.notes)
    assert not any(engine.COMM_FUSION in note for note in outcome.notes)
    assert engine.states(site)[engine.FUSION] == "patched"
    engine.revert(site)
    assert engine.tree(site) == {**engine.files(), engine.ADD_NORM: mine}


def test_a_gate_that_a_local_edit_opened_is_not_called_upstreams(site: Path) -> None:
    engine.apply(site, engine.BESIDE)
    opened = (site / engine.ADD_NORM).read_bytes()
    engine.revert(site)
    shutil.rmtree(site.parent / ".sm-patch")
    engine.put(site / engine.ADD_NORM, opened)
    report = engine.workplace(site).report(engine.workplace(site).gates[engine.BESIDE], SM120)
    assert report.state.value == "open"
    assert "not as the distribution has it" in report.reason


def test_a_file_that_changes_between_plan_and_write(site: Path) -> None:
    workplace = engine.workplace(site)
    _, manifest, writes = workplace.planned([SM120], [], [])
    mine = _append(site / engine.COMM_FUSION)
    with workplace.store.locked(), pytest.raises(ChangedMeanwhile):
        workplace.store.commit(writes, manifest)
    assert engine.tree(site) == {**engine.files(), engine.COMM_FUSION: mine}
    assert engine.states(site)[engine.FUSION] == "closed"


# -- upgrades and reinstallations -----------------------------------------------------------------------------------


def test_an_upgrade_is_lost_and_old_bytes_never_come_back(site: Path) -> None:
    engine.install(site, "0.5.8")
    for path in (engine.ADD_NORM, engine.COMM_FUSION, engine.OVERRIDES):
        (site / path).unlink()
    engine.apply(site)
    old = set(engine.files("0.5.8").values()) & _backups(site)
    assert old
    upgraded = engine.install(site)
    (site / "sglang/srt/layers/communicator.py").unlink()
    assert engine.states(site)[engine.FUSION] == "lost"
    outcome = engine.revert(site)
    assert not outcome.written
    assert engine.tree(site) == upgraded
    assert old <= _backups(site)  # kept until gc


def test_a_reapply_on_the_new_version_just_works(site: Path) -> None:
    engine.apply(site, engine.FUSION, engine.AUTO)
    newer = engine.files()
    newer[engine.ADD_NORM] = b"# a new release\n" + newer[engine.ADD_NORM]
    newer[engine.OVERRIDES] = b"# a new release\n" + newer[engine.OVERRIDES]
    engine.install(site, "0.5.24", newer)
    assert engine.states(site) == {engine.FUSION: "lost", engine.AUTO: "lost", engine.BESIDE: "closed"}
    outcome = engine.apply(site)  # what was in force comes back, also what had been opted in
    assert {step.gate.id for step in outcome.steps} == {engine.FUSION, engine.AUTO}
    assert engine.states(site) == {engine.FUSION: "patched", engine.AUTO: "patched", engine.BESIDE: "closed"}
    assert engine.files()[engine.ADD_NORM] in _backups(site)
    engine.revert(site)
    assert engine.tree(site) == newer


def test_a_reinstallation_of_the_same_version(site: Path) -> None:
    engine.apply(site)
    engine.install(site)
    assert engine.states(site)[engine.FUSION] == "lost"
    assert verify(engine.workplace(site)).exit_code == 1
    engine.apply(site)
    assert engine.states(site)[engine.FUSION] == "patched"
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_half_a_reinstallation(site: Path) -> None:
    engine.apply(site)
    engine.put(site / engine.ADD_NORM, engine.files()[engine.ADD_NORM])
    assert engine.states(site)[engine.FUSION] == "lost"
    engine.apply(site)
    assert engine.states(site)[engine.FUSION] == "patched"
    engine.put(site / engine.ADD_NORM, engine.files()[engine.ADD_NORM])
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_edited_before_apply_then_reinstalled(site: Path) -> None:
    _append(site / engine.ADD_NORM)
    engine.apply(site)
    engine.install(site)
    assert engine.states(site)[engine.FUSION] == "lost"
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_uninstalled_files_are_not_brought_back(site: Path) -> None:
    engine.apply(site)
    (site / engine.ADD_NORM).unlink()
    assert verify(engine.workplace(site)).files[engine.ADD_NORM] == "missing"
    engine.revert(site)
    assert not (site / engine.ADD_NORM).exists()
    assert (site / engine.COMM_FUSION).read_bytes() == engine.files()[engine.COMM_FUSION]


def test_gc_forgets_lost_gates_and_drops_their_backups(site: Path) -> None:
    engine.apply(site, engine.FUSION, engine.BESIDE)
    engine.install(site)
    told = engine.workplace(site).clean(dry_run=True)
    assert set(told.forgotten) == {engine.FUSION, engine.BESIDE}
    assert len(told.backups) == 2
    assert engine.states(site)[engine.FUSION] == "lost"
    assert engine.workplace(site).clean().backups == told.backups
    assert not _backups(site)
    assert engine.states(site)[engine.FUSION] == "closed"


def test_gc_keeps_what_is_in_force(site: Path) -> None:
    engine.apply(site)
    _append(site / engine.ADD_NORM)
    engine.workplace(site).clean()
    assert len(_backups(site)) == 2
    engine.workplace(site).revert((), Edited.RESTORE)
    assert engine.tree(site) == engine.files()


# -- gates whose recipes are not here -----------------------------------------------------------------------------


def test_an_unknown_gate_is_left_alone_and_can_be_reverted(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.apply(site, engine.BESIDE)
    with monkeypatch.context() as without:
        engine.use_gates(without, engine.BESIDE)
        before = engine.tree(site)
        assert engine.workplace(site).unknown == [engine.BESIDE]
        with pytest.raises(Refused, match="does not know"):
            engine.apply(site, engine.FUSION)  # in the same file
        assert engine.tree(site) == before
        engine.apply(site, engine.AUTO)
        engine.revert(site, engine.AUTO)
        assert engine.tree(site) == before
        assert verify(engine.workplace(site)).exit_code == 1
        engine.revert(site, engine.BESIDE)
        assert engine.tree(site) == engine.files()


# -- links -----------------------------------------------------------------------------------------------------------


def test_the_other_names_of_a_hard_link_keep_their_bytes(site: Path) -> None:
    cache = site.parent / "cache.py"
    os.link(site / engine.ADD_NORM, cache)
    inode, status = cache.stat().st_ino, cache.stat()
    engine.apply(site)
    assert (site / engine.ADD_NORM).stat().st_ino != inode
    engine.revert(site)
    after = cache.stat()
    assert cache.read_bytes() == engine.files()[engine.ADD_NORM]
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (inode, status.st_mtime_ns, status.st_mode)


@pytest.mark.parametrize("gone", [False, True])
def test_a_linked_file_is_replaced_and_the_link_comes_back(site: Path, gone: bool) -> None:
    cache = site.parent / "cache" / "add_norm.py"
    cache.parent.mkdir()
    shutil.move(site / engine.ADD_NORM, cache)
    (site / engine.ADD_NORM).symlink_to(cache)
    outcome = engine.apply(site)
    assert any("was a link" in note for note in outcome.notes)
    assert not (site / engine.ADD_NORM).is_symlink()
    assert cache.read_bytes() == engine.files()[engine.ADD_NORM]
    assert engine.states(site)[engine.FUSION] == "patched"
    if gone:
        cache.unlink()
    engine.revert(site)
    assert (site / engine.ADD_NORM).is_symlink() is not gone
    assert (site / engine.ADD_NORM).read_bytes() == engine.files()[engine.ADD_NORM]


def test_a_linked_package_is_written_where_it_leads_and_that_is_said(tmp_path: Path) -> None:
    source = tmp_path / "checkout"
    engine.install(source)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sglang").symlink_to(source / "sglang")
    shutil.copytree(source / "sglang-0.5.23.dist-info", site / "sglang-0.5.23.dist-info")
    outcome = engine.apply(site)
    assert any(str(source / "sglang") in note for note in outcome.notes)
    assert (site / "sglang").is_symlink()
    assert engine.states(site)[engine.FUSION] == "patched"
    engine.revert(site)
    assert engine.tree(source) == engine.files()


def test_a_checkout_with_local_changes_is_named(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("no git here")
    root = tmp_path / "checkout" / "python"
    engine.install(root)
    for info in root.glob("*.dist-info"):
        shutil.rmtree(info)
    engine.put(root / "sglang/version.py", b'__version__ = "0.5.23"\n')

    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=tmp_path / "checkout", check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    mine = _append(root / engine.ADD_NORM)
    outcome = engine.apply(root)
    assert any("not committed" in note and engine.ADD_NORM in note for note in outcome.notes)
    assert not any("not committed" in note and engine.COMM_FUSION in note for note in outcome.notes)
    assert any(str(root / "sglang") in note and "source tree" in note for note in outcome.notes)
    status = subprocess.run(["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True)
    assert ".sm-patch" not in status.stdout
    engine.revert(root)
    assert (root / engine.ADD_NORM).read_bytes() == mine


# -- moved and copied --------------------------------------------------------------------------------------------------


def test_a_renamed_environment(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    engine.install(site)
    engine.apply(site)
    (tmp_path / "venv").rename(tmp_path / "moved")
    moved = tmp_path / "moved/lib/python3.11/site-packages"
    assert engine.states(moved)[engine.FUSION] == "patched"
    assert verify(engine.workplace(moved)).exit_code == 0
    engine.revert(moved)
    assert engine.tree(moved) == engine.files()


def test_a_copied_environment_is_its_own(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    engine.install(site)
    engine.apply(site)
    shutil.copytree(tmp_path / "venv", tmp_path / "copy", symlinks=True)
    copy = tmp_path / "copy/lib/python3.11/site-packages"
    engine.revert(copy)
    assert engine.tree(copy) == engine.files()
    assert engine.states(site)[engine.FUSION] == "patched"


def test_a_copy_without_its_state_is_not_taken_for_upstreams(site: Path, tmp_path: Path) -> None:
    engine.apply(site)
    shutil.copytree(site, tmp_path / "elsewhere" / "site")
    copy = tmp_path / "elsewhere" / "site"
    report = engine.workplace(copy).report(engine.workplace(copy).gates[engine.FUSION], SM120)
    assert report.state.value == "modified"
    assert "no record" in report.reason


# -- bytes -------------------------------------------------------------------------------------------------------------


def _lone_cr(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r")


def _mixed(data: bytes) -> bytes:
    lines = data.split(b"\n")
    return b"".join(line + (b"\r\n", b"\n", b"\r")[i % 3] for i, line in enumerate(lines[:-1])) + lines[-1]


def _tabs(data: bytes) -> bytes:
    return b"\n".join(line.replace(b"    ", b"\t") for line in data.split(b"\n"))


ODD: dict[str, Callable[[bytes], bytes]] = {
    "crlf": lambda data: data.replace(b"\n", b"\r\n"),
    "mixed": _mixed,
    "lone-cr": _lone_cr,
    "bom": lambda data: b"\xef\xbb\xbf" + data,
    "bom-crlf": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    "cookie": lambda data: b"#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n" + data,
    "form-feed": lambda data: b"\x0c\n" + data.replace(b"\n\n\n", b"\n\x0c\n\n"),
    "no-final-newline": lambda data: data.rstrip(b"\n"),
    "tabs": _tabs,
    "not-ascii": lambda data: "# größer als 101 376 Bytes 🙂\n".encode() + data,
    "trailing-blanks": lambda data: data + b"\n   \n\t",
}


@pytest.mark.parametrize("kind", ODD)
def test_every_byte_outside_the_edit_stays(site: Path, kind: str) -> None:
    odd = {path: ODD[kind](engine.files()[path]) for path in (engine.ADD_NORM, engine.COMM_FUSION)}
    for path, data in odd.items():
        engine.put(site / path, data)
    try:
        engine.apply(site, engine.FUSION)
    except SmPatchError as error:
        # refusing an odd file is right as long as it says so, and does nothing
        assert kind in {"lone-cr", "mixed"}, error.what
        assert engine.tree(site) == {**engine.files(), **odd}
        return
    assert engine.states(site)[engine.FUSION] == "patched"
    for path, data in odd.items():
        after = (site / path).read_bytes()
        compile(after, path, "exec")
        assert _is_subsequence(data, after), "bytes were lost"
        for ending in (b"\r\n", b"\r", b"\n"):
            if kind in ("crlf", "bom-crlf"):
                assert after.count(b"\n") == after.count(b"\r\n")
            assert after.count(ending) >= data.count(ending)
        assert after.startswith(data[:20])
        assert after.endswith(data[-1:])
    engine.revert(site, engine.FUSION)
    assert engine.tree(site) == {**engine.files(), **odd}


def _is_subsequence(part: bytes, whole: bytes) -> bool:
    rest = iter(whole)
    return all(byte in rest for byte in part)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("nul", b"x = 1\n\0\n"),
        ("utf-16", "x = 1\n".encode("utf-16")),
        ("latin-1", b"# -*- coding: latin-1 -*-\nx = '\xe9'\n"),
        ("unparsable", b"def broken(:\n"),
        ("newer", b"match = type x = = 1\n"),
        ("empty", b""),
        ("huge-nesting", b"(" * 3000 + b")" * 3000),
    ],
)
def test_a_file_that_cannot_be_read_is_that_gates_error_only(site: Path, kind: str, data: bytes) -> None:
    engine.put(site / engine.ADD_NORM, data)
    before = engine.tree(site)
    with pytest.raises(SmPatchError) as caught:
        engine.apply(site, engine.FUSION)
    assert engine.ADD_NORM in caught.value.where + caught.value.what
    assert engine.tree(site) == before
    assert engine.states(site)[engine.FUSION] == "unrecognised"
    outcome = engine.apply(site, engine.AUTO)
    assert [change.path for change in outcome.written] == [engine.OVERRIDES]
    assert engine.states(site)[engine.AUTO] == "patched"
    engine.revert(site)
    assert engine.tree(site) == before
