"""Which distribution an installed package is of, and so which version: never a guess."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from patcher.catalogue import engine_named
from patcher.environment import Environment, Installation, installation_at
from tests.engines import FILES
from tests.test_discovery import write

SGLANG = engine_named("sglang")


def info(root: Path, version: str, name: str = "sglang", **files: str | None) -> None:
    """Metadata in ``root``: RECORD, direct_url.json and the like by their names; None leaves one out."""
    folder = root / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    parts: dict[str, str | None] = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "RECORD": "sglang/__init__.py,,\n",
        **{key.replace("__", "."): text for key, text in files.items()},
    }
    for file, text in parts.items():
        if text is not None:
            (folder / file).write_text(text)


def package(root: Path, version: str = "") -> Path:
    write(root, {path: text for path, text in FILES.items() if path != "sglang/version.py"})
    if version:
        (root / "sglang/version.py").write_text(f'__version__ = "{version}"\n')
    return root


def record(version: str) -> str:
    """A RECORD that says what the version file was."""
    raw = hashlib.sha256(f'__version__ = "{version}"\n'.encode()).digest()
    return f"sglang/__init__.py,,\nsglang/version.py,sha256={base64.urlsafe_b64encode(raw).decode().rstrip('=')},20\n"


def editable(folder: Path) -> str:
    return json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})


def seen(root: Path, *more: Path) -> Installation:
    environment = Environment("here", (root, *more), {"sglang": (root / "sglang",)})
    return installation_at(environment, SGLANG, root)


def told(installation: Installation) -> tuple[str | None, str | None, str]:
    return installation.version, installation.distribution, installation.how


def test_metadata_beside_the_package_is_its_own(tmp_path: Path) -> None:
    site = package(tmp_path / "site")
    info(site, "0.5.8.post1")
    assert told(seen(site)) == ("0.5.8.post1", "sglang", "wheel") and seen(site).verified


@pytest.mark.parametrize("own", ["0.5.4", ""])
def test_metadata_elsewhere_on_the_path_says_nothing_about_a_copy(tmp_path: Path, own: str) -> None:
    copy, site = package(tmp_path / "copy", own), package(tmp_path / "site", "0.5.23")
    info(site, "0.5.23")
    here = seen(copy, site)
    assert told(here) == (own or None, None, "source tree") and not here.verified
    assert here.recorded().digest("sglang/__init__.py") is None


def test_metadata_that_another_copy_was_installed_with_is_not_believed(tmp_path: Path) -> None:
    site = package(tmp_path / "site", "0.5.23")  # copied over an installed 0.5.8
    info(site, "0.5.8", RECORD=record("0.5.8"))
    assert told(seen(site)) == ("0.5.23", None, "source tree") and not seen(site).verified
    (site / "sglang/version.py").write_text('__version__ = "0.5.8"\n')
    assert told(seen(site)) == ("0.5.8", "sglang", "wheel")


def test_an_editable_project_at_or_above_the_package(tmp_path: Path) -> None:
    site, project = tmp_path / "site", tmp_path / "git" / "python"
    info(site, "0.5.14", RECORD="__editable__.pth,,\n", direct_url__json=editable(project))
    assert told(seen(package(project), site)) == ("0.5.14", "sglang", "editable")
    assert told(seen(package(project / "src"), site)) == ("0.5.14", "sglang", "editable")
    assert not seen(project, site).verified
    other = package(tmp_path / "git" / "other")
    assert told(seen(other, site)) == (None, None, "source tree")


def test_an_editable_record_beside_a_copy_of_the_package(tmp_path: Path) -> None:
    site = package(tmp_path / "site", "0.5.4")
    info(site, "0.5.14", RECORD="__editable__.pth,,\n", direct_url__json=editable(tmp_path / "git"))
    assert told(seen(site)) == ("0.5.4", None, "source tree")


@pytest.mark.parametrize("url", ["", "{", "[]", '{"dir_info": {}}', '{"dir_info": {"editable": true}, "url": 3}'])
def test_a_direct_url_that_says_nothing(tmp_path: Path, url: str) -> None:
    site = package(tmp_path / "site")
    info(site, "0.5.8", direct_url__json=url)
    assert told(seen(site)) == ("0.5.8", "sglang", "wheel")


def test_system_packages_have_no_record(tmp_path: Path) -> None:
    site = package(tmp_path / "usr/lib/python3/dist-packages")
    info(site, "0.5.8", RECORD=None)
    assert told(seen(site)) == ("0.5.8", "sglang", "system package") and not seen(site).verified
    other = package(tmp_path / "other")
    info(other, "0.5.9", "acme-engine", RECORD=None, top_level__txt="sglang\n")
    assert told(seen(other)) == ("0.5.9", "acme-engine", "editable") and seen(other).repackaged


def test_the_metadata_of_a_checkout(tmp_path: Path) -> None:
    root = package(tmp_path / "git" / "python")
    (root / "sglang.egg-info").mkdir()
    (root / "sglang.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.9\n")
    assert told(seen(root)) == ("0.5.9", "sglang", "editable")


def test_of_two_distributions_the_one_whose_files_are_there(tmp_path: Path) -> None:
    site = package(tmp_path / "site", "0.5.23")
    info(site, "0.5.8", RECORD=record("0.5.8"))
    info(site, "0.5.23", "acme-sglang", RECORD=record("0.5.23"))
    assert told(seen(site)) == ("0.5.23", "acme-sglang", "wheel") and seen(site).repackaged


def test_through_a_link_it_is_the_same(tmp_path: Path) -> None:
    site = package(tmp_path / "lib" / "site-packages")
    info(site, "0.5.8")
    (tmp_path / "lib64").symlink_to("lib")
    link = tmp_path / "lib64" / "site-packages"
    assert told(seen(link, site)) == told(seen(site, link)) == ("0.5.8", "sglang", "wheel")
