"""Runs inside the engine's own interpreter, in a process of its own: what torch, NVML and the engine really say.

Nothing of sm-patch can be imported here: ``probe`` hands this file's text to the other interpreter. It reads one
JSON request from stdin and writes JSON lines to the file that the request names, each as soon as it is known, so
that a crash tells how far it came. With ``simulate`` torch is made to report other GPUs than the machine has;
packages that are missing (and the kernel packages named) are replaced by stand-ins. With ``fill_in`` torch and the
GPUs are the real ones, and only packages that are missing are replaced.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import shutil
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_NVCC_SECONDS = 20


# What libraries ask an object whether it has it; saying yes would be taken for a promise.
_PROTOCOLS = frozenset(
    {
        *("__text_signature__", "__dataclass_fields__", "__torch_function__", "__class_getitem__", "__set_name__"),
        *("__get_pydantic_core_schema__", "__get_pydantic_json_schema__", "__pydantic_core_schema__"),
        *("__array_interface__", "__array_struct__", "__cuda_array_interface__", "__typing_subst__"),
        *("__typing_prepare_subst__", "__typing_is_unpacked_typevartuple__", "__init_subclass__", "__attrs_attrs__"),
    }
)


class _Base:
    """What a class gets that derives from a stand-in; more than that is asked of it at import by what it would be."""

    __struct_fields__ = ()  # msgspec's structs

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)

    @classmethod
    def model_rebuild(cls, *args: Any, **kwargs: Any) -> None:
        """What pydantic's models are told at import."""


def _decorates() -> bool:
    """Whether the call under way is written as a decorator."""
    frame = sys._getframe(2)
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("@")


class StandIn:
    """Stands for anything of a missing package: may be called, subclassed, decorated with, compared."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and ("_" not in name.strip("_") or name in _PROTOCOLS):
            raise AttributeError(name)
        made = StandIn(f"{self.__dict__['_name']}.{name}")
        self.__dict__[name] = made
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)) and _decorates():
            return args[0]
        return StandIn(f"{self.__dict__['_name']}()")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("StandInBase", (_Base,), {}),)

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __repr__(self) -> str:
        return f"<stand-in {self.__dict__['_name']}>"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __contains__(self, item: Any) -> bool:
        return False

    def _same(self, *args: Any) -> Any:
        return self

    def _zero(self) -> int:
        return 0

    def _true(self, other: Any) -> bool:
        return True

    __getitem__ = __or__ = __ror__ = __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = _same
    __floordiv__ = __mod__ = __neg__ = __and__ = _same
    __len__ = __int__ = __index__ = _zero
    __lt__ = __le__ = __gt__ = __ge__ = _true


def _let_be_dumped() -> None:
    """Let what is written out at import (a default in a hash of settings) hold stand-ins."""
    written = json.JSONEncoder.default

    def default(self: json.JSONEncoder, o: Any) -> Any:
        return repr(o) if isinstance(o, StandIn) else written(self, o)

    json.JSONEncoder.default = default  # type: ignore[method-assign]


# Parts that torch has only where another vendor's package put them.
_FOREIGN = frozenset({("torch", "npu"), ("torch", "musa"), ("torch", "hpu")})


class StandInModule(types.ModuleType):
    """A module of a missing package."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__version__ = "2.9.0"

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("__") and name.endswith("__")) or (self.__name__, name) in _FOREIGN:
            raise AttributeError(name)
        made = StandIn(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: gives stand-ins for packages nothing else finds. Comes first for the ``always`` ones."""

    def __init__(self, engine: str, always: Sequence[str], only_always: bool, absent: Sequence[str] = ()) -> None:
        self.engine = engine
        self.never = {engine, *absent}
        self.always = set(always)
        self.only_always = only_always
        self.given: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top in self.never or top in sys.builtin_module_names or top in sys.stdlib_module_names:
            return None
        if self.only_always:
            if top not in self.always:
                return None
        elif "." in name and not isinstance(sys.modules.get(name.rpartition(".")[0]), StandInModule):
            return None  # a part that a real package lacks is really missing
        elif "." not in name and _importer() not in (self.engine, "__main__"):
            return None  # what another package merely tries to import must stay missing
        self.given.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def _importer() -> str:
    """The top-level package whose code is importing something right now."""
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        importing = name.partition(".")[0] in ("importlib", "_frozen_importlib", "_frozen_importlib_external")
        if not importing and frame.f_code.co_name not in ("find_spec", "_importer"):
            return name.partition(".")[0]
        frame = frame.f_back  # type: ignore[assignment]
    return ""


# -- what torch says -----------------------------------------------------------------------------------------------


class _Properties:
    def __init__(self, capability: Sequence[int]) -> None:
        self.major, self.minor = capability
        self.name = f"simulated SM{self.major}{self.minor}"
        self.total_memory = 96 * 2**30
        self.multi_processor_count = 100


class _Library:
    """A library of custom operators, whose name is asked before one is registered."""

    def __init__(self, namespace: str, kind: str = "", *more: Any) -> None:
        self.m = types.SimpleNamespace(name=namespace)

    def __getattr__(self, name: str) -> Any:
        return StandIn(f"Library.{name}")


def simulate(torch: Any, capability: Sequence[int], cuda: str) -> None:
    """Make torch report one CUDA GPU of this capability."""
    major, minor = capability
    replaced: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_properties": lambda device=None: _Properties(capability),
        "get_device_name": lambda device=None: f"simulated SM{major}{minor}",
    }
    for name, function in replaced.items():
        setattr(torch.cuda, name, function)
    torch.version.cuda = cuda
    torch.version.hip = None
    if isinstance(torch, StandInModule):
        torch.version.musa = None
        importlib.import_module("torch.library").Library = _Library  # type: ignore[attr-defined]
    for other in ("xpu", "mps"):
        getattr(torch, other).is_available = lambda: False
    for function in [o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper)]:
        function.cache_clear()  # predicates remember the GPU they saw first


def torch_gpus(torch: Any) -> list[dict[str, Any]]:
    found = []
    count = torch.cuda.device_count()
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        shared = getattr(properties, "shared_memory_per_block_optin", None)
        peers = [other for other in range(count) if other != index and torch.cuda.can_device_access_peer(index, other)]
        found.append(
            {
                "index": index,
                "name": properties.name,
                "capability": list(torch.cuda.get_device_capability(index)),
                "memory_bytes": properties.total_memory,
                "shared_memory_per_block_optin_bytes": shared,
                "multiprocessors": properties.multi_processor_count,
                "p2p": peers,
            }
        )
    return found


# -- what NVML says --------------------------------------------------------------------------------------------------

_NVLINKS = 18
_P2P_READ = 0
_ANCESTORS = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "host bridge",
    40: "NUMA node",
    50: "system",
}


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def nvml_view() -> dict[str, Any]:
    """The driver's view. Raises OSError where there is no NVML, RuntimeError where it does not answer."""
    library = ctypes.CDLL("libnvidia-ml.so.1")

    def call(name: str, *args: Any) -> int:
        return int(getattr(library, name)(*args))

    def text(name: str, *before: Any) -> str:
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if call(name, *before, buffer, 96) == 0 else ""

    def number(name: str, *before: Any) -> int | None:
        value = ctypes.c_uint()
        return value.value if call(name, *before, ctypes.byref(value)) == 0 else None

    status = call("nvmlInit_v2")
    if status != 0:
        raise RuntimeError(f"nvmlInit says {status}")
    try:
        count = number("nvmlDeviceGetCount_v2") or 0
        handles = [ctypes.c_void_p() for _ in range(count)]
        for index, handle in enumerate(handles):
            call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
        gpus = []
        for index, handle in enumerate(handles):
            major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
            call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
            call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            links = sum(number("nvmlDeviceGetNvLinkState", handle, link) == 1 for link in range(_NVLINKS))
            others = {}
            for other, peer in enumerate(handles):
                if other != index:
                    readable = number("nvmlDeviceGetP2PStatus", handle, peer, _P2P_READ)
                    ancestor = number("nvmlDeviceGetTopologyCommonAncestor", handle, peer)
                    others[str(other)] = {
                        "p2p": None if readable is None else readable == 0,
                        "path": _ANCESTORS.get(-1 if ancestor is None else ancestor, ""),
                    }
            gpus.append(
                {
                    "index": index,
                    "name": text("nvmlDeviceGetName", handle),
                    "capability": [major.value, minor.value],
                    "memory_bytes": memory.total,
                    "nvlinks": links,
                    "others": others,
                }
            )
        version = ctypes.c_int()
        call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
        cuda = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else None
        return {"driver": text("nvmlSystemGetDriverVersion"), "cuda_driver": cuda, "gpus": gpus}
    finally:
        call("nvmlShutdown")


def nvcc() -> dict[str, Any]:
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [f"{home}/bin/nvcc" for home in homes if home]
    for place in [*places, shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]:
        if place and os.access(place, os.X_OK):
            said = subprocess.run(
                [place, "--version"], capture_output=True, text=True, timeout=_NVCC_SECONDS, check=False
            )
            release = said.stdout.partition("release ")[2].partition(",")[0]
            return {"path": place, "version": release or None}
    return {"path": None, "version": None}


# -- the run ---------------------------------------------------------------------------------------------------------


def cause(error: BaseException) -> dict[str, Any]:
    """The innermost cause of an error in one sentence, and the line that raised it."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        deeper = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if deeper is None:
            break
        error = deeper
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return {"type": type(error).__name__, "message": str(error)[:500], "where": where}


def plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return f"<{type(value).__name__}>"


def main() -> None:
    request = json.load(sys.stdin)
    sys.path[:] = [*request["paths"], *(p for p in sys.path if p)]
    with Path(request["out"]).open("w", encoding="utf-8") as out:

        def tell(event: str, **facts: Any) -> None:
            out.write(json.dumps({"event": event, **facts}) + "\n")
            out.flush()

        sys.stdout = sys.stderr  # what imports print is not our answer
        run(request, tell)
        tell("done")


def run(request: dict[str, Any], tell: Callable[..., None]) -> None:
    simulated: list[list[int]] = request["simulate"]
    tell("interpreter", executable=sys.executable, version=sys.version.split()[0], prefix=sys.prefix)
    finders: list[StandInFinder] = []
    if simulated or request["fill_in"]:
        always = request["stand_ins"] if simulated else ()
        absent = [*request["absent"], *([] if simulated else ["torch"])]
        finders = [
            StandInFinder(request["package"], always, True),
            StandInFinder(request["package"], (), False, absent),
        ]
        _let_be_dumped()
        if importlib.util.find_spec("regex") is None:
            sys.modules["regex"] = importlib.import_module("re")  # patterns are compiled and joined at import
    torch = None
    tell("starting", what="import torch")
    try:
        if simulated and importlib.util.find_spec("torch") is None:
            sys.meta_path.append(finders[1])
        torch = importlib.import_module("torch")
        stub = isinstance(torch, StandInModule)
        facts = {} if stub else {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
        tell("torch", stand_in=stub, **facts)
    except BaseException as error:
        tell("torch", error=cause(error))
    if finders:  # only now: what a real torch merely tries to import must stay missing
        sys.meta_path.insert(0, finders[0])
        if finders[1] not in sys.meta_path:
            sys.meta_path.append(finders[1])
    if torch is not None and not simulated:
        tell("starting", what="torch.cuda")
        try:
            tell("gpus", gpus=torch_gpus(torch) if torch.cuda.is_available() else [])
        except BaseException as error:
            tell("gpus", gpus=[], error=cause(error))
    for name, ask in (("nvml", nvml_view), ("nvcc", nvcc)):
        try:
            tell(name, **ask())
        except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as problem:
            tell(name, error=cause(problem))
    if simulated and torch is not None:
        simulate(torch, simulated[0], request["cuda"])
    namespaces: dict[str, dict[str, Any]] = {}
    for statement in dict.fromkeys(question["import"] for question in request["questions"]):
        tell("starting", what=statement)
        namespace: dict[str, Any] = {}
        try:
            exec(statement, namespace)  # noqa: S102
            namespaces[statement] = namespace
        except BaseException as error:
            tell("import-failed", statement=statement, error=cause(error))
    forks = len(simulated) > 1 and hasattr(os, "fork")
    for capability in simulated or [[]]:
        # A copy of the process for each SM: what a predicate remembers of one must not reach the next.
        child = os.fork() if forks else 0
        if child:
            os.waitpid(child, 0)
            continue
        if simulated and torch is not None:
            simulate(torch, capability, request["cuda"])
        call_all(request["questions"], namespaces, capability, tell)
        if forks:
            os._exit(0)
    tell("stand-ins", names=sorted(set().union(*(finder.given for finder in finders))))


def call_all(
    questions: Sequence[dict[str, str]],
    namespaces: dict[str, dict[str, Any]],
    capability: Sequence[int],
    tell: Callable[..., None],
) -> None:
    """Call every predicate that could be imported."""
    for question in questions:
        space = namespaces.get(question["import"])
        if space is None:
            continue
        facts = {"id": question["id"], "sm": capability}
        tell("starting", what=question["expression"])
        try:
            tell("value", value=plain(eval(question["expression"], space)), **facts)  # noqa: S307
        except BaseException as error:
            tell("value", error=cause(error), **facts)


if __name__ == "__main__":
    main()
