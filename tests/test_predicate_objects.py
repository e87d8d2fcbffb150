"""Predicates behind objects: class methods, inheritance, enumerations, named tuples, receivers, typed parameters."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from patcher.arch import SM, SM120, SM121
from patcher.predicate import ALL_WORLDS, OTHER_WORLDS, UNKNOWN, NotHere, Predicates, Raises, Scope, cuda_world
from patcher.source import SourceTree
from patches.vllm import ENGINE
from patches.vllm import _miniature as mini

Folder = Callable[[Mapping[str, str]], Path]
_USER = "vllm/user.py"
_HEAD = """\
from typing import TYPE_CHECKING, Optional

import torch
from packaging import version

from vllm.platforms import current_platform

if TYPE_CHECKING:
    from vllm.platforms.interface import DeviceCapability
    SECRET = True
"""


def _user(folder_of: Folder, code: str, **files: str) -> tuple[Predicates, Any]:
    tree = SourceTree(folder_of({**mini.PLATFORMS, _USER: _HEAD + code, **files}))
    predicates = Predicates(tree, "vllm", ENGINE.objects)
    return predicates, predicates.module("vllm.user")


def _admitted(predicates: Predicates, node: ast.expr, scope: Scope) -> set[str]:
    found = set()
    for world in ALL_WORLDS:
        if predicates.value(node, scope, world) is True:
            found.add(str(world))
    return found


_FORMS = {
    "current_platform.is_cuda()": {str(w) for w in ALL_WORLDS} - {str(w) for w in OTHER_WORLDS},
    "current_platform.is_device_capability(120)": {"SM120", "AMD gfx120"},
    "current_platform.is_device_capability((12, 1))": {"SM121"},
    "current_platform.is_cuda() and current_platform.is_device_capability_family(120)": {"SM120", "SM121"},
    "current_platform.get_device_capability().to_int() == 90": {"SM90"},
    "current_platform.is_cuda() and current_platform.get_device_capability() >= (12, 1)": {"SM121"},
    "current_platform.get_device_capability().major == 10": {"SM100", "SM101", "SM103"},
    "version.parse(torch.version.cuda) >= version.parse('12.8') and torch.cuda.get_device_capability() == (12, 0)": {
        "SM120"
    },
}


@pytest.mark.parametrize(("text", "wanted"), _FORMS.items())
def test_forms(text: str, wanted: set[str], folder_of: Folder) -> None:
    predicates, module = _user(folder_of, "")
    assert _admitted(predicates, ast.parse(text, mode="eval").body, Scope(module)) == wanted


def test_without_the_engines_word_the_object_is_not_known(folder_of: Folder) -> None:
    predicates = Predicates(SourceTree(folder_of({**mini.PLATFORMS, _USER: _HEAD})), "vllm")
    module = predicates.module("vllm.user")
    assert module is not None
    asked = ast.parse("current_platform.is_cuda()", mode="eval").body
    assert predicates.value(asked, Scope(module), cuda_world(SM120)) is UNKNOWN


def test_what_only_type_checkers_import_is_no_name(folder_of: Folder) -> None:
    predicates, module = _user(folder_of, "")
    with pytest.raises(Raises, match="NameError"):
        predicates.value(ast.parse("SECRET", mode="eval").body, Scope(module), cuda_world(SM120))


def test_a_name_that_the_module_makes_is_not_known(folder_of: Folder) -> None:
    predicates, _ = _user(folder_of, "")
    assert predicates.exported("vllm.platforms", "anything", cuda_world(SM120)) is UNKNOWN


@pytest.mark.parametrize(
    "annotation", ["DeviceCapability", '"DeviceCapability"', "DeviceCapability | None", "Optional[DeviceCapability]"]
)
def test_a_parameter_of_a_capability_type_is_the_gpus(annotation: str, folder_of: Folder) -> None:
    code = f"\n\ndef supports(capability: {annotation}, other):\n    return capability.major == 12\n"
    predicates, module = _user(folder_of, code)
    (function,) = module.source.defined("supports")
    returned = function.body[0].value
    assert _admitted(predicates, returned, Scope(module, function)) >= {"SM120", "SM121"}
    assert "SM100" not in _admitted(predicates, returned, Scope(module, function))
    assert predicates.value(ast.Name("other", ast.Load()), Scope(module, function), cuda_world(SM120)) is UNKNOWN


def test_a_device_is_the_gpu(folder_of: Folder) -> None:
    code = """

def capability(device: torch.device):
    if device.type != "cuda":
        raise ValueError("no")
    return torch.cuda.get_device_capability(device.index)


def exact(device: torch.device) -> bool:
    major, minor = capability(device)
    return major == 12 and minor == 0


def uses(x):
    return exact(x.device)
"""
    predicates, module = _user(folder_of, code)
    (function,) = module.source.defined("uses")
    scope = Scope(module, function)
    returned = function.body[0].value
    assert [predicates.value(returned, scope, cuda_world(SM(*sm))) for sm in ((12, 0), (12, 1), (9, 0))] == [
        True,
        False,
        False,
    ]
    with pytest.raises(Raises, match="ValueError"):
        predicates.value(returned, scope, OTHER_WORLDS[-1])


_METHODS = """
    @classmethod
    def family(cls):
        return cls.is_device_capability_family(120)

    @staticmethod
    def fixed():
        return 7

    @property
    def named(self):
        return self.is_cuda()
"""


def test_a_receiver_is_the_object_of_this_world(folder_of: Folder) -> None:
    predicates, _ = _user(folder_of, "", **{mini.CUDA: mini.cuda(_METHODS)})
    module = predicates.module("vllm.platforms.cuda")
    assert module is not None
    (method,) = module.source.defined("CudaPlatformBase.family")
    returned = method.body[0]
    assert isinstance(returned, ast.Return)
    assert returned.value is not None
    assert isinstance(method, ast.FunctionDef)
    scope = Scope(module, method)
    assert predicates.value(returned.value, scope, cuda_world(SM121)) is True
    assert predicates.value(returned.value, scope, cuda_world(SM(10, 0))) is False
    for world in OTHER_WORLDS:
        with pytest.raises(NotHere):
            predicates.value(returned.value, scope, world)


def test_kinds_of_methods(folder_of: Folder) -> None:
    predicates, module = _user(folder_of, "", **{mini.CUDA: mini.cuda(_METHODS)})
    for text, wanted in (("current_platform.fixed()", 7), ("current_platform.named", True)):
        value = predicates.value(ast.parse(text, mode="eval").body, Scope(module), cuda_world(SM120))
        assert value == wanted


_SETS = """
class C:
    ok = 1
    flag = 1

    def set(self, config, flags):
        table = {"one": 1, "flag": 2}
        for name, _ in %s.items():
            setattr(config, name, False)

"""
_UP = "class Up:\n    def ok(self): return 1\n"
_DOUBTFUL = {
    "a base outside the source": (f"import out\n{_UP}class C(out.Base, Up): pass\n", "C().ok()"),
    "a diamond": (
        f"{_UP}class L(Up): pass\nclass R(Up):\n    def ok(self): return 2\nclass C(L, R): pass\n",
        "C().ok()",
    ),
    "set by a method of the class above": (
        "class Up:\n    ok = 1\n    def set(self): self.ok = 2\nclass C(Up): pass\n",
        "C().ok",
    ),
    "a name of the class's own body": ("a = 1\nclass C:\n    a = 2\n    b = a\n", "C.b"),
    "a list of the class": ("class C:\n    seen = []\n", "len(C.seen)"),
    "a member that is text too": ("import enum\nclass E(str, enum.Enum):\n    A = 'a'\n", "E.A == 'a'"),
    "a member under two names": ("import enum\nclass E(enum.Enum):\n    A = 1\n    B = 1\n", "E.A == E.B"),
    "of a class that may inherit from it": (f"import out\n{_UP}class C(out.Base): pass\n", "isinstance(C(), Up)"),
    "set under names that are given": (_SETS % "flags", "C().ok"),
    "set under a written name": (_SETS % "table", "C().flag"),
}


@pytest.mark.parametrize(("code", "text"), _DOUBTFUL.values(), ids=_DOUBTFUL)
def test_what_a_class_may_have_otherwise_is_unknown(code: str, text: str, folder_of: Folder) -> None:
    predicates, module = _user(folder_of, code)
    assert predicates.value(ast.parse(text, mode="eval").body, Scope(module), cuda_world(SM120)) is UNKNOWN


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (f"{_UP}class C(Up): pass\n", "C().ok()"),
        (_SETS % "table", "C().ok"),
        ("class C:\n    ok = 1\n", "C.ok"),
    ],
)
def test_what_a_class_surely_has_is_known(code: str, text: str, folder_of: Folder) -> None:
    predicates, module = _user(folder_of, code)
    assert predicates.value(ast.parse(text, mode="eval").body, Scope(module), cuda_world(SM120)) == 1


def test_a_receiver_is_unknown_where_the_engine_does_not_say_what_there_is(folder_of: Folder) -> None:
    made = {name: {"cuda": classes["cuda"]} for name, classes in ENGINE.objects.items()}
    predicates = Predicates(SourceTree(folder_of(mini.PLATFORMS)), "vllm", made)
    module = predicates.module("vllm.platforms.interface")
    assert module is not None
    (method,) = module.source.defined("Platform.is_device_capability")
    assert isinstance(method, ast.FunctionDef)
    asked = ast.parse("cls.is_device_capability(120)", mode="eval").body
    assert predicates.value(asked, Scope(module, method), cuda_world(SM120)) is True
    assert predicates.value(asked, Scope(module, method), OTHER_WORLDS[0]) is UNKNOWN
