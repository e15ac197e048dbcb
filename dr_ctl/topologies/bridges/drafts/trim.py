"""Plans `trim`: copies of processed messages removed where they wait for nothing. Pure."""

from __future__ import annotations

from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis.operations import request
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Queue

REMOVE: Final = "removeMessages(java.lang.String)"
PROCESSED: Final = "the other site holds none that is as old, and all processed ids are applied"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del step
    calls: list[Call] = []
    for view in seen.views(move.source):
        peer = seen.view(move.target, view.pair)
        for unit in view.among(move.ask.includes):
            if peer is None or view.units[unit] or not peer.units.get(unit):
                continue
            calls += [remove(view, queue, None) for queue in view.queues_of(unit) if queue.depth]
    about = f"copies at {move.source} of messages that {move.target} has processed are removed, by their numbers"
    return Draft(move.source, about, tuple(calls), limits={"within": rules.within(move)})


def remove(view: BrokerView, queue: Queue, chosen: str | None) -> Call:
    """`chosen` is the filter; the filter is None while it is not known."""
    arguments: tuple[Json, ...] = (chosen if chosen is not None else "…",)
    text = f"remove processed copies of {queue.name}" + ("" if chosen is not None else f", {queue.depth} at the most,")
    return call(view, Goal.REMOVE, queue.name, request(queue.bean, REMOVE, arguments), text, PROCESSED)
