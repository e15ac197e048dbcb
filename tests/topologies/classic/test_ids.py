"""Listings of a queue that are shorter than it: one that clients work on, and one that a broker's policy ends."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.common.consumed import NotWhole


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
    broker: Any = Listings(3, "ab", "bc", "abd")
    assert ids.listed(broker, QUEUE, tries=ids.TRIES).whole.ids == {"a", "b", "d"}


def test_a_listing_that_is_always_short_shows_nothing_of_what_the_queue_lacks() -> None:
    broker: Any = Listings(3, *["ab"] * ids.TRIES)
    with pytest.raises(NotWhole, match="shows 2 of them") as told:
        ids.listed(broker, QUEUE, tries=ids.TRIES)
    assert "maxBrowsePageSize" in told.value.remedy


@pytest.mark.parametrize("shown", ["ab", "abcd"])  # a transaction hides one; one came after the depth was read
def test_of_a_queue_that_nobody_works_on_one_listing_tells(shown: str) -> None:
    broker: Any = Listings(3, shown)
    with pytest.raises(NotWhole, match="holds 3"):
        ids.listed(broker, QUEUE)


def test_what_comes_to_a_queue_that_nobody_takes_from_hides_nothing() -> None:
    found = {"a": None, "b": None, "c": None}
    assert ids.whole("london", "orders.in", found, 2, 4, grows=True).whole.ids == {"a", "b", "c"}
    for before, after in ((4, 4), (2, 2)):
        with pytest.raises(NotWhole):
            ids.whole("london", "orders.in", found, before, after, grows=True)
