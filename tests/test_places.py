"""One package has one record however it is reached; a record that was left behind is told; a refusal leaves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from patcher import disk
from patcher.errors import Busy, IOFailure
from patcher.store import Manifest, Store
from tests.installation import ADD_NORM, FUSION, GATE, install, run, run_json, snapshot, states

LIB = "lib/python3.11/site-packages"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_PATCH_CACHE", str(tmp_path.parent / f"{tmp_path.name}-cache"))
    monkeypatch.setenv("SM_PATCH_SM", "120")


def manifests(folder: Path) -> list[Path]:
    return sorted(folder.rglob("manifest.json"))


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def folder_link(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "link").symlink_to("tree")
    return install(tmp_path / "tree"), tmp_path / "link"


def lib64(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/lib64").symlink_to("lib")
    return install(tmp_path / "venv" / LIB), tmp_path / "venv" / LIB.replace("lib/", "lib64/")


def package_link(tmp_path: Path) -> tuple[Path, Path]:
    root, site = install(tmp_path / "src"), tmp_path / "venv" / LIB
    site.mkdir(parents=True)
    for name in os.listdir(root):  # noqa: PTH208
        (site / name).symlink_to(root / name)
    return root, site


def renamed_package_link(tmp_path: Path) -> tuple[Path, Path]:
    root, site = package_link(tmp_path)
    (root / "sglang").rename(root / "sglang-dev")
    (root / "sglang").symlink_to("sglang-dev")
    (site / "sglang").unlink()
    (site / "sglang").symlink_to(root / "sglang-dev")
    return root, site


@pytest.mark.parametrize("ways", [folder_link, lib64, package_link, renamed_package_link])
@pytest.mark.parametrize("first", [0, 1])
def test_one_package_reached_in_two_ways_has_one_record(ways: object, first: int, tmp_path: Path) -> None:
    both = ways(tmp_path)  # type: ignore[operator]
    one, other = both[first], both[1 - first]
    before = (one / FUSION).read_bytes()
    assert run("apply", "--gate", GATE, root=one).exit_code == 0
    assert len(manifests(tmp_path)) == 1
    assert states(one)[GATE] == states(other)[GATE] == "patched"
    assert run("verify", root=other).exit_code == 0
    assert run("apply", "--gate", GATE, root=other).exit_code == 0 and len(manifests(tmp_path)) == 1
    assert run("revert", root=other).exit_code == 0
    assert (one / FUSION).read_bytes() == before and states(one)[GATE] == "closed"


def test_two_packages_behind_links_in_one_folder_have_two_records(tmp_path: Path) -> None:
    install(tmp_path / "src")
    (tmp_path / "src/sglang").rename(tmp_path / "src/a")
    install(tmp_path / "src")
    for root, target in (("one", "a"), ("two", "sglang")):
        install(tmp_path / root)
        (tmp_path / root / "sglang").rename(tmp_path / root / "gone")
        (tmp_path / root / "sglang").symlink_to(tmp_path / "src" / target)
    assert run("apply", "--gate", GATE, root=tmp_path / "one").exit_code == 0
    assert states(tmp_path / "two")[GATE] == "closed"
    assert run("apply", "--gate", GATE, root=tmp_path / "two").exit_code == 0
    assert len(manifests(tmp_path)) == 2
    assert run("revert", root=tmp_path / "one").exit_code == 0 and states(tmp_path / "two")[GATE] == "patched"


def test_a_package_that_was_moved_without_its_record(tmp_path: Path) -> None:
    old, new = install(tmp_path / "tree"), tmp_path / "moved"
    before = snapshot(old)
    assert run("apply", "--gate", GATE, root=old).exit_code == 0
    (record,) = manifests(tmp_path)
    blobs = everything(record.parent / "blobs")
    old.rename(new)
    _, shown = run_json("status", root=new)
    (gate,) = [g for g in shown["installations"][0]["gates"] if g["gate"] == GATE]
    assert gate["state"] == "modified"
    for part in (f"moved here from {old}?", str(record.parent)):
        assert part in gate["reason"]
    code, verified = run_json("verify", root=new)
    assert code == 4 and str(record.parent) in verified["installations"][0]["unrecorded"][GATE]
    assert run("apply", "--gate", GATE, root=new).exit_code == 4
    for words in (["gc", "--dry-run"], ["gc"]):
        _, cleaned = run_json(*words, root=new)
        notes = " ".join(cleaned["installations"][0]["notes"])
        assert f"no longer in {old} (moved?)" in notes and "holds an edit of sm-patch" in notes
    assert everything(record.parent / "blobs") == blobs
    (tmp_path / ".sm-patch/moved").mkdir()
    record.parent.rename(tmp_path / ".sm-patch/moved/sglang")
    assert run("verify", root=new).exit_code == 0
    assert run("revert", root=new).exit_code == 0
    assert {path: data for path, (data, _, _) in snapshot(new).items()} == {p: d for p, (d, _, _) in before.items()}


def test_a_package_that_was_moved_far_away(tmp_path: Path) -> None:
    old, new = install(tmp_path / "a" / "tree"), tmp_path / "b" / "tree"
    assert run("apply", "--gate", GATE, root=old).exit_code == 0
    new.parent.mkdir()
    old.rename(new)
    _, cleaned = run_json("gc", root=new)
    assert "copied or moved here without it?" in " ".join(cleaned["installations"][0]["notes"])
    # Another package where it was: gc says what it takes the originals from.
    install(old, "0.5.22", files={FUSION: "other = 1\n"})
    (old / ADD_NORM).unlink()
    _, cleaned = run_json("gc", root=old)
    (done,) = cleaned["installations"]
    assert done["forgotten"] == [GATE] and len(done["backups"]) == 2
    (note,) = done["notes"]
    assert "cannot be reverted there now" in note and FUSION in note and ADD_NORM in note


def test_a_site_packages_of_a_python_that_is_gone(tmp_path: Path) -> None:
    old = install(tmp_path / "venv/lib/python3.9/site-packages")
    assert run("apply", "--gate", GATE, root=old).exit_code == 0
    (tmp_path / "venv/lib/python3.10").mkdir()
    new = tmp_path / "venv/lib/python3.10/site-packages"
    old.rename(new)
    _, verified = run_json("verify", root=new)
    assert f"moved here from {old}?" in verified["installations"][0]["unrecorded"][GATE]


# -- what a refusal leaves ------------------------------------------------------------------------------------------


def test_a_refusal_leaves_nothing(tmp_path: Path) -> None:
    root = install(tmp_path / "tree")
    before = everything(tmp_path)
    assert run("apply", "--gate", GATE, "--assume", "flashinfer-python==0.6.1", root=root).exit_code == 3
    assert run("apply", "--gate", GATE, "--dry-run", root=root).exit_code == 1
    assert run("revert", root=root).exit_code == 0 and run("gc", root=root).exit_code == 0
    assert everything(tmp_path) == before


@pytest.mark.parametrize("site", ["tree", "venv/lib/python3.11/site-packages"])
def test_a_change_that_fails_leaves_nothing(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = install(tmp_path / site)
    before, files = everything(tmp_path), snapshot(root)
    rename = disk.Folder.rename

    def failing(self: disk.Folder, temporary: str, name: str) -> None:
        if name == FUSION.rpartition("/")[2]:
            raise IOFailure("no", where=name)
        rename(self, temporary, name)

    monkeypatch.setattr(disk.Folder, "rename", failing)
    assert run("apply", "--gate", GATE, root=root).exit_code == 6
    monkeypatch.undo()
    assert everything(tmp_path) == before and snapshot(root).keys() == files.keys()


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    root = install(tmp_path / "tree")
    state = tmp_path / ".sm-patch/tree/sglang"
    state.mkdir(parents=True)
    (state / "lock").touch()
    (state / "note").write_text("mine")
    with Store(root, state, "sglang").locked():
        pass
    assert everything(state) == ["lock", "note"]


def test_the_lock_holds_while_others_take_it_away(tmp_path: Path) -> None:
    """Many processes that have nothing to record, each taking its folder away: never two inside at a time."""
    root = install(tmp_path / "tree")
    state, inside, failed = tmp_path / ".sm-patch/tree/sglang", tmp_path / "inside", tmp_path / "failed"
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(60):
                    with Store(root, state, "sglang").locked():
                        inside.mkdir()  # fails when another is inside
                        inside.rmdir()
                status = 0
            except BaseException as error:
                failed.write_text(repr(error))
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4, failed.read_text()
    # One that found the lock there leaves it there.
    assert not state.exists() or set(everything(state)) <= {"lock", ".gitignore"}


def test_one_that_records_something_is_not_swept_away(tmp_path: Path) -> None:
    root = install(tmp_path / "tree")
    state = tmp_path / ".sm-patch/tree/sglang"
    store = Store(root, state, "sglang")
    with store.locked():
        store.commit({}, Manifest("sglang", "0.5.23"))
        other = Store(root, state, "sglang")
        other.lock_seconds = 0.05
        with pytest.raises(Busy), other.locked():
            pass
    with Store(root, state, "sglang").locked():
        pass
    assert (state / "manifest.json").is_file() and (state / "lock").is_file()
