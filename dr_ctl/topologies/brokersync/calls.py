"""The calls that only a BrokerSync pair has: network connectors, and messages removed by their ids. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.brokersync.view import BrokerView
from dr_ctl.topologies.classic.operations import MOVE_MATCHING, REMOVE_MATCHING, START, STOP
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request

NOT_CONNECTED: Final = "it is not connected"
RESTARTS: Final = 3
MOST: Final = 100_000
UNEXPLAINED: Final = "they were consumed at the other site before, or nothing explains why they lie only there"
CONSUMED: Final = "copies of what was consumed lie there"


def starts(views: Iterable[BrokerView], when: str | None = NOT_CONNECTED) -> list[Call]:
    """Start the network connectors to the peer."""
    return [
        call(view, Goal.LINK_UP, view.network.name, request(view.network.bean, START), f"start {_named(view)}", when)
        for view in views
        if view.network is not None
    ]


def stops(views: Iterable[BrokerView], when: str | None = None) -> list[Call]:
    return [
        call(view, Goal.LINK_DOWN, view.network.name, request(view.network.bean, STOP), f"stop {_named(view)}", when)
        for view in views
        if view.network is not None
    ]


def restarts(views: Iterable[BrokerView]) -> list[Call]:
    """Let connectors that are not connected try at once: by itself one tries again after up to half a minute."""
    return [
        replace(each, at_most=RESTARTS)
        for view in views
        for each in (*stops([view], NOT_CONNECTED), *starts([view], NOT_CONNECTED))
    ]


def _named(view: BrokerView) -> str:
    return f"network connector {view.network.name if view.network is not None else ''}"


def may_move(view: BrokerView, queue: Queue, when: str | None = UNEXPLAINED, to: str | None = None) -> Call:
    """Plan a move aside, or to another queue; the run finds out which messages."""
    name = to or quarantine_queue(view.site, queue.name)
    asked = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, asked, f"move them from {queue.name} to {name}", when, MOST)


def may_remove(view: BrokerView, queue: Queue, when: str) -> Call:
    """Plan a removal; the run finds out which messages."""
    asked = request(queue.bean, REMOVE_MATCHING, ("JMSMessageID IN (…)",))
    return call(view, Goal.REMOVE, queue.name, asked, f"remove them from {queue.name} by their ids", when, MOST)
