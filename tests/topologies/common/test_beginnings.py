"""One call for many queues is of exactly those that are meant, or it is not made."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.beginnings import LEAST, beginnings
from dr_ctl.topologies.common.queues import selects, selects_all

MANY = [f"load.{number}" for number in range(1000)]
NAMES = st.text(alphabet="ab.", max_size=9)


def always(beginning: str) -> bool:
    return bool(beginning)


@settings(max_examples=20)
@given(st.sets(NAMES, min_size=200), st.sets(NAMES, max_size=3))
def test_each_has_many_that_are_wanted_and_no_other(names: set[str], others: set[str]) -> None:
    wanted = names - others
    found = beginnings(wanted, others, always)
    for beginning, mine in found.items():
        assert set(mine) == {name for name in (*wanted, *others) if name.startswith(beginning)}
        assert len(mine) >= LEAST
    told = [name for mine in found.values() for name in mine]
    assert len(told) == len(set(told))


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), {"load.": 1000}),
        (("orders.in", "$SYS", "loa"), {"load.": 1000}),
        (("load.5000",), {"load.0": 0, **{f"load.{digit}": 111 for digit in "12346789"}, "load.51": 0}),
        (("load.",), {f"load.{digit}": 111 for digit in "123456789"}),
    ],
    ids=["alone", "beside others", "around one of them", "around the beginning itself"],
)
def test_around_others_they_are_as_wide_as_can_be(others: tuple[str, ...], found: dict[str, int]) -> None:
    told = beginnings(MANY, others, always)
    assert {each: len(names) for each, names in told.items()} == {each: count for each, count in found.items() if count}


def test_too_few_are_not_worth_it() -> None:
    assert beginnings(MANY[: LEAST - 1], (), always) == {}


@pytest.mark.parametrize(
    ("queues", "beginning", "all_of_them"),
    [
        (Queues(), "load.", True),
        (Queues(), "", False),
        (Queues(), "dr", False),  # dr-ctl's own documents begin so
        (Queues(), "dr-ctl.lock", False),
        (Queues(), "$ACTIVEMQ_ARTEMIS_MIRROR_paris", False),
        (Queues(include=("load.#",)), "load.", True),
        (Queues(include=("load.#",)), "load", False),
        (Queues(include=("load.*",)), "load.", False),
        (Queues(include=("*.load.#",)), "a.load.", False),
        (Queues(include=("#.load.#",)), "load.", False),
        (Queues(exclude=("load.9",)), "load.", False),
        (Queues(exclude=("load.9",)), "load.1", True),
        (Queues(exclude=("load.*",)), "load.1", False),
        (Queues(exclude=("*.tmp",)), "load.", False),
    ],
)
def test_what_may_come_into_being_counts_too(queues: Queues, beginning: str, all_of_them: bool) -> None:
    assert selects_all(queues, beginning) is all_of_them
    if all_of_them:
        assert all(selects(queues, f"{beginning}{rest}") for rest in ("", "1", ".new", "1.a.b"))
