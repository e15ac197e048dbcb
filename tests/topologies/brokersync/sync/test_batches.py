"""Ids that wait to be deleted: none is forgotten in silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.batches import AT_MOST, OVERDUE, Waiting


def ids(count: int, first: int = 0) -> list[str]:
    return [f"ID:{number}" for number in range(first, first + count)]


def test_no_batch_is_larger_than_a_call_may_be() -> None:
    waiting = Waiting()

    waiting.add(ids(2 * AT_MOST + 1))

    sizes = []
    while (batch := waiting.due(0.0)) is not None:
        sizes.append(len(batch.ids))
    assert sizes == [AT_MOST, AT_MOST, 1]


def test_what_has_not_arrived_is_tried_again_later() -> None:
    waiting = Waiting()
    waiting.add(ids(10))
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
    waiting.add(ids(5))
    while not waiting.overdue:
        now += 10.0
        batch = waiting.due(now)
        assert batch is not None
        assert batch.tries < OVERDUE
        waiting.answered(batch, 0, now)

    waiting.replace(ids(2))  # these are on their way; the other three lie at neither site

    assert (waiting.absent, len(waiting), waiting.overdue) == (3, 2, False)


def test_a_call_that_failed_leaves_its_batch_the_next_one() -> None:
    waiting = Waiting()
    waiting.add(ids(3))
    batch = waiting.due(0.0)
    assert batch is not None

    waiting.give_back(batch)

    assert waiting.due(0.0) is batch


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 600)), max_size=20))
def test_every_id_is_deleted_or_waits(steps: list[tuple[int, int]]) -> None:
    waiting, added, now = Waiting(), 0, 0.0
    for fresh, removed in steps:
        waiting.add(ids(fresh, added))
        added += fresh
        now += 5.0
        if (batch := waiting.due(now)) is not None:
            waiting.answered(batch, removed, now)

    assert waiting.deleted + len(waiting) == added
