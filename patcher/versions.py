"""Whether a version lies in a range, as PEP 440 has it, pre-releases included."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version


@cache
def in_range(versions: str, version: str) -> bool:
    """Whether ``version`` is one of ``versions`` (``>=0.5.4,<0.6``; an empty range holds every version)."""
    return _range(versions).contains(_version(version), prereleases=True)


@cache
def _range(versions: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(versions)


@cache
def _version(version: str) -> Version | str:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version)
    except InvalidVersion:
        return version  # left to the range to judge
