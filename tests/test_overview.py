"""How many gates look in ``status``: by family, in 80 columns, what concerns the user, and what comes next."""

from __future__ import annotations

from typing import Any

import pytest

from patcher.overview import concerns, show_gates, show_next


def gate(name: str, state: str, **more: Any) -> dict[str, Any]:
    facts = {"gate": name, "state": state, "sm": "120", "family": "attention", "level": "backport", "opt_in": ""}
    rest = {"reason": "because", "would": None, "sites": {"found": 1, "expected": 1}}
    return {**facts, **rest, **more}


@pytest.mark.parametrize(
    ("shown", "concerned"),
    [
        (gate("a", "absent"), False),
        (gate("a", "open"), False),
        (gate("a", "closed"), False),
        (gate("a", "closed", would="open"), True),
        (gate("a", "refused", level="refused"), False),
        (gate("a", "refused"), True),
        *((gate("a", state), True) for state in ("patched", "partial", "too-open", "unrecognised", "modified", "lost")),
    ],
)
def test_what_concerns_the_user(shown: dict[str, Any], concerned: bool) -> None:
    assert concerns(shown) is concerned


MANY = [
    gate(f"a-gate-with-a-rather-long-name-{number:02}", state, family=family, would=would, reason="word " * 40)
    for number, (state, family, would) in enumerate(
        [
            *[("closed", "moe", "open"), ("open", "moe", None), ("refused", "attention", None)] * 10,
            *[("too-open", "dsa", "close"), ("absent", "gemm", None)] * 8,
        ]
    )
]


def test_many_gates_fit_into_80_columns_by_family(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(MANY) > 40
    show_gates(MANY, everything=True)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if not line.startswith(" ")] == ["attention", "dsa", "gemm", "moe"]
    assert all(any(line.startswith(f"  {g['gate']}: ") for line in lines) for g in MANY)
    assert err == ""


def test_what_needs_nothing_is_counted_only(capsys: pytest.CaptureFixture[str]) -> None:
    show_gates(MANY, everything=False)
    out, err = capsys.readouterr()
    assert "absent" not in out
    assert ": open" not in out
    assert "gemm" not in out
    assert "not shown: 8 absent, 10 open ('sm-patch status --all')" in err


def test_nothing_to_show_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show_gates([gate("a", "open")], everything=False)
    assert "nothing here concerns this GPU" in capsys.readouterr().out


def test_sms_that_stand_alike_share_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    gates = [gate("a", "closed", would="open"), gate("a", "closed", would="open", sm="121")]
    gates += [gate("b", "patched"), gate("b", "too-open", sm="121")]
    show_gates(gates, everything=False)
    heads = [
        line.split(" (")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and "(" in line
    ]
    assert heads == ["  a SM120/121: closed", "  b SM120: patched", "  b SM121: too-open"]


def test_facts_beside_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    show_gates([gate("a", "closed", would="open", opt_in="measure first", sites={"found": 2, "expected": 3})], False)
    assert "  a: closed (backport, 2/3 sites, opt-in)\n" in capsys.readouterr().out


def test_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    gates = [
        gate("mine", "closed", would="open"),
        gate("loose", "too-open", would="close"),
        gate("wide", "too-open", would="close"),
        gate("maybe", "closed", would="open", level="experimental"),
        gate("needy", "refused"),
        gate("never", "refused", level="refused"),
    ]
    show_next({"pending": ["mine"], "gates": gates})
    err = capsys.readouterr().err
    assert "next: 'sm-patch apply' would change mine\n" in err
    assert "next: 'sm-patch apply --gate loose,wide' closes what is too open\n" in err
    assert "only when named ('sm-patch apply --gate NAME'): maybe\n" in err
    assert "'sm-patch explain NAME' says what these need: needy\n" in err
    assert "never" not in err


def test_there_is_always_a_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_next({"pending": [], "gates": [gate("a", "patched")]})
    assert capsys.readouterr().err == "next: nothing to do; 'sm-patch explain NAME' tells all about a gate\n"
