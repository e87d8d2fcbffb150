"""The probe on miniature engines: real and source truth, simulated GPUs, and every way it can go wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patcher.arch import SM
from patcher.catalogue import engine_named
from patcher.probe import ProbeFailed, Report, probe, questions
from patcher.where import Finder
from tests.engines import FILES, torch
from tests.installation import run, run_json

Write = Callable[[Mapping[str, str]], Path]
NAMES = ("is_sm100_supported", "is_sm120_supported", "is_sm121", "get_device_sm", "is_sm90_supported")
WRAPPED = """\
try:
    import gone_one
except ImportError as e:
    raise RuntimeError('wrapped') from e
from sglang.srt.utils.common import *
"""
ALL = (SM(9, 0), SM(10, 0), SM(12, 0), SM(12, 1))


def asked(root: Path, simulate: tuple[SM, ...] = (), **options: object) -> Report:
    finder = Finder(engine_named("sglang"), root)
    interpreter = Path(str(options.pop("interpreter", sys.executable)))
    seconds = float(str(options.pop("seconds", 60)))
    found = questions(finder, NAMES)
    return probe(finder, found, interpreter=interpreter, paths=[root], simulate=simulate, seconds=seconds)


def test_a_machine_with_a_gpu(folder_of: Write) -> None:
    report = asked(folder_of({**FILES, **torch((12, 1))}))
    assert not report.crash and not report.failed_imports
    assert report.torch["version"] == "2.9.0"
    assert report.gpus[0]["capability"] == [12, 1] and report.gpus[0]["shared_memory_per_block_optin_bytes"] == 101376
    said = {row.predicate: row.real for row in report.rows}
    assert said == {
        "sglang.srt.utils.common: is_sm100_supported()": False,
        "sglang.srt.utils: is_sm100_supported()": False,
        "sglang.srt.runtime_context: get_platform().is_sm100": False,
        "sglang.srt.utils.common: is_sm120_supported()": True,
        "sglang.srt.utils: is_sm120_supported()": True,
        "sglang.srt.runtime_context: get_platform().is_sm120": True,
        "sglang.srt.utils.common: is_sm121()": True,
        "sglang.srt.utils: is_sm121()": True,
        "sglang.srt.utils.common: get_device_sm()": 121,
        "sglang.srt.utils: get_device_sm()": 121,
    }
    assert all(row.agrees for row in report.rows)


def test_an_old_cuda_is_seen_by_both(folder_of: Write) -> None:
    report = asked(folder_of({**FILES, **torch((12, 0), "12.6")}))
    rows = {row.predicate: row for row in report.rows}
    old = rows["sglang.srt.utils: is_sm120_supported()"]
    assert (old.real, old.static, old.agrees) == (False, False, True)


def test_simulated_gpus_without_torch_and_with_missing_packages(folder_of: Write) -> None:
    files = dict(FILES)
    files["sglang/srt/utils/common.py"] = (
        "import nowhere_to_be_found as nw\nfrom nowhere_to_be_found.deep import Base, jit\n"
        "class Own(Base, nw.Other):\n    field: nw.T | None = None\n\n@jit\ndef kernel(x): return x\n"
        + files["sglang/srt/utils/common.py"]
    )
    report = asked(folder_of({**files, **torch((7, 5))}), ALL)
    assert not report.crash and not report.failed_imports
    assert report.stand_ins == ["nowhere_to_be_found"]
    admits: dict[str, list[str]] = {}
    for row in report.rows:
        assert row.agrees, row
        admits.setdefault(row.predicate, [])
        if row.real is True:
            admits[row.predicate].append(str(row.sm))
    assert admits["sglang.srt.utils: is_sm120_supported()"] == ["120", "121"]
    assert admits["sglang.srt.runtime_context: get_platform().is_sm100"] == ["100"]
    assert admits["sglang.srt.utils.common: is_sm121()"] == ["121"]


# What engines do with missing packages while they are imported: hashes of settings, classes of a field each, custom
# operators, joined patterns, models with buffers.
AT_IMPORT = """\
import hashlib
import json
import nowhere_to_be_found as nw
import regex
import torch.library
from nowhere_to_be_found import Model, registered

assert hashlib.sha256(json.dumps({"default": nw.value}).encode()).hexdigest()

@registered
class Own(Model):
    def __init__(self):
        super().__init__()
        self.register_buffer("beta", 1)

Own.model_rebuild()
assert isinstance(Own, type) and Own() is not None and list(Own.__struct_fields__) == []
assert [field for field in nw.structs.fields(Own)] == []
assert regex.compile("|".join(map(regex.escape, "{}"))).match("{")
library = torch.library.Library("engine", "FRAGMENT")
assert getattr(torch.ops, library.m.name) is not None and library.define("op() -> ()") is not None
try:
    json.dumps({"set": {1}})
except TypeError:
    pass
else:
    raise AssertionError("what is no stand-in is written as ever")
"""


def test_what_engines_do_at_import_works_on_stand_ins(folder_of: Write) -> None:
    root = folder_of({**FILES, "sglang/srt/utils/common.py": AT_IMPORT + FILES["sglang/srt/utils/common.py"]})
    report = asked(root, ALL)
    assert (report.crash, report.failed_imports) == ("", {})
    assert report.rows and all(row.agrees for row in report.rows)


def test_no_gpu(folder_of: Write) -> None:
    report = asked(folder_of({**FILES, **torch(available=False)}))
    assert report.gpus == [] and all(row.agrees for row in report.rows) and report.rows[0].sm is None


def test_no_torch_is_a_cause_not_a_traceback(folder_of: Write) -> None:
    broken = {**FILES, "torch/__init__.py": "raise ImportError('libcudart.so.13: cannot open shared object file')\n"}
    report = asked(folder_of(broken))
    assert report.torch["error"]["message"] == "libcudart.so.13: cannot open shared object file"
    causes = {error["message"] for error in report.failed_imports.values()}
    assert causes == {"libcudart.so.13: cannot open shared object file"}
    assert not report.crash and all(row.error and row.agrees is None for row in report.rows)


def test_the_innermost_cause_is_told(folder_of: Write) -> None:
    files = {
        **FILES,
        **torch(),
        "sglang/srt/utils/__init__.py": WRAPPED,
    }
    report = asked(folder_of(files))
    error = report.failed_imports["from sglang.srt.utils import is_sm121"]
    assert error["type"] == "ModuleNotFoundError" and "gone_one" in error["message"]
    assert error["where"].endswith("sglang/srt/utils/__init__.py:2")


def test_a_process_that_dies_tells_what_was_under_way(folder_of: Write) -> None:
    files = {**FILES, **torch(), "sglang/srt/utils/__init__.py": "import os\nos.kill(os.getpid(), 11)\n"}
    report = asked(folder_of(files))
    assert "from sglang.srt.utils" in report.crash and "died of SIGSEGV" in report.crash


def test_a_process_that_hangs_is_stopped(folder_of: Write) -> None:
    files = {**FILES, **torch(), "sglang/srt/utils/__init__.py": "import time\ntime.sleep(60)\n"}
    report = asked(folder_of(files), seconds=3)
    assert "no end after 3 s" in report.crash


def test_an_interpreter_that_is_none(folder_of: Write) -> None:
    root = folder_of({**FILES, **torch()})
    with pytest.raises(ProbeFailed, match="does not start"):
        asked(root, interpreter=root / "nowhere")


def test_noise_on_stdout_is_no_answer(folder_of: Write) -> None:
    files = {**FILES, **torch(), "sglang/srt/__init__.py": 'print(\'{"event": "done"}\')\n'}
    assert all(row.agrees for row in asked(folder_of(files)).rows)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_agrees(folder_of: Write) -> None:
    root = folder_of({**FILES, **torch((12, 0))})
    shown = run("probe", root=root)
    assert shown.exit_code == 0 and "capability 12.0" in shown.stdout and "agrees" in shown.stdout
    code, data = run_json("probe", "--sm", "121", root=root)
    rows = data["installations"][0]["predicates"]
    assert code == 0 and rows and all(row["agrees"] and row["sm"] == "121" for row in rows)


def test_a_difference_is_an_error(folder_of: Write) -> None:
    sly = (
        "from sglang.srt.utils import common\n\ncommon.is_sm120_supported = lambda: False\n"  # from outside the module
    )
    root = folder_of({**FILES, **torch((12, 0)), "sglang/srt/__init__.py": sly})
    told = run("probe", root=root)
    assert told.exit_code == 3 and "probe-disagrees" in told.stderr and "DIFFERS" in told.stdout
    code, data = run_json("probe", root=root)
    assert code == 3 and data["errors"][0]["id"] == "probe-disagrees"


def test_a_crash_is_an_error(folder_of: Write) -> None:
    root = folder_of({**FILES, "torch/__init__.py": "import os\nos._exit(7)\n"})
    told = run("probe", root=root)
    assert told.exit_code == 3 and "import torch: the process ended with code 7" in told.stderr


def test_missing_packages_can_be_filled_in_beside_the_real_torch(folder_of: Write) -> None:
    files = {**FILES, **torch((12, 1))}
    files["sglang/srt/utils/common.py"] = "import nowhere_to_be_found\n" + files["sglang/srt/utils/common.py"]
    root = folder_of(files)
    code, data = run_json("probe", "--fill-in", root=root)
    (answer,) = data["installations"]
    assert code == 0 and answer["stand_ins"] == ["nowhere_to_be_found"] and answer["gpus"][0]["capability"] == [12, 1]
    assert answer["predicates"] and all(row["agrees"] and row["sm"] == "121" for row in answer["predicates"])
    code, data = run_json("probe", root=root)
    missing = data["installations"][0]["failed_imports"]["from sglang.srt.utils import is_sm121"]
    assert missing["message"] == "No module named 'nowhere_to_be_found'"
