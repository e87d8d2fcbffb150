"""Every write of an installation or its state goes through ``patcher/disk.py``, and there through ``System``."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import patcher
from patcher import disk

_FOLDER = Path(patcher.__path__[0])
_ALLOWED = {"disk.py", "cache.py", "wheels.py", "jit_cache.py"}  # all but the first write in the user's caches only
_CHANGES = {
    *("write_bytes", "write_text", "unlink", "rename", "mkdir", "makedirs", "rmdir", "rmtree", "touch", "symlink_to"),
    *(
        "hardlink_to",
        "chmod",
        "chown",
        "lchmod",
        "copy",
        "copy2",
        "copyfile",
        "copytree",
        "move",
        "remove",
        "removedirs",
    ),
    *("truncate", "ftruncate", "fchmod", "fchown", "setxattr", "utime", "link", "symlink", "mkfifo", "renames"),
}
_MODULES = {"os", "shutil", "Path"}


def _modules() -> list[Path]:
    found = sorted(path for path in _FOLDER.rglob("*.py") if path.name not in _ALLOWED and path.name != "demo.py")
    assert len(found) > 15
    return found


def _changing_calls(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            found.append("open")
        elif isinstance(function, ast.Attribute) and function.attr in _CHANGES:
            on = function.value
            paths = {"write_bytes", "write_text", "touch", "symlink_to", "hardlink_to"}
            if function.attr in paths or (isinstance(on, ast.Name) and on.id in _MODULES):
                found.append(ast.unparse(function))
    return found


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(_FOLDER)))
def test_no_other_module_writes(path: Path) -> None:
    assert not _changing_calls(ast.parse(path.read_bytes()))


def test_the_disk_module_writes_through_the_system_only() -> None:
    tree = ast.parse(inspect.getsource(disk))
    (system,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "System")
    inside = set(_changing_calls(system))
    assert {"os.mkdir", "os.rename", "os.unlink", "os.symlink", "os.fchmod", "os.fchown"} <= inside
    outside = [call for node in tree.body if node is not system for call in _changing_calls(node)]
    assert not outside
