"""Listings of a queue that are shorter than it: one that clients work on, and one that a broker's policy ends."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.classic import ids


class Listings:
    """A broker whose queue holds so many messages, and shows those of one listing after the other."""

    site = "paris"

    def __init__(self, size: int, *shown: str) -> None:
        self._size, self._shown = size, [*shown]

    def reader(self) -> Listings:
        return self

    def look(self, asked: Sequence[Any], *, timeout_s: float) -> list[Any]:
        assert (len(asked), timeout_s) == (3, ids.BROWSE_S)
        shown = self._shown.pop(0)
        size = SimpleNamespace(value=lambda: {"QueueSize": self._size})
        rows = SimpleNamespace(value=lambda: [{"JMSMessageID": ident} for ident in shown])
        return [size, rows, size]


QUEUE: Any = SimpleNamespace(name="orders.in", bean="a:b=c")


def test_a_listing_that_leaves_out_what_is_on_its_way_to_a_consumer_is_made_again() -> None:
    broker: Any = Listings(3, "ab", "abd", "bc", "abd")

    assert ids.lying_at_work(broker, QUEUE).keys() == {"a", "b", "c", "d"}


def test_a_listing_that_is_always_short_was_ended_by_the_brokers_policy() -> None:
    broker: Any = Listings(3, *["ab"] * 5, "abc")  # once is not enough: it may have been the queue that was shorter

    with pytest.raises(BadValue, match="and shows 2 of them") as told:
        ids.lying_at_work(broker, QUEUE)

    assert "maxBrowsePageSize" in told.value.remedy


def test_of_a_queue_that_nobody_works_on_one_short_listing_is_enough() -> None:
    broker: Any = Listings(3, "ab")

    with pytest.raises(BadValue, match="holds 3"):
        ids.lying(broker, QUEUE)
