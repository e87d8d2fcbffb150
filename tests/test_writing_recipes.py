"""What the guide to recipes says exists does, and the catalogue keeps to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from patcher import catalogue, keyed, literals, located, sites, values
from patcher.gate import Gate

GUIDE = Path(__file__).parent.parent / "docs" / "writing-recipes.md"


def _first_column(heading: str) -> list[str]:
    section = GUIDE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_field_it_names_is_a_field_of_a_gate() -> None:
    named = set(_first_column("The fields"))
    assert named == {name for name in Gate.__annotations__ if name in named}
    assert {"id", "action", "level", "targets", "sites", "requires", "evidence", "examples"} <= named


def test_every_site_it_names_exists_and_takes_what_it_says() -> None:
    for name in _first_column("Sites"):
        assert any(hasattr(module, name) for module in (sites, located, keyed, literals, values)), name
    names = sites.ConditionSite.__dataclass_fields__
    assert {"mentions", "decides", "refuses", "witness", "outsider"} <= set(names)


@pytest.mark.parametrize("gate", [g for e in catalogue.engines() for g in catalogue.gates(e).values()])
def test_ranges_are_half_open(gate: type[Gate]) -> None:
    for site in gate.sites:
        operators = [part.operator for part in SpecifierSet(site.versions)]
        assert set(operators) <= {">=", "<"}, f"{gate.id}: {site.versions}"
        assert len(set(operators)) == len(operators)
