"""Ids that wait to be deleted: none is forgotten in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.batches import AT_MOST, OVERDUE, Waiting
from dr_ctl.topologies.common.consumed import Announced, NoEvidence, Word


def ids(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"ID:{number}" for number in range(first, first + count))


def waits(waiting: Waiting, count: int, first: int = 0) -> None:
    waiting.add(ids(count, first), Word(ids(count, first), "a test's"))


def test_no_batch_is_larger_than_a_call_may_be() -> None:
    waiting = Waiting()
    waits(waiting, 2 * AT_MOST + 1)
    sizes = []
    while (batch := waiting.due(0.0)) is not None:
        sizes.append(len(batch.ids))
    assert sizes == [AT_MOST, AT_MOST, 1]


def test_what_has_not_arrived_is_tried_again_later() -> None:
    waiting = Waiting()
    waits(waiting, 10)
    batch = waiting.due(0.0)
    assert batch is not None

    waiting.answered(batch, 7, now=0.0)

    assert (len(waiting), waiting.deleted) == (3, 7)
    assert waiting.due(0.1) is None
    again = waiting.due(1.0)
    assert again is not None
    waiting.answered(again, 3, now=1.0)
    assert (len(waiting), waiting.deleted, waiting.held) == (0, 10, 0)


def test_what_never_arrives_asks_for_a_comparison_and_is_then_counted() -> None:
    waiting, now = Waiting(), 0.0
    waits(waiting, 5)
    while not waiting.overdue:
        now += 10.0
        batch = waiting.due(now)
        assert batch is not None
        assert batch.tries < OVERDUE
        waiting.answered(batch, 0, now)

    waiting.nowhere(ids(3, 2))  # the others are on their way

    assert (waiting.absent, len(waiting), waiting.overdue) == (3, 2, False)


def test_a_call_that_failed_leaves_its_batch_the_next_one() -> None:
    waiting = Waiting()
    waits(waiting, 3)
    batch = waiting.due(0.0)
    assert batch is not None
    waiting.give_back(batch)
    assert waiting.due(0.0) is batch


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 600)), max_size=20))
def test_every_id_is_deleted_or_waits(steps: list[tuple[int, int]]) -> None:
    waiting, added, now = Waiting(), 0, 0.0
    for fresh, removed in steps:
        waits(waiting, fresh, added)
        added += fresh
        now += 5.0
        if (batch := waiting.due(now)) is not None:
            waiting.answered(batch, removed, now)
    assert waiting.deleted + len(waiting) == added


def test_nothing_waits_without_evidence() -> None:
    waiting = Waiting()
    with pytest.raises(NoEvidence):
        waiting.add(ids(3), Announced(ids(3), "first", 2, "first"))
    with pytest.raises(NoEvidence):
        waiting.add(ids(3), Announced(ids(3), "first", 3, "second"))
    assert len(waiting) == 0


def test_what_an_earlier_start_confirmed_is_not_let_go() -> None:
    waiting = Waiting()
    waits(waiting, 3)
    waiting.of_earlier_start()
    waits(waiting, 2, 3)
    assert (waiting.counted, waiting.let_go(), waiting.ids) == (2, 2, ids(3))
