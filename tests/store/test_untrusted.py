"""Neither what lies in the state folder is trusted, nor that folder, nor a path in the package that becomes a link."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from patcher import disk, records
from patcher.arch import SM120
from patcher.errors import IOFailure, SmPatchError, StoreDamaged, Untrusted
from patcher.source import digest
from patcher.store import Write
from patcher.verification import verify
from tests.store import engine
from tests.store.conftest import CHANGES
from tests.store.faults import Steps, killed, steps_of, using

MUTATIONS = 10_000
NASTY: list[Any] = [
    "/etc/passwd",
    "../../outside/secret.py",
    "sglang/../../outside/secret.py",
    "sglang/./srt/x.py",
    "sglang//x.py",
    "sglang",
    "outside/secret.py",
    "sglang/\0.py",
    "sglang/\ud800.py",
    "sglang/\x1b[2Jx.py",
    "sglang\\..\\x.py",
    "sglang/" + "x" * 300,
    "",
    "0" * 64,
    "g" * 64,
    "../" * 30 + "x",
    None,
    True,
    -1,
    1e308,
    10**30,
    [],
    {},
    [[]],
    {"a": {}},
    ["sglang/srt/x.py"],
]


# -- ten thousand mutations ------------------------------------------------------------------------------------------


class Attacked:
    """A world whose state is mutated, used and put right again, over and over."""

    def __init__(self, folder: Path, gate_sets: Iterable[tuple[str, ...]]) -> None:
        self.folder = folder
        self.site = folder / "site"
        outside = folder / "outside"
        outside.mkdir()
        (outside / "secret.py").write_bytes(b"not yours\n")
        (self.site / "other").mkdir()
        (self.site / "other" / "secret.py").write_bytes(b"not yours either\n")
        self.state = engine.store(self.site).state
        self.good = self._all()
        self.originals = {r.original for r in engine.workplace(self.site).manifest.files.values()}
        trees = self._trees(gate_sets)
        self.known = {path: {tree[path] for tree in trees} for path in engine.files()}

    def _trees(self, gate_sets: Iterable[tuple[str, ...]]) -> list[dict[str, bytes | str]]:
        """What the package looks like with each set of gates in force."""
        found = []
        for gates in gate_sets:
            made = self.folder.parent / "made"
            engine.install(made / "site")
            if gates:
                engine.apply(made / "site", *gates)
            found.append(engine.tree(made / "site"))
            shutil.rmtree(made)
        return found

    def _all(self) -> dict[Path, bytes]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                if not path.is_symlink() and stat.S_ISREG(path.lstat().st_mode):
                    found[path] = path.read_bytes()
        return found

    def state_files(self) -> list[Path]:
        own = [p for p in self.good if self.state in p.parents and not p.name.startswith(disk.TEMPORARY)]
        return sorted(p for p in own if p.name not in ("lock", ".gitignore"))

    def put_right(self) -> None:
        now = self._all()
        for path in now.keys() - self.good.keys():
            path.unlink()
        for path, data in self.good.items():
            if now.get(path) != data:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
                path.write_bytes(data)

    def check(self, *, sealed: bool, swept: bool, backups: set[str]) -> None:
        for path, data in self.good.items():
            if self.state not in path.parents and (self.site / "sglang") not in path.parents:
                assert path.read_bytes() == data, f"written outside of the package: {path}"
        now = self._all()
        came_or_went = {p for p in now.keys() ^ self.good.keys() if self.state not in p.parents}
        assert not {p for p in came_or_went if not p.name.startswith(disk.TEMPORARY)}
        if not sealed:
            for name, versions in self.known.items():
                assert now[self.site / name] in versions, f"{name} has bytes that nobody gave it"
        if not swept:
            assert backups <= {digest(data) for data in now.values()}, "a backup is lost"

    def backups(self) -> set[str]:
        """The originals that are there in some backup, intact."""
        folder = self.state / "blobs"
        found = set()
        for sha in self.originals:
            path = folder / sha
            if path.is_file() and not path.is_symlink() and digest(path.read_bytes()) == sha:
                found.add(sha)
        return found


def _mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    place = chance.randrange(len(data) + 1)
    match chance.randrange(6):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        case 2:
            return data[:place] + chance.randbytes(chance.randrange(1, 40)) + data[place:]
        case 3:
            return data[:place] + data[place + chance.randrange(1, 60) :]
        case 4:
            other = chance.randrange(len(data) + 1)
            return data[:place] + data[other : other + 50] + data[place:]
        case _:
            return chance.choice([b"", b"{}", b"[]", b"null", b"\0" * 100, b"[" * 100_000, b"1" * 5000, b'"\\ud800"'])


def _mutate_json(chance: random.Random, data: bytes) -> bytes:
    """One value, key or entry changed, and the digest made right again: what only a sound check finds."""
    document = json.loads(data)
    document.pop("digest")
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(document)
    node, key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            del node[key]
        case 1 if isinstance(node, dict):
            node[str(chance.choice(NASTY))] = node.pop(key)
        case 2:
            other, where = chance.choice(places)
            node[key] = json.loads(json.dumps(other[where])) if where in other or isinstance(other, list) else None
        case _:
            node[key] = chance.choice(NASTY)
    return records.seal(document)


def _mutate_kind(chance: random.Random, path: Path, outside: Path) -> None:
    path.unlink()
    match chance.randrange(4):
        case 0:
            path.symlink_to(outside / "secret.py")
        case 1:
            path.mkdir()
        case 2:
            os.mkfifo(path)
        case _:
            pass


COMMANDS: list[Callable[[Path], object]] = [
    engine.states,
    engine.revert,
    lambda site: engine.workplace(site).differences(),
    lambda site: engine.apply(site, engine.AUTO),
    lambda site: verify(engine.workplace(site)),
    lambda site: engine.revert(site, engine.BESIDE),
    lambda site: engine.workplace(site).clean(),
]


@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize("interrupted", [False, True], ids=["at-rest", "interrupted"])
def test_mutated_state(memory: Path, interrupted: bool, injections: Callable[[int], None]) -> None:
    folder = memory / "world"
    site = folder / "site"
    engine.install(site)
    engine.apply(site, engine.FUSION, engine.BESIDE)
    sets = [(), *(c for n in (1, 2, 3) for c in combinations((engine.FUSION, engine.BESIDE, engine.AUTO), n))]
    attacked = Attacked(folder, sets)
    if interrupted:
        shutil.copytree(folder, memory / "count", symlinks=True)
        log = steps_of(lambda: engine.revert(memory / "count" / "site"))
        first_file = [number for number, name in enumerate(log) if name == "rename"][-3]
        assert killed(lambda: engine.revert(site), first_file, "after")
        attacked.good = attacked._all()
        shutil.rmtree(memory / "count")
    chance = random.Random(4 + interrupted)
    files = attacked.state_files()
    assert len(files) == 3 + 3 * interrupted
    told = 0
    for number in range(MUTATIONS // 2):
        path = chance.choice(files)
        kind = chance.random()
        sealed = path.suffix == ".json" and kind < 0.3
        if sealed:
            path.write_bytes(_mutate_json(chance, path.read_bytes()))
        elif kind > 0.95:
            _mutate_kind(chance, path, folder / "outside")
        else:
            path.write_bytes(_mutate_bytes(chance, path.read_bytes()))
        backups = attacked.backups()
        work = COMMANDS[number % len(COMMANDS)]
        try:
            work(site)
        except SmPatchError as error:
            told += 1
            str(error).encode()
            json.dumps(error.as_dict()).encode()
        attacked.check(sealed=sealed, swept=work is COMMANDS[-1], backups=backups)
        attacked.put_right()
    injections(MUTATIONS // 2)
    assert told > MUTATIONS // 20


# -- one by one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [n for n in NASTY if isinstance(n, str) and "/" in n])
@pytest.mark.parametrize("document", ["manifest.json", "journal.json"])
def test_paths_out_of_the_package_are_damage(site: Path, path: str, document: str) -> None:
    engine.apply(site)
    store = engine.store(site)
    if document == "manifest.json":
        data = json.loads((store.state / document).read_bytes())
        data["files"][path] = data["files"].pop(engine.ADD_NORM)
        data["gates"][engine.FUSION]["files"] = list(data["files"])
    else:
        moves = {path: {"old": "0" * 64, "new": "1" * 64, "old_link": None, "new_link": None}}
        data = {"schema": 1, "before": [None], "after": "2" * 64, "moves": moves}
    data.pop("digest", None)
    (store.state / document).write_bytes(records.seal(data))
    with pytest.raises(StoreDamaged) as caught:
        engine.revert(site)
    assert caught.value.exit_code == 5
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("path", ["/etc/x.py", "sglang/../x.py", "other/x.py", "../x.py", "x.py", "sglang"])
def test_a_recipe_that_leads_out_of_the_package_is_refused(site: Path, path: str) -> None:
    """Also third-party packs: the store does all writing, and only below the package."""
    store = engine.store(site)
    system = Steps()
    with store.locked(), using(system), pytest.raises(IOFailure, match="out of the package"):
        store.commit({path: Write("0" * 64, b"x")}, engine.workplace(site).manifest)
    assert not system.log


def test_a_folder_of_the_package_that_leads_out_is_refused(site: Path) -> None:
    away = site.parent / "away"
    shutil.move(site / "sglang/srt/layers", away)
    (site / "sglang/srt/layers").symlink_to(away)
    system = Steps()
    with using(system), pytest.raises(IOFailure, match="leads out of the package") as caught:
        engine.apply(site, engine.FUSION)
    assert not system.log
    assert "--root" in caught.value.hint


def test_a_folder_that_turns_into_a_link_meanwhile_is_not_followed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = site.parent / "away"
    shutil.copytree(site / "sglang/srt/layers/layer_boundary/residual", away)
    before = {path: path.read_bytes() for path in away.iterdir()}
    store = engine.store(site)
    real = type(store)._folder_of

    def swapped(self: Any, path: str) -> Path:
        folder = real(self, path)
        victim = site / "sglang/srt/layers/layer_boundary/residual"
        if path == engine.ADD_NORM and not victim.is_symlink():
            shutil.move(victim, site.parent / "moved")
            victim.symlink_to(away)
        return folder

    workplace = engine.workplace(site)
    _, manifest, writes = workplace.planned([SM120], [], [])
    with store.locked():
        monkeypatch.setattr(type(store), "_folder_of", swapped)
        with pytest.raises(SmPatchError):
            store.commit(writes, manifest)
    assert {path: path.read_bytes() for path in away.iterdir()} == before


@pytest.mark.parametrize("inner", ["", "blobs"])
def test_a_world_writable_state_folder_is_refused(site: Path, inner: str) -> None:
    engine.apply(site)
    state = engine.store(site).state
    (state / inner).chmod(0o777)
    before = engine.tree(site)
    for work in (engine.revert, lambda s: engine.workplace(s).clean()):
        with pytest.raises(Untrusted) as caught:
            work(site)
        assert caught.value.exit_code == 6
        assert "chmod" in caught.value.hint
    assert engine.tree(site) == before
    (state / inner).chmod(0o755)
    engine.revert(site)
    assert engine.states(site)[engine.FUSION] == "closed"


def test_status_does_not_believe_a_world_writable_state_folder(site: Path) -> None:
    engine.apply(site)
    engine.store(site).state.parent.chmod(0o777)
    with pytest.raises(Untrusted):
        engine.states(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders away")
def test_a_foreign_state_folder_is_refused(site: Path) -> None:
    engine.apply(site)
    os.chown(engine.store(site).state, 12345, 12345)
    with pytest.raises(Untrusted, match="user 12345"):
        engine.revert(site)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders away")
def test_the_owner_of_the_package_may_own_the_state(site: Path) -> None:
    engine.apply(site)
    for path in (site.parent / ".sm-patch").rglob("*"):
        os.chown(path, 12345, 12345)
    for path in (site / "sglang", *(site / "sglang").rglob("*")):
        os.chown(path, 12345, 12345)
    engine.revert(site)
    assert (site / engine.ADD_NORM).stat().st_uid == 12345


@pytest.mark.parametrize(
    "part", [".sm-patch", ".sm-patch/site", ".sm-patch/site/sglang", ".sm-patch/site/sglang/blobs"]
)
def test_a_state_folder_that_is_a_link_is_not_followed(site: Path, part: str) -> None:
    engine.apply(site)
    victim = site.parent / part
    away = site.parent / "away"
    shutil.move(victim, away)
    victim.symlink_to(away)
    before = {p: p.read_bytes() for p in away.rglob("*") if p.is_file()}
    with pytest.raises((Untrusted, StoreDamaged)):
        engine.revert(site)
    assert {p: p.read_bytes() for p in away.rglob("*") if p.is_file()} == before
    assert engine.tree(site)[engine.ADD_NORM] != engine.files()[engine.ADD_NORM]


def test_a_lock_that_is_a_link_is_not_followed(site: Path) -> None:
    engine.apply(site)
    victim = site.parent / "victim"
    victim.write_bytes(b"precious")
    lock = engine.store(site).state / "lock"
    lock.unlink()
    lock.symlink_to(victim)
    with pytest.raises(IOFailure):
        engine.revert(site)
    assert victim.read_bytes() == b"precious"


def test_a_damaged_backup_is_told_and_nothing_is_written(site: Path) -> None:
    engine.apply(site)
    workplace = engine.workplace(site)
    backup = workplace.store.state / "blobs" / workplace.manifest.files[engine.ADD_NORM].original
    good = backup.read_bytes()
    backup.write_bytes(good[:-1])
    before = engine.tree(site)
    with pytest.raises(StoreDamaged) as caught:
        engine.revert(site)
    assert str(backup) in caught.value.where
    assert engine.tree(site) == before
    assert verify(engine.workplace(site)).backups[engine.ADD_NORM] == "damaged"
    assert verify(engine.workplace(site)).exit_code == 5
    backup.write_bytes(good)
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_a_damaged_backup_is_made_good_when_the_same_bytes_are_seen_again(site: Path) -> None:
    engine.apply(site)
    workplace = engine.workplace(site)
    backup = workplace.store.state / "blobs" / workplace.manifest.files[engine.ADD_NORM].original
    backup.write_bytes(b"damaged")
    engine.install(site)
    engine.apply(site)
    engine.revert(site)
    assert engine.tree(site) == engine.files()


def test_an_interrupted_change_with_a_damaged_journal(memory: Path) -> None:
    change = CHANGES[0]
    world = change.world(memory)
    log = steps_of(lambda: engine.apply(world.copy("count").site))
    first_file = [number for number, name in enumerate(log) if name == "rename"][-3]
    assert killed(lambda: engine.apply(world.site), first_file, "after")
    journal = engine.store(world.site).state / "journal.json"
    good = journal.read_bytes()
    journal.write_bytes(good[: len(good) // 2])
    before = engine.tree(world.site)
    assert engine.store(world.site).interrupted()
    with pytest.raises(StoreDamaged) as caught:
        engine.apply(world.site)
    assert caught.value.exit_code == 5
    assert engine.tree(world.site) == before
    assert verify(engine.workplace(world.site)).exit_code == 5
    journal.write_bytes(good)
    engine.apply(world.site)
    assert engine.states(world.site)[engine.FUSION] == "patched"
