"""What left a queue otherwise than by a client, told from its counters: figures that a real broker gave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.topologies.brokersync.sync.accounts import FEW, Account, Counters

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
