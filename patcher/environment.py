"""Where engines are: an interpreter, a virtual environment or a folder, and the engines installed in it.

Nothing here imports an engine. Another interpreter is asked for its search path in a subprocess of its own.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patcher.errors import BadAssumption, IOFailure, NoEngine, NoInterpreter
from patcher.gate import Engine
from patcher.source import SourceTree, digest

# Runs in the other interpreter: its search path, and where it would find the packages, without importing them.
_ASK = """
import importlib.util, json, sys
sys.path = [p for p in sys.path if p]
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    found[name] = list(spec.submodule_search_locations or []) if spec else []
print(json.dumps({"executable": sys.executable, "prefix": sys.prefix, "paths": sys.path, "found": found}))
"""
_ASK_SECONDS = 60


@dataclass(frozen=True)
class Environment:
    """What an interpreter sees: its search path and the folders it would import packages from."""

    label: str
    paths: tuple[Path, ...]
    found: Mapping[str, tuple[Path, ...]]
    interpreter: Path | None = None
    prefix: Path | None = None


class Recorded:
    """The RECORD of a distribution, looked up by path. An empty one knows no file."""

    def __init__(self, text: str) -> None:
        self._text = f"\n{text}"

    def digest(self, path: str) -> str | None:
        """The SHA-256 in hex that a file had when it was installed, None where it is not said."""
        for name in (path, f'"{path}"'):
            start = self._text.find(f"\n{name},sha256=")
            if start >= 0:
                encoded = self._text[start + len(name) + 9 :].split(",", 1)[0].rstrip("=")
                with contextlib.suppress(ValueError):
                    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
        return None


@dataclass(frozen=True)
class Installation:
    """One engine in one environment. ``root`` is the folder that holds its package."""

    engine: Engine
    root: Path
    version: str | None
    distribution: str | None
    how: str
    environment: Environment

    @property
    def package_folder(self) -> Path:
        return self.root / self.engine.package

    @property
    def state_folder(self) -> Path:
        return state_folder(self.root, self.engine.package, self.engine.name)

    @property
    def shadowed(self) -> list[Path]:
        """Folders further down the search path that hold the package as well: Python never gets to them."""
        folders = {folder.resolve(): folder for folder in self.environment.paths}
        here = self.package_folder.resolve()
        packages = [folder / self.engine.package for folder in folders.values()]
        return [p.parent for p in packages if (p / "__init__.py").is_file() and p.resolve() != here]

    def recorded(self) -> Recorded:
        """What the distribution says of its files."""
        distribution = provider(self.engine, self.root, [self.root])
        return Recorded(distribution.read_text("RECORD") or "" if distribution is not None else "")

    @property
    def repackaged(self) -> bool:
        """Whether a distribution of another name than the engine's provides it."""
        return self.distribution is not None and canonical(self.distribution) not in self.engine.distributions

    @property
    def verified(self) -> bool:
        """Whether it is a release that the recipes were tried on, as the engine's own distribution has it.

        Another distribution's number, a local, pre- or development version, a checkout: what its version says is a
        hint only.
        """
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion, Version

        if self.version is None or self.repackaged or self.how != "wheel":
            return False
        try:
            version = Version(self.version)
        except InvalidVersion:
            return False
        released = version.local is None and not version.is_prerelease
        return released and SpecifierSet(self.engine.verified).contains(version)


def state_folder(root: Path, package: str, engine: str) -> Path:
    """Where sm-patch keeps its state for an engine's package below ``root``.

    In the environment's prefix when the package lies in its site-packages (``<prefix>/share/sm-patch/…``), so that the
    state travels with the environment; beside the root otherwise (``<parent>/.sm-patch/<name>``). It depends on
    where the package really lies, not on how it was reached: one package has one state.
    """
    real = (root / package).resolve()
    holder, name = _state_holder(real.parent)
    return holder / name / (engine if real.name == package else f"{engine}@{real.name}")


def _state_holder(root: Path) -> tuple[Path, str]:
    """The folder of the states of what lies in one prefix or folder, and the name of ``root``'s own in it."""
    if root.name in _SITES:
        for above in root.parents:
            if above.name.lower() in ("lib", "lib64"):
                prefix = above.parent
                return prefix / "share" / "sm-patch", "--".join(root.relative_to(prefix).parts)
    return root.parent / ".sm-patch", root.name


def strays(root: Path, package: str, engine: str) -> list[tuple[Path, Path]]:
    """States in the same place whose packages are gone from where they were (moved?): each with that folder."""
    holder, own = _state_holder((root / package).resolve().parent)
    beside = holder.name == ".sm-patch"
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(holder), key=lambda entry: entry.name):
            was = holder.parent / entry.name if beside else holder.parent.parent.joinpath(*entry.name.split("--"))
            state = Path(entry.path, engine)
            if entry.name != own and (state / "manifest.json").is_file() and not (was / package).is_dir():
                found.append((state, was))
    return found


def current(packages: Iterable[str]) -> Environment:
    """The running interpreter."""
    found = {name: _spec_folders(name) for name in packages}
    paths = tuple(Path(p) for p in sys.path if p)
    return Environment("the running interpreter", paths, found, Path(sys.executable), Path(sys.prefix))


def _spec_folders(package: str) -> tuple[Path, ...]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return ()
    return tuple(Path(p) for p in (spec.submodule_search_locations or [])) if spec else ()


def of_interpreter(python: str, packages: Sequence[str]) -> Environment:
    """The environment of another interpreter, asked in a subprocess. Raises NoInterpreter."""
    import subprocess

    try:
        asked = subprocess.run(
            [python, "-c", _ASK, *packages], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
        answer = json.loads(asked.stdout.strip().splitlines()[-1])
        found = {name: tuple(Path(p) for p in places) for name, places in answer["found"].items()}
        paths = tuple(Path(p) for p in answer["paths"])
        return Environment(python, paths, found, Path(answer["executable"]), Path(answer["prefix"]))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise NoInterpreter("the interpreter does not run", where=python, hint=said[-1] if said else "") from error
    except subprocess.TimeoutExpired as error:
        raise NoInterpreter(f"the interpreter did not answer in {_ASK_SECONDS} s", where=python) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise NoInterpreter(f"no Python interpreter answers there{why}", where=python) from error


def of_venv(folder: Path, packages: Sequence[str]) -> Environment:
    """A virtual environment. Its interpreter is asked; where that is gone or foreign, its site-packages are read."""
    for name in ("bin/python", "Scripts/python.exe"):
        if (folder / name).exists():
            try:
                return of_interpreter(str(folder / name), packages)
            except NoInterpreter:
                break
    sites = sorted(folder.glob("lib/python*/site-packages")) or sorted(folder.glob("Lib/site-packages"))
    if not sites:
        raise NoInterpreter("this is no virtual environment: no bin/python and no site-packages", where=str(folder))
    return _of_folders(str(folder), tuple(sites), packages, prefix=folder)


def of_root(folder: Path, packages: Sequence[str]) -> Environment:
    """A folder that holds packages: a site-packages, an unpacked wheel, a checkout's ``python/``."""
    hint = "--root takes the folder that holds the package"
    if not folder.is_dir():
        what = "this is no folder" if folder.exists() else "there is no such folder"
        raise NoEngine(what, where=str(folder), hint=hint)
    if not any((folder / name).is_dir() for name in packages):
        below = [folder / "python", folder.parent] if folder.name in packages else [folder / "python"]
        meant = [place for place in below if any((place / name / "__init__.py").is_file() for name in packages)]
        if meant:
            raise NoEngine("this folder does not hold the package", where=str(folder), hint=f"did you mean {meant[0]}?")
    return _of_folders(str(folder), (folder,), packages)


def _of_folders(
    label: str, folders: tuple[Path, ...], packages: Sequence[str], prefix: Path | None = None
) -> Environment:
    found = {name: tuple(f / name for f in folders if (f / name).is_dir()) for name in packages}
    return Environment(label, folders, found, prefix=prefix)


def places(environment: Environment, engines: Iterable[Engine]) -> list[tuple[Engine, Path]]:
    """The engines that an environment has, and the folder that holds each one's package. Reads no metadata."""
    found = []
    for engine in engines:
        for folder in environment.found.get(engine.package, ()):
            try:
                whole = (folder / "__init__.py").is_file() and all((folder / p).is_dir() for p in engine.essential)
            except OSError as error:
                raise IOFailure(f"the package cannot be read: {error.strerror}", where=str(folder)) from error
            if whole:
                found.append((engine, folder.parent))
                break
    names = {distribution for engine, _ in found for distribution in engine.distributions}
    # One that others ask about comes before them, so that they can be told what it is going to be.
    return sorted(found, key=lambda place: len(names & set(place[0].related)))


def installations(environment: Environment, engines: Iterable[Engine]) -> list[Installation]:
    """The engines installed in an environment. A package that another distribution provides counts."""
    return [installation_at(environment, engine, root) for engine, root in places(environment, engines)]


def installation_at(environment: Environment, engine: Engine, root: Path) -> Installation:
    """The installation of an engine whose package lies below ``root``."""
    distribution = provider(engine, root, environment.paths)
    if distribution is None:
        version = version_from_source(engine, root)
        return Installation(engine, root, version, None, "source tree", environment)
    how = "wheel"
    if editable_source(distribution) is not None:
        how = "editable"
    elif distribution.read_text("RECORD") is None:
        how = "system package" if root.resolve().name in _SITES else "editable"  # a checkout's own metadata
    return Installation(engine, root, distribution.version, distribution.metadata["Name"], how, environment)


_SITES = ("site-packages", "dist-packages")


def provider(engine: Engine, root: Path, paths: Iterable[Path]):  # type: ignore[no-untyped-def]
    """The distribution that this very package below ``root`` is of, among those in ``root`` and on ``paths``; or None.

    Metadata of the right name that lies elsewhere on the search path, or that another copy was installed with, says
    nothing about this one.
    """
    folders = list(dict.fromkeys((root, *paths)))
    for name in engine.distributions:
        for distribution in _distributions(folders, name=name):
            if _provides(distribution, engine, root):
                return distribution
    for distribution in _distributions(folders):
        if _provides(distribution, engine, root):
            return distribution
    return None


def _provides(distribution, engine: Engine, root: Path) -> bool:  # type: ignore[no-untyped-def]
    source = editable_source(distribution)
    if source is not None:
        real = root.resolve()
        return source == real or source in real.parents
    if Path(distribution.locate_file("")).resolve() != root.resolve():
        return False
    if distribution.read_text("RECORD") is None:  # system packages and checkouts have metadata without one
        listed = engine.package in (distribution.read_text("top_level.txt") or "").split()
        return listed or canonical(distribution.metadata["Name"]) in engine.distributions
    return _lists(distribution, engine.package) and _as_recorded(distribution, engine, root)


def _as_recorded(distribution, engine: Engine, root: Path) -> bool:  # type: ignore[no-untyped-def]
    """Whether the files that say the version are those of the distribution, as far as it says so."""
    recorded = Recorded(distribution.read_text("RECORD") or "")
    for name in engine.version_files:
        wanted = recorded.digest(f"{engine.package}/{name}")
        try:
            data = (root / engine.package / name).read_bytes()
        except OSError:
            continue
        if wanted is not None and digest(data) != wanted:
            return False
    return True


def canonical(name: str) -> str:
    """A distribution's name as it is compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def editable_source(distribution) -> Path | None:  # type: ignore[no-untyped-def]
    """The project's folder that an editable installation uses; None for any other installation."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    from urllib.parse import unquote, urlsplit

    try:
        facts = json.loads(text)
        if not facts["dir_info"]["editable"]:
            return None
        return Path(unquote(urlsplit(facts["url"]).path)).resolve()
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _distributions(paths: Sequence[Path], **named: str):  # type: ignore[no-untyped-def]
    """The distributions in some folders; what a half-finished removal left of one is none."""
    import importlib_metadata as metadata

    for distribution in metadata.distributions(path=[str(path) for path in paths], **named):
        with contextlib.suppress(KeyError, ValueError, OSError):  # metadata without a name or version, or not text
            text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")
            if text and distribution.version and distribution.metadata["Name"]:
                yield distribution


def _lists(distribution, package: str) -> bool:  # type: ignore[no-untyped-def]
    """Whether a distribution's RECORD holds the package."""
    record = distribution.read_text("RECORD") or ""
    return f"\n{package}/__init__.py," in f"\n{record}"


_VERSION = re.compile(r"""^(?:__version__|version)\b[^\n'"]*=\s*['"]([^'"]+)['"]""", re.MULTILINE)


def version_from_source(engine: Engine, root: Path) -> str | None:
    """The version that the package states in a file of its own, or None."""
    for name in engine.version_files:
        try:
            match = _VERSION.search((root / engine.package / name).read_text("utf-8", "replace"))
        except OSError:
            continue
        if match:
            return match[1]
    return None


def require_places(
    environment: Environment, engines: Sequence[Engine], named: str | None = None
) -> list[tuple[Engine, Path]]:
    """``places``, at least one. Raises NoEngine naming the interpreter and the folders searched."""
    found = places(environment, engines)
    if found:
        return found
    names = named or " or ".join(engine.name for engine in engines)
    searched = ", ".join(str(path) for path in environment.paths if path.is_dir()) or "no folder"
    interpreter = f" (interpreter {environment.interpreter})" if environment.interpreter else ""
    raise NoEngine(
        f"no {names} in {environment.label}{interpreter}",
        where=f"searched {searched}",
        hint="name another place: --python PATH, --venv DIR, or --root DIR (the folder that holds sglang/)",
    )


_METADATA_FILES = ("METADATA", "PKG-INFO", "RECORD", "direct_url.json")


class Surroundings:
    """What requirements ask: versions of other distributions beside an installation, and their sources.

    ``assumptions`` (distribution → version) stand in for what is installed, ``planned`` (package → path → bytes)
    for files that are about to be written there.
    """

    def __init__(
        self,
        installation: Installation,
        assumptions: Mapping[str, str] | None = None,
        planned: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        self._paths = tuple(dict.fromkeys((installation.root, *installation.environment.paths)))
        self._assumptions = dict(assumptions or {})
        self._versions: dict[str, str | None] = {}
        self._trees: dict[str, SourceTree | None] = {}
        self._planned = planned if planned is not None else {}  # filled in while others are planned

    def version(self, distribution: str) -> str | None:
        if distribution in self._assumptions:
            return self._assumptions[distribution]
        if distribution not in self._versions:
            found = _distributions(self._paths, name=distribution)
            self._versions[distribution] = next((d.version for d in found), None)
        return self._versions[distribution]

    def assumed(self, distribution: str) -> bool:
        return distribution in self._assumptions

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders that packages are looked for in, the installation's own first."""
        return self._paths

    def requires(self, distribution: str) -> list[str]:
        """The requirements that a distribution's metadata states, as they are written."""
        import importlib_metadata as metadata

        found = metadata.distributions(name=distribution, path=[str(p) for p in self._paths])
        return next((list(d.requires or ()) for d in found), [])

    def tree(self, package: str) -> SourceTree | None:
        """The folder that holds ``package``, with what is planned for it; None when there is none."""
        if package not in self._trees:
            holder = next((p for p in self._paths if (p / package / "__init__.py").is_file()), None)
            tree = SourceTree(holder) if holder else None
            overlay = self._planned.get(package)
            self._trees[package] = tree.with_overlay(overlay) if tree and overlay else tree
        return self._trees[package]

    def depends(self) -> list[str]:
        """Every path that an answer about these surroundings rests on: folders, metadata, sources, found or not."""
        found = [str(path) for path in self._paths]
        for path in self._paths:
            with contextlib.suppress(OSError):
                for entry in os.scandir(path):
                    if entry.name.endswith((".dist-info", ".egg-info")):
                        found += [entry.path, *(f"{entry.path}/{file}" for file in _METADATA_FILES)]
        for package, tree in self._trees.items():
            found += [f"{path}/{package}/__init__.py" for path in self._paths]
            if tree is not None:
                found += [str(tree.root / path) for path in tree.seen]
        return found


def parse_assumptions(texts: Iterable[str]) -> dict[str, str]:
    """Read ``flashinfer-python==0.7.2`` and the like. Raises BadAssumption."""
    from packaging.version import InvalidVersion, Version

    found: dict[str, str] = {}
    for text in texts:
        pin = _PIN.fullmatch(text.strip())
        try:
            version = Version(pin[2] if pin else "")
        except InvalidVersion as error:
            raise BadAssumption(f"'{text}' does not pin one version: NAME==VERSION", hint=_ASSUME_HINT) from error
        assert pin is not None
        found[canonical(pin[1])] = str(version)
    return found


_PIN = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*==\s*([^\s=,;]+)")
_ASSUME_HINT = "write it like --assume flashinfer-python==0.7.2"
