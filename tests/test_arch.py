from __future__ import annotations

import pytest

from patcher.arch import ALL_SMS, SM, parse_sm
from patcher.errors import UnknownSM


@pytest.mark.parametrize("text", ["120", "12.0", "sm_120", "sm120", "SM_120a", "sm_120f", "compute_120", " 120 "])
def test_spellings_of_120(text: str) -> None:
    assert parse_sm(text) == SM(12, 0)


@pytest.mark.parametrize("sm", ALL_SMS, ids=str)
def test_what_is_printed_is_read(sm: SM) -> None:
    assert parse_sm(str(sm)) == sm
    assert parse_sm(f"{sm.major}.{sm.minor}") == sm


@pytest.mark.parametrize("text", ["", "12", "999", "sm_", "blackwell", "12.0.0", "130", "-120", "120b"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(UnknownSM) as raised:
        parse_sm(text)
    assert raised.value.exit_code == 2
    assert "120" in raised.value.hint
