"""Which engine installations this machine has, told from files alone: nothing that is found is run or imported.

Bounded: named places first (the running interpreter, active environments, running engines, the usual folders), then a
shallow walk below the working and home folders that skips data, hidden and network folders and stops in time.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patcher.environment import Environment, canonical, provider, state_folder, version_from_source
from patcher.errors import NoEngine
from patcher.gate import Engine

SECONDS = 4.0
_DEPTH = 3
_FOLDERS_LIMIT = 6_000
_ENTRIES_LIMIT = 400
"""A folder with more entries holds data; it is not walked."""

_SKIPPED = frozenset(
    {
        *("node_modules", "__pycache__", "site-packages", "dist-packages", "cache", "caches", "logs", "log", "tmp"),
        *("data", "datasets", "dataset", "model", "models", "checkpoints", "weights", "hub", "huggingface", "wandb"),
        *("outputs", "output", "results", "proc", "sys", "dev", "run", "snap", "lost+found"),
    }
)
_HIDDEN_WALKED = frozenset({".venv", ".venvs", ".env", ".virtualenvs", ".conda", ".pyenv", ".local"})
_USUAL = ("/opt", "/workspace", "/sgl-workspace", "/app", "/srv", "/venv", "/usr/local", "/root")
_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "ceph", "glusterfs", "9p", "beegfs", "gpfs"}
)


@dataclass(frozen=True)
class Site:
    """A folder that an interpreter imports from, and that interpreter."""

    folder: Path
    kind: str
    """venv, conda environment, system python, user site, folder."""
    home: Path
    """The environment's own folder, or ``folder`` itself."""
    interpreter: Path | None = None
    python: str = ""
    because: str = ""


@dataclass
class Sighted:
    """One engine installation (or what is left of one). ``option`` selects it on the command line.

    ``remarks`` say what is odd about it, in sentences.
    """

    engine: str
    root: Path
    how: str
    version: str | None
    distributions: tuple[str, ...]
    site: Site
    option: tuple[str, str] | None
    patched: tuple[str, ...] = ()
    remarks: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        return self.option is not None

    def command(self, rest: str) -> str:
        """The command line that works on it."""
        return f"sm-patch {rest} {self.option[0]} {quoted(self.option[1])}" if self.option else ""


def quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def advise(error: NoEngine, environment: Environment, engines: Sequence[Engine], command: str) -> NoEngine:
    """The error with the installations there are, each with the command that works on it."""
    what = error.what
    for engine in engines:
        for place in environment.found.get(engine.package, ()):
            if wrong := looks_whole(place.parent, engine):
                what += f"; {place} is a {wrong}"
    search = Discovery(engines)
    found = sorted((s for s in search.search() if s.usable), key=lambda s: s.site.kind == "folder")
    if not found:
        return NoEngine(
            what, where=error.where, hint="; ".join(filter(None, ["none was found elsewhere either", error.hint]))
        )
    lines = [f"{len(found)} found elsewhere:" if len(found) > 1 else "found elsewhere:"]
    lines += [f"  {s.command(command)}    # {s.engine} {s.version}, {s.how}, {s.root}" for s in found]
    advised = NoEngine(what, where=error.where, hint="\n".join(lines))
    advised.elsewhere = tuple(sighted.command(command) for sighted in found)
    return advised


# -- where interpreters import from ----------------------------------------------------------------------------------


def environment_sites(folder: Path, because: str) -> list[Site]:
    """The site-packages of a virtual or conda environment, read from its files; empty when it is none."""
    config = folder / "pyvenv.cfg"
    conda = folder / "conda-meta"
    if not config.is_file() and not conda.is_dir():
        return []
    kind = "venv" if config.is_file() else "conda environment"
    interpreter = next((p for p in (folder / "bin/python", folder / "Scripts/python.exe") if os.path.lexists(p)), None)
    version = ""
    if config.is_file():
        match = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", _text(config), re.MULTILINE)
        version = match[1] if match else ""
    sites = []
    for place in (*sorted(folder.glob("lib/python3*/site-packages")), *folder.glob("Lib/site-packages")):
        python = version or place.parent.name.removeprefix("python")
        sites.append(Site(place, kind, folder, interpreter, python, because))
    return sites


_PREFIXES = (Path("/usr"), Path("/usr/local"))


def system_sites() -> list[Site]:
    """The folders of system-wide interpreters (dist-packages and site-packages), and the user's own."""
    found = []
    places = [*((prefix, "system python") for prefix in _PREFIXES), (_home() / ".local", "user site")]
    for prefix, kind in places:
        for folder in sorted({*prefix.glob("lib/python3*/dist-packages"), *prefix.glob("lib/python3*/site-packages")}):
            version = folder.parent.name.removeprefix("python")  # Debian's lib/python3 is for all of them
            binaries = [place / "bin" / f"python{version}" for place in (prefix, *_PREFIXES)]
            interpreter = next((path for path in binaries if path.exists()), None)
            found.append(Site(folder, kind, folder, interpreter, version, "system folders"))
    return found


def current_sites() -> list[Site]:
    """Where the running interpreter imports from, PYTHONPATH's folders excepted."""
    listed = {_real(path) for path in pythonpath(os.environ.get("PYTHONPATH", ""))}
    version = ".".join(map(str, sys.version_info[:3]))
    found = []
    for entry in sys.path:
        path = Path(entry)
        if path.name in ("site-packages", "dist-packages") and path.is_dir() and _real(path) not in listed:
            found.append(Site(path, "running python", Path(sys.prefix), Path(sys.executable), version, "runs sm-patch"))
    return found


def pythonpath(value: str) -> list[Path]:
    return [Path(part) for part in value.split(os.pathsep) if part and Path(part).is_dir()]


def processes(words: Iterable[str]) -> Iterator[tuple[int, Path, str, dict[str, str]]]:
    """Running processes whose command line names one of ``words``: pid, interpreter, command, environment."""
    wanted = [word.encode() for word in words]
    try:
        pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return
    for pid in sorted(pids):
        if pid == os.getpid():
            continue
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if not any(word in command for word in wanted):
                continue
            raw = Path(f"/proc/{pid}/environ").read_bytes()
            executable = Path(f"/proc/{pid}/exe").readlink()
        except OSError:
            continue
        environment = dict(part.split("=", 1) for part in raw.decode(errors="replace").split("\0") if "=" in part)
        first = command.split(b"\0")[0].decode(errors="replace")
        # argv[0] names the environment's own link; /proc/exe the base interpreter behind it.
        interpreter = Path(first) if first.startswith("/") and os.path.lexists(first) else executable
        if not interpreter.name.startswith("python"):
            script = next((p for p in command.decode(errors="replace").split("\0") if p.startswith("/")), "")
            beside = Path(script).parent / "python" if script else interpreter
            interpreter = beside if os.path.lexists(beside) else interpreter
        if "python" in interpreter.name:
            yield pid, interpreter, command.replace(b"\0", b" ").decode(errors="replace").strip()[:120], environment


# -- what a folder holds ---------------------------------------------------------------------------------------------


def editable_targets(site: Path, package: str) -> list[tuple[Path, str]]:
    """Folders outside ``site`` that its .pth files and PEP 660 finders add for ``package``, and how."""
    found = []
    try:
        names = sorted(entry.name for entry in os.scandir(site))
    except OSError:
        return []
    for name in names:
        if name.endswith("_finder.py") and name.startswith("__editable__"):
            target = _finder_mapping(site / name).get(package)
            if target is not None:
                found.append((Path(target).parent, "editable (PEP 660 finder)"))
        elif name.endswith(".pth"):
            for line in _text(site / name).splitlines():
                line = line.strip()
                if line and not line.startswith(("#", "import ", "import\t")):
                    folder = (site / line).resolve()
                    if (folder / package).is_dir():
                        found.append((folder, "editable (.pth)"))
    return found


def _finder_mapping(path: Path) -> dict[str, str]:
    """MAPPING of a setuptools PEP 660 finder: package name to folder. Read, never imported."""
    try:
        tree = ast.parse(_text(path))
    except (SyntaxError, ValueError):
        return {}
    for node in tree.body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == "MAPPING":
            try:
                value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                return {}
            return value if isinstance(value, dict) else {}
    return {}


def distributions(site: Path, engine: Engine) -> list[tuple[str, str, bool]]:
    """The distributions in ``site`` that provide the engine's package: name, version, whether editable."""
    found = []
    try:
        folders = sorted(e.path for e in os.scandir(site) if e.name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return []
    for folder in map(Path, folders):
        metadata = _text(folder / "METADATA") or _text(folder / "PKG-INFO")
        name = _header(metadata, "Name") or folder.name.partition("-")[0]
        named = canonical(name) in engine.distributions
        top = _text(folder / "top_level.txt").split()
        lists = f"\n{engine.package}/__init__.py," in "\n" + _text(folder / "RECORD") or engine.package in top
        if named or lists:
            editable = _is_editable(folder)
            found.append(
                (name, _header(metadata, "Version") or folder.name.split("-")[1].removesuffix(".dist"), editable)
            )
    return found


def _is_editable(folder: Path) -> bool:
    try:
        facts = json.loads(_text(folder / "direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(facts.get("dir_info", {}).get("editable"))


def looks_whole(root: Path, engine: Engine) -> str:
    """What is wrong with the package below ``root``, or an empty string."""
    package = root / engine.package
    missing = [part for part in engine.essential if not (package / part).is_dir()]
    if missing:
        parts = ", ".join(f"{engine.package}/{part}" for part in missing)
        shell = f"No module named {engine.package}.{missing[0]}"
        return f"leftover: {parts} is missing, so Python imports an empty shell ({shell!r})"
    if not (package / "__init__.py").is_file():
        return f"leftover: {engine.package}/__init__.py is missing, so Python takes the folder for a namespace"
    return ""


# -- putting it together -----------------------------------------------------------------------------------------------


class Discovery:
    """One search. ``incomplete``: whether time ran out before every place was seen."""

    def __init__(self, engines: Sequence[Engine], seconds: float = SECONDS) -> None:
        self.engines = engines
        self.deadline = time.monotonic() + seconds
        self.found: list[Sighted] = []
        self.incomplete = False
        self._sites: dict[Path, Site] = {}
        self._roots: set[tuple[str, Path]] = set()
        self._folders = 0
        self._remote = _remote_mounts()

    def search(self, starts: Sequence[Path] | None = None) -> list[Sighted]:
        """Every installation, the running interpreter's first. ``starts`` replaces the folders that are walked."""
        for site in current_sites():
            self._site(site)
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT"):
            if value := os.environ.get(variable):
                self._environment(Path(value), f"${variable}")
        shadows = pythonpath(os.environ.get("PYTHONPATH", ""))
        for path in shadows:
            self._folder(path, "PYTHONPATH")
        self._running()
        for site in system_sites():
            self._site(site)
        self._named()
        for start in starts if starts is not None else _starts():
            self._walk(start)
        self._judge_shadows(shadows)
        return self.found

    def _late(self) -> bool:
        if time.monotonic() > self.deadline or self._folders > _FOLDERS_LIMIT:
            self.incomplete = True
        return self.incomplete

    def _environment(self, folder: Path, because: str) -> bool:
        sites = environment_sites(folder, because)
        for site in sites:
            self._site(site)
        return bool(sites)

    def _running(self) -> None:
        words = [
            word for engine in self.engines for word in (f"{engine.package}.", f"{engine.package}/", f"/{engine.name}")
        ]
        for pid, interpreter, _, environment in processes(words):
            because = f"runs as process {pid}"
            if not self._environment(interpreter.parent.parent, because):
                for place in sorted((interpreter.parent.parent).glob("lib/python3*/*-packages")):
                    self._site(Site(place, "system python", place, interpreter, "", because))
            for path in pythonpath(environment.get("PYTHONPATH", "")):
                self._folder(path, f"PYTHONPATH of process {pid}")

    def _named(self) -> None:
        """conda, uv and virtualenv keep lists and folders of their environments."""
        home = _home()
        for line in _text(home / ".conda/environments.txt").splitlines():
            if line.strip():
                self._environment(Path(line.strip()), "conda's list")
        holders = [home / ".local/share/uv/tools", home / ".virtualenvs", home / ".venvs", home / ".pyenv/versions"]
        for base in (home, *_named_bases()):
            for name in ("conda", "miniconda", "miniconda3", "miniforge3", "mambaforge", "anaconda3", "micromamba"):
                self._environment(base / name, "conda folder")
                holders.append(base / name / "envs")
        for holder in holders:
            for folder in _subfolders(holder):
                if not self._environment(folder, str(holder)):
                    for place in sorted(folder.glob("lib/python3*/site-packages")):
                        python = folder / "bin/python"
                        self._site(
                            Site(place, "system python", folder, python if python.exists() else None, "", str(holder))
                        )

    def _walk(self, start: Path) -> None:
        level = [start]
        for _ in range(_DEPTH + 1):
            deeper: list[Path] = []
            for folder in level:
                if self._late():
                    return
                if _real(folder) in self._remote:
                    continue
                self._folders += 1
                if self._environment(folder, f"below {start}"):
                    continue
                self._folder(folder, f"below {start}")
                deeper += _subfolders(folder)
            level = deeper

    # -- one place ----------------------------------------------------------------------------------------------------

    def _site(self, site: Site) -> None:
        real = _real(site.folder)
        if real in self._sites or not site.folder.is_dir():
            return
        self._sites[real] = site
        for engine in self.engines:
            named = distributions(site.folder, engine)
            here = (site.folder / engine.package).is_dir()
            targets = editable_targets(site.folder, engine.package)
            if here:
                self._add(engine, site.folder, _how(site, named), named, site)
            for target, how in targets:
                self._add(engine, target, how, named, site)
            if named and not here and not targets:
                name, version, editable = named[0]
                if canonical(name) in engine.distributions:
                    sighted = Sighted(engine.name, site.folder, "metadata only", version, (name,), site, None)
                    why = "its editable source folder is gone" if editable else "its package is gone"
                    sighted.remarks.append(f"leftover: {name} {version} is recorded here, but {why}")
                    self.found.append(sighted)

    def _folder(self, folder: Path, because: str) -> None:
        """A folder that holds the package itself: a ``--target`` copy, a checkout, a PYTHONPATH copy.

        A package's own folder is none, nor is one that was looked at as an environment's.
        """
        if (folder / "__init__.py").is_file() or _real(folder) in self._sites:
            return
        for engine in self.engines:
            if not (folder / engine.package).is_dir():
                continue
            package = folder / engine.package
            whole = (package / "__init__.py").is_file() and not looks_whole(folder, engine)
            named = distributions(folder, engine)
            resembles = any(
                (package / part).exists() for part in (*engine.essential, *engine.version_files, "__init__.py")
            )
            if not whole and not named and not resembles and not _only_leftovers(package):
                continue  # a folder of that name that is something else
            checkout = (folder / "pyproject.toml").is_file() or (folder / "setup.py").is_file()
            how = "source checkout" if checkout else "--target copy" if named else "copy without metadata"
            self._add(engine, folder, how, named, Site(folder, "folder", folder, because=because))

    def _add(self, engine: Engine, root: Path, how: str, named: Sequence[tuple[str, str, bool]], site: Site) -> None:
        key = (engine.name, _real(root / engine.package))  # one package may be reached through several folders
        again = next(
            (s for s in self.found if s.engine == engine.name and _real(s.root / engine.package) == key[1]), None
        )
        if key in self._roots and again is not None:
            if site.kind != "folder" and again.site.kind == "folder":  # an environment says more than a bare folder
                self.found.remove(again)
            else:
                if site.kind != "folder":
                    again.remarks.append(f"also imported by {site.interpreter or site.home}")
                return
        self._roots.add(key)
        wrong = looks_whole(root, engine)
        provided = provider(engine, root, [site.folder])
        version = provided.version if provided is not None else version_from_source(engine, root)
        option = None if wrong else _option(site, root)
        sighted = Sighted(engine.name, root, how, version, tuple(n for n, _, _ in named), site, option)
        if wrong:
            sighted.how = "leftover"
            sighted.remarks.append(wrong)
        whole = [name for name, _, _ in named]
        if len(whole) > 1:
            versions = ", ".join(f"{name} {version}" for name, version, _ in named)
            sighted.remarks.append(
                f"two distributions provide {engine.package}: {versions}; the last one installed won"
            )
        elif whole and canonical(whole[0]) not in engine.distributions:
            sighted.remarks.append(f"provided by the distribution {whole[0]}")
        sighted.patched = _patched(root, engine)
        if "editable" not in how and site.kind != "folder" and any(editable for _, _, editable in named):
            sighted.remarks.append("recorded as editable, but a copy of the package lies here and wins")
        self.found.append(sighted)

    def _judge_shadows(self, shadows: Sequence[Path]) -> None:
        """Copies on PYTHONPATH come before every interpreter's own packages: say so on both."""
        ahead = {_real(path) for path in shadows}
        for copy in [s for s in self.found if _real(s.root) in ahead and s.usable]:
            others = [o for o in self.found if o.engine == copy.engine and o.site.kind != "folder" and o is not copy]
            own = [other for other in others if other.site.kind == "running python"]
            whose = f"the installation in {own[0].root}" if own else "what an interpreter has itself"
            copy.remarks.append(f"on PYTHONPATH: shadows {whose}")
            for other in others:
                other.remarks.append(f"shadowed by {copy.root}, which comes first (PYTHONPATH)")


def _how(site: Site, named: Sequence[tuple[str, str, bool]]) -> str:
    if not named:
        return "copy without metadata"
    return "dist-packages" if site.folder.name == "dist-packages" else "wheel"


def _option(site: Site, root: Path) -> tuple[str, str]:
    if site.kind == "running python" and _real(Path(sys.executable).parent.parent) == _real(site.home):
        return ("--python", str(site.interpreter))
    if site.kind in ("venv", "conda environment", "running python") and site.interpreter is not None:
        return ("--venv", str(site.home)) if site.interpreter.exists() else ("--root", str(root))
    if site.interpreter is not None and site.interpreter.exists() and site.kind == "system python":
        return ("--python", str(site.interpreter))
    return ("--root", str(root))


def _patched(root: Path, engine: Engine) -> tuple[str, ...]:
    """The gates recorded as changed in that installation."""
    try:
        manifest = json.loads(_text(state_folder(root, engine.package, engine.name) / "manifest.json") or "{}")
    except ValueError:
        return ()
    return tuple(sorted(manifest.get("gates", {})))


def _only_leftovers(package: Path) -> bool:
    """Whether a folder holds nothing but what an uninstall leaves: caches and empty folders."""
    for at, folders, files in os.walk(package):
        if any(not name.endswith((".pyc", ".so", ".json")) for name in files):
            return False
        if at.count(os.sep) - str(package).count(os.sep) > 3 or len(folders) > _ENTRIES_LIMIT:
            return False
    return True


def _starts() -> list[Path]:
    """Folders to walk below, each once, the nearest first."""
    starts = [Path.cwd(), _home(), *(Path(usual) for usual in _USUAL)]
    kept: list[Path] = []
    for start in starts:
        if start.is_dir() and start != Path("/") and _real(start) not in [_real(k) for k in kept]:
            kept.append(start)
    return kept


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            listed = list(entries) if folder.is_dir() else []
    except OSError:
        return []
    if len(listed) > _ENTRIES_LIMIT:
        return []
    found = []
    for entry in listed:
        name = entry.name
        if name.lower() in _SKIPPED or (name.startswith(".") and name not in _HIDDEN_WALKED):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                found.append(Path(entry.path))
        except OSError:
            continue
    return sorted(found)


def _remote_mounts() -> set[Path]:
    """Mount points of network file systems: a dead server would hold the search up."""
    found = set()
    for line in _text(Path("/proc/mounts")).splitlines():
        parts = line.split()
        if len(parts) > 2 and parts[2] in _NETWORK:
            found.add(Path(parts[1]))
    return found


def _named_bases() -> list[Path]:
    return [Path("/opt"), Path("/usr/local")]


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _header(metadata: str, name: str) -> str:
    match = re.search(rf"^{name}:\s*(\S+)", metadata, re.MULTILINE)
    return match[1] if match else ""
