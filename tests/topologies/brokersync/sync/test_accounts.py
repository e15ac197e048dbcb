"""What left a queue otherwise than by a client, and ids that wait to be deleted: none is forgotten in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.accounts import FEW, Account, Counters
from dr_ctl.topologies.brokersync.sync.batches import AT_MOST, OVERDUE, Waiting
from dr_ctl.topologies.common.consumed import Announced, NoEvidence, Word

# Counters of one queue of a 5.18.3, in the order in which they were read.
ACKED = Counters(50, 100, 150, 0)
CLOSED = Counters(50, 0, 150, 0)  # a consumer that held 100 has gone
REMOVED = Counters(51, 0, 150, 0)  # removeMatchingMessages of one
HELD = Counters(51, 249, 399, 0)
REMOVED_HELD = Counters(54, 249, 399, 0)  # of three that a consumer holds
MOVED_HELD = Counters(56, 249, 399, 0)
DEAD = Counters(57, 248, 399, 0)  # a client gave one up: a dead letter
PURGED_HELD = Counters(300, 248, 399, 0)
EXPIRED = Counters(360, 470, 1499, 30)
BEFORE_EXPIRY = Counters(320, 480, 1499, 0)


@pytest.mark.parametrize(
    ("before", "after", "vanished"),
    [
        (Counters(0, 0, 0, 0), ACKED, 0),
        (ACKED, CLOSED, 0),
        (CLOSED, REMOVED, 1),
        (REMOVED, HELD, 0),
        (HELD, REMOVED_HELD, 3),
        (REMOVED_HELD, MOVED_HELD, 2),
        (MOVED_HELD, DEAD, 0),
        (DEAD, PURGED_HELD, 243),
        (BEFORE_EXPIRY, EXPIRED, 0),
        # A client that leaves while it takes is counted twice: in delivery is below zero.
        (Counters(391, 0, 1630, 30), Counters(475, -9, 1715, 30), 0),
    ],
)
def test_what_clients_do_is_told_from_what_others_do(before: Counters, after: Counters, vanished: int) -> None:
    account = Account()
    account.accept([before])
    assert account.vanished(after) == vanished


def test_a_figure_that_was_one_too_low_is_no_alarm() -> None:
    account = Account()
    for in_delivery in (10, 9, 10, 9):  # read a moment too late
        account.take_in(Counters(90, in_delivery, 100, 0))
    assert account.vanished(Counters(90, 10, 100, 0)) == 0


def test_what_a_client_gave_back_hides_a_purge_for_a_few_looks_only() -> None:
    account = Account()
    account.take_in(Counters(0, 1000, 1000, 0))
    for _ in range(FEW):
        account.take_in(Counters(0, 0, 1000, 0))  # it has gone
    assert account.vanished(Counters(3, 0, 1000, 0)) == 3


def test_what_a_browse_was_shown_hides_no_purge() -> None:
    account = Account()
    account.take_in(Counters(0, 0, 0, 0))
    account.gave_back(300)
    assert account.vanished(Counters(5, 0, 300, 0)) == 5


def test_what_somebody_answers_for_is_not_told_again() -> None:
    account = Account()
    account.accept([PURGED_HELD])
    assert account.vanished(PURGED_HELD) == 0


steps = st.lists(st.tuples(st.sampled_from(["take", "ack", "leave"]), st.integers(1, 50)), max_size=40)


@given(steps)
def test_clients_alone_never_raise_an_alarm(steps: list[tuple[str, int]]) -> None:
    account, dequeued, held, dispatched = Account(), 0, 0, 0
    for what, count in steps:
        if what == "take":
            held, dispatched = held + count, dispatched + count
        elif what == "ack":
            held, dequeued = held - min(count, held), dequeued + min(count, held)
        else:
            held -= min(count, held)
        counters = Counters(dequeued, held, dispatched, 0)
        assert account.vanished(counters) == 0
        account.take_in(counters)


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
