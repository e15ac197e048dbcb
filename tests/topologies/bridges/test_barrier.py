"""The barrier of the ids: those from before it are applied, whatever is processed in the meantime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr_ctl.topologies.bridges.barrier import IdBarrier
from dr_ctl.topologies.bridges.view import BrokerView
from tests.topologies.bridges.views import IDS, arrived, broker, buffer, flow

AGAIN = "1795251999000"  # another start of a broker


def sending(noted: int, shipped: int, *, start: str | None = None) -> BrokerView:
    """London: so many ids were noted since its start, and so many of them shipped."""
    view = broker("london")
    left = buffer("london", IDS, noted - shipped, added=noted, removed=shipped)
    return replace(view, ids=flow("london", IDS, buffer=left), start=start or view.start)


def applying(came: int, done: int, *, start: str | None = None) -> BrokerView:
    """Paris: so many ids have arrived since its start, and so many of them are applied."""
    view = broker("paris")
    return replace(view, arrived=(arrived("paris", came - done, added=came, removed=done),), start=start or view.start)


def left(*looks: tuple[BrokerView, BrokerView]) -> list[int | None]:
    barrier = IdBarrier()
    return [barrier.left(*look) for look in looks]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(1000, 1000, 1000, 1000)], [0]),
        # Those of before are shipped, then applied.
        ([(10, 6, 6, 5), (10, 10, 10, 7), (10, 10, 10, 10)], [4 + 1, 3, 0]),
        # What other queues go on to note is not waited for: the buffers are never empty.
        ([(10, 6, 6, 5), (40, 12, 12, 9), (80, 50, 50, 11), (99, 70, 70, 12), (120, 90, 90, 60)], [5, 3, 1, 0, 0]),
    ],
)
def test_those_of_before_are_waited_for(looks: list[tuple[int, int, int, int]], told: list[int]) -> None:
    made = [(sending(noted, shipped), applying(came, done)) for noted, shipped, came, done in looks]
    assert left(*made) == told


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_restart_begins_it_anew(where: str) -> None:
    """Counters begin again at what was kept: the old ones would let everything pass, or nothing ever."""
    before = (sending(1000, 990), applying(990, 980))
    here = sending(8, 2, start=AGAIN) if where == "here" else sending(1010, 1004)
    there = applying(7, 3, start=AGAIN) if where == "there" else applying(994, 990)
    after = (sending(30, 20, start=AGAIN), sending(1030, 1020)), (applying(20, 3, start=AGAIN), applying(1010, 1000))

    told = left(before, (here, there), (after[0][where == "there"], after[1][where == "here"]))

    assert told[1] == 6 + 4
    assert told[2] is not None
    assert told[2] > 0


def test_what_cannot_be_read_is_not_known() -> None:
    here, there = sending(1, 1), applying(1, 1)
    below = replace(here, ids=flow("london", IDS, buffer=buffer("london", IDS, -1)))
    unread = replace(there, arrived=(arrived("paris", -1),))

    for look in (
        (replace(here, ids=None), there),
        (replace(here, ids=flow("london", IDS, buffer=None)), there),
        (below, there),
        (here, replace(there, arrived=())),
        (here, unread),
    ):
        assert left(look) == [None]
