"""What follows from one look at a broker with the replication plugin."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.settings.model import Queues
from dr_ctl.topologies.classic.beans import queue as bean
from dr_ctl.topologies.common.view import Acceptor, Config, Peer, Queue
from dr_ctl.topologies.replica import parity
from dr_ctl.topologies.replica.acts.shipping import Events
from dr_ctl.topologies.replica.beans import EVENTS, INTERMEDIATE
from dr_ctl.topologies.replica.view import BrokerView, Plugin, ReplicaConfig
from dr_ctl.topologies.replica.view import Peer as Other

ALL = Queues()
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    told = Queue(
        name, name, "queue", bean("london", name), depth, 0, 0, 0, False, depth, 0, 0, True, False, False, False, False,
        None, None,
    )  # fmt: skip
    return replace(told, **more)


def door(name: str, *, started: bool) -> Acceptor:
    return Acceptor(name, f"…,connectorName={name}", started, None, frozenset({"STOMP"}), True)


def view(site: str, part: str | None, *, shipped: int = 0, lag_ms: int | None = 0, **more: Any) -> BrokerView:
    events = (queue(EVENTS, shipped, consumers=1), queue(INTERMEDIATE)) if part is not None else ()
    opened = part == "source"
    told = BrokerView(
        pair="orders-1", site=site, config=Config(("stomp",), None, None), own=ReplicaConfig(10.0), broker=site,
        version="5.18.8", node=site, start="ID:1", now_ms=0,
        acceptors=(door("stomp", started=opened), door("replication", started=True)),
        queues=(queue("orders.in", 3),), connections=(), consumers=(), prepared=(),
        plugin=Plugin(part, lag_ms, None) if part is not None else None, events=events,
        peer=Other("paris" if site == "london" else "london", "the other"),
    )  # fmt: skip
    return replace(told, **more)


LONDON, PARIS = view("london", "source"), view("paris", "replica")


def test_a_source_serves_by_its_doors_and_a_replica_waits() -> None:
    assert (LONDON.role, PARIS.role) == (Role.SERVING, Role.STANDBY)
    assert (LONDON.fence.boots_closed, PARIS.fence.boots_closed) == (False, True)


def test_what_is_not_read_is_not_known() -> None:
    unread = view("london", None)

    assert (unread.link.attached, unread.link.to_ship, unread.fence.boots_closed) == (None, None, None)
    assert unread.link.captures is False
    below = replace(LONDON, events=(queue(EVENTS, -1),))
    assert below.link.to_ship is None
    assert list(below.link.rows(PARIS, NOW)) == []


def test_both_queues_of_events_are_to_be_shipped_by_a_source_only() -> None:
    events = (queue(EVENTS, 2, consumers=1), queue(INTERMEDIATE, 3))

    assert replace(LONDON, events=events).link.to_ship == 5
    assert replace(PARIS, events=events).link.to_ship == 0
    [row] = replace(LONDON, events=events).link.rows(PARIS, NOW)
    assert (row.kind, row.name, row.depth, row.link) == ("mixed", "*", 5, True)


@pytest.mark.parametrize(
    ("what", "peer", "through", "arguments"),
    [(PARIS, Peer.DRAINED, "london", ["replica", False]), (PARIS, Peer.AWAY, None, ["source", True])],
)
def test_a_replica_is_opened_by_its_part(what: BrokerView, peer: Peer, through: str | None, arguments: object) -> None:
    [call] = what.fence.opening(what.doors, peer)

    assert (call.site, call.goal, call.request.get("through")) == ("paris", Goal.OPEN, through)
    assert call.request["arguments"] == arguments
    assert not what.holds(call)
    assert view("paris", "source").holds(call)


@pytest.mark.parametrize("peer", list(Peer))
def test_a_source_is_opened_by_its_doors(peer: Peer) -> None:
    [call] = LONDON.fence.opening(LONDON.doors, peer)

    assert (call.thing, call.request["operation"]) == ("stomp", "start()")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (view("london", "source", shipped=1, lag_ms=10_000), []),
        (view("london", "source", shipped=1, lag_ms=12_000), ["paris is 12 s behind"]),
        (view("london", "source", shipped=0, lag_ms=60_000), []),  # of an idle source the last event grows old
        (view("london", "source", shipped=1, lag_ms=None), []),
        (replace(LONDON, events=(queue(EVENTS),)), ["paris does not fetch from london"]),
    ],
)
def test_a_replica_far_behind_keeps_a_move_waiting(source: BrokerView, why: list[str]) -> None:
    nowhere: Any = None

    assert Events(nowhere, nowhere, 10.0).why(source, PARIS) == why


def test_a_difference_is_explained_by_what_the_replica_lacks() -> None:
    behind = replace(PARIS, queues=(queue("orders.in", 1),))

    assert parity.unexplained(LONDON, PARIS, ALL, {}) == []
    assert [each.size for each in parity.unexplained(LONDON, behind, ALL, {})] == [2]
    assert parity.unexplained(view("london", "source", shipped=2), behind, ALL, {}) == []
    assert parity.unexplained(LONDON, behind, ALL, {"orders.in": 2}) == []
    assert parity.not_accepted(parity.differences(LONDON, behind, ALL), {"orders.in": 2}) == []
