"""Nothing is removed without evidence: which grounds prove which ids, and what proves nothing."""

from __future__ import annotations

import pytest

from dr_ctl.topologies.common.consumed import (
    Acknowledged,
    Announced,
    Consumed,
    Covered,
    Evidence,
    InBothStores,
    LiesThere,
    NoEvidence,
    NotWhole,
    Whole,
    Word,
)

ONE, TWO = frozenset({"a"}), frozenset({"a", "b"})
SEEN = Whole("orders", ONE, before=1, after=1)


@pytest.mark.parametrize(
    ("ids", "before", "after", "hidden"),
    [
        (ONE, 2, 2, 0),  # one message is not shown: a transaction holds it
        (ONE, 1, 2, 0),  # one came meanwhile: another one may have been left out
        (ONE, 2, 1, 0),
        (TWO, 1, 1, 0),
        (ONE, 2, 2, 2),
    ],
)
def test_a_listing_that_does_not_show_all_is_no_listing(
    ids: frozenset[str], before: int, after: int, hidden: int
) -> None:
    with pytest.raises(NotWhole, match="orders holds"):
        Whole("orders", ids, before, after, hidden)


def test_messages_that_no_listing_shows_are_counted_in() -> None:
    assert Whole("orders", ONE, before=3, after=3, hidden=2).ids == ONE


@pytest.mark.parametrize(
    "by",
    [
        Announced(TWO, "start-1", 2, "start-1"),
        Covered(frozenset({"a", "b", "c"}), Whole("orders", frozenset({"c"}), 1, 1), 2),
        InBothStores(TWO, TWO | {"c"}),
        LiesThere("orders", TWO),
        Acknowledged(TWO, "london"),
        Word(TWO, "CHG-1234: looked at each"),
    ],
)
def test_what_was_seen_proves_these_ids_and_no_others(by: Evidence) -> None:
    assert Consumed(TWO, by).ids == TWO
    with pytest.raises(NoEvidence):
        Consumed(TWO | {"x"}, by)


@pytest.mark.parametrize(
    "by",
    [
        Announced(TWO, "start-1", 2, "start-2"),  # the broker was away between
        Announced(TWO, "start-1", 1, "start-1"),
        Covered(TWO, Whole("orders", frozenset(), 0, 0), 1),  # one is not covered: which one, nobody knows
        Covered(TWO | {"c"}, Whole("orders", frozenset(), 0, 0), 2),
        Covered(TWO, SEEN, 2),  # a copy whose message lies at the serving site still
        InBothStores(TWO, ONE),
        LiesThere("orders", ONE),
        Acknowledged(ONE, "london"),
        Word(TWO, "  "),
    ],
)
def test_what_nobody_saw_proves_nothing(by: Evidence) -> None:
    with pytest.raises(NoEvidence, match="nothing proves"):
        Consumed(TWO, by)
