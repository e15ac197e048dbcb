"""Debts: what was seen and what is remembered put together, and the file that remembers."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.application.debts import owed
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.engine.debts import Debt, DebtKind, known, lost_alone, merged, remember

FENCE = Debt(DebtKind.FENCE, "london", "paris", "2026-11-21T02:00:00Z")
QUARANTINE = replace(FENCE, kind=DebtKind.QUARANTINE)
ELSEWHERE = replace(FENCE, about="paris", kept_at="london")

DEBTS = st.builds(
    Debt,
    st.sampled_from(DebtKind),
    st.sampled_from(["london", "paris"]),
    st.sampled_from(["london", "paris"]),
    st.text(),
    st.booleans(),
)
MANY = st.lists(DEBTS, max_size=6)


@pytest.mark.parametrize(
    ("remembered", "seen", "answered", "left"),
    [
        ([FENCE, QUARANTINE], [], ["paris"], []),
        ([FENCE, QUARANTINE], [QUARANTINE], ["paris"], [QUARANTINE]),
        ([FENCE], [], [], [FENCE]),
        ([FENCE], [], ["london"], [FENCE]),
        ([FENCE, ELSEWHERE], [], ["paris"], [ELSEWHERE]),
        ([], [FENCE], ["london", "paris"], [FENCE]),
        ([FENCE], [replace(FENCE, since="later")], ["paris"], [replace(FENCE, since="later")]),
    ],
    ids=[
        "all is paid where the site says so",
        "what it still says is still owed",
        "nobody answered",
        "another site's answer pays nothing",
        "each site speaks for itself",
        "seen for the first time",
        "what is seen counts, not what is remembered",
    ],
)
def test_a_site_that_answers_says_what_is_owed_there(
    remembered: list[Debt], seen: list[Debt], answered: list[str], left: list[Debt]
) -> None:
    assert merged(remembered, seen, answered) == left


@given(remembered=MANY, seen=MANY, answered=st.sets(st.sampled_from(["london", "paris"])))
def test_nothing_is_forgotten_of_a_site_that_is_away_and_nothing_is_told_twice(
    remembered: list[Debt], seen: list[Debt], answered: set[str]
) -> None:
    left = merged(remembered, seen, answered)
    keys = [(debt.kind, debt.about, debt.kept_at) for debt in left]
    assert len(keys) == len(set(keys))
    wanted = [*seen, *(debt for debt in remembered if debt.kept_at not in answered)]
    assert set(keys) == {(debt.kind, debt.about, debt.kept_at) for debt in wanted}
    assert merged(left, seen, answered) == left


@given(debts=MANY)
def test_what_is_remembered_is_known_again(debts: list[Debt], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state") / "not" / "yet" / "debts.json"
    remember(path, debts)
    assert known(path) == debts
    assert path.exists() is bool(debts)


def test_the_file_is_the_owners_alone_and_there_only_while_something_is_owed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "debts.json"
    assert owed(tmp_path / "state", [FENCE], ["paris"]).debts == [FENCE]
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    assert owed(tmp_path / "state", [], ["london"]).debts == [FENCE]
    assert owed(tmp_path / "state", [], ["paris"]).debts == []
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    "damaged",
    ["", "[", "{}x", '"debts"', "7", "[7]", '[{"kind": "fence"}]', json.dumps([FENCE.as_json() | {"kind": "taxes"}])],
)
def test_a_damaged_file_is_a_fault_of_this_machine_with_what_to_do(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "debts.json"
    path.write_text(damaged, encoding="utf-8")
    with pytest.raises(EnvironmentFault, match=r"debts\.json cannot be read") as fault:
        known(path)
    assert "the brokers hold the same debts" in fault.value.remedy


def test_a_file_that_may_not_be_read_is_a_fault_and_never_nothing(tmp_path: Path) -> None:
    path = tmp_path / "debts.json"
    path.mkdir()
    with pytest.raises(EnvironmentFault):
        known(path)


@pytest.mark.parametrize("kind", DebtKind)
def test_each_debt_says_what_is_owed_and_how_it_is_paid(kind: DebtKind) -> None:
    debt = replace(FENCE, kind=kind)
    assert "london" in debt.text
    assert "`dr-ctl reinstate london`" in debt.remedy
    assert debt.as_json()["site"] == "london"


@pytest.mark.parametrize(("lasting", "words"), [(True, "does not end that"), (False, "ends that")])
def test_a_quarantine_says_whether_a_restart_lifts_it(lasting: bool, words: str) -> None:
    debt = replace(QUARANTINE, lasting=lasting)
    assert debt.text.endswith(f"is kept out of {debt.kept_at}; a restart of {debt.kept_at}'s broker {words}")


def test_which_of_two_sites_was_lost_last_no_debt_tells() -> None:
    theirs = replace(QUARANTINE, about=FENCE.kept_at, kept_at=FENCE.about)
    assert lost_alone([FENCE, QUARANTINE]) == FENCE.about
    assert lost_alone([QUARANTINE, theirs]) is None
    assert lost_alone([]) is None
