"""The calls that only a BrokerSync pair has: network connectors, and messages removed by their ids. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic.operations import MOVE_MATCHING, REMOVE_MATCHING, START, STOP, by_ids, request
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.view import Queue

NOT_CONNECTED: Final = "it is not connected"
RESTARTS: Final = 3
BATCH: Final = 100  # ids in one call: 19 000 a second were removed so, and no message is looked at one by one
MOST: Final = 100_000
UNEXPLAINED: Final = "they were consumed at the other site before, or nothing explains why they lie only there"
CONSUMED: Final = "copies of what was consumed lie there"


def starts(views: Iterable[BrokerView], when: str | None = NOT_CONNECTED) -> list[Call]:
    """Start the network connectors to the peer."""
    return [
        call(view, Goal.LINK_UP, view.link.name, request(view.link.bean, START), f"start {_named(view)}", when)
        for view in views
        if view.link is not None
    ]


def stops(views: Iterable[BrokerView], when: str | None = None) -> list[Call]:
    return [
        call(view, Goal.LINK_DOWN, view.link.name, request(view.link.bean, STOP), f"stop {_named(view)}", when)
        for view in views
        if view.link is not None
    ]


def restarts(views: Iterable[BrokerView]) -> list[Call]:
    """Let connectors that are not connected try at once: by itself one tries again after up to half a minute."""
    return [
        replace(each, at_most=RESTARTS)
        for view in views
        for each in (*stops([view], NOT_CONNECTED), *starts([view], NOT_CONNECTED))
    ]


def _named(view: BrokerView) -> str:
    return f"network connector {view.link.name if view.link is not None else ''}"


def removes(view: BrokerView, queue: Queue, ids: Collection[str]) -> Iterator[Call]:
    """Remove these messages of a queue, in batches; one that is gone already is no error."""
    listed = sorted(ids)
    for start in range(0, len(listed), BATCH):
        batch = listed[start : start + BATCH]
        asked = request(queue.bean, REMOVE_MATCHING, (by_ids(batch),))
        yield call(view, Goal.REMOVE, queue.name, asked, f"remove {len(batch)} message(s) of {queue.name}")


def aside(view: BrokerView, queue: Queue, ids: Collection[str]) -> Iterator[Call]:
    """Move these messages to a queue of dr-ctl's own."""
    listed, name = sorted(ids), quarantine_queue(view.site, queue.name)
    for start in range(0, len(listed), BATCH):
        batch = listed[start : start + BATCH]
        asked = request(queue.bean, MOVE_MATCHING, (by_ids(batch), name))
        yield call(view, Goal.MOVE, queue.name, asked, f"move {len(batch)} message(s) of {queue.name} to {name}")


def may_move(view: BrokerView, queue: Queue) -> Call:
    """What a plan says of it."""
    name = quarantine_queue(view.site, queue.name)
    asked = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, asked, f"move them from {queue.name} to {name}", UNEXPLAINED, MOST)


def may_remove(view: BrokerView, queue: Queue, when: str) -> Call:
    """What a plan says of it: which messages, the run finds out."""
    asked = request(queue.bean, REMOVE_MATCHING, ("JMSMessageID IN (…)",))
    return call(view, Goal.REMOVE, queue.name, asked, f"remove them from {queue.name} by their ids", when, MOST)
