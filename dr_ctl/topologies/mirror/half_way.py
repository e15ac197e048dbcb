"""A return that does not come to its end: of what came in, what was done at the returned site is not delivered.

An outflow is shipped in its order, messages first and their acknowledgements behind. So the way is shut before this,
what has arrived is applied, and what the returned site still acknowledges is taken out by id; what cannot be named is
counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Refused
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.mirror import origins
from dr_ctl.topologies.mirror.acts.reconcile import LeftOver, taken_out
from dr_ctl.topologies.mirror.links import flows
from dr_ctl.topologies.mirror.look import Flow
from dr_ctl.topologies.mirror.tools import HalfWay, MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

CALM: Final = 5


def withheld(tools: MirrorTools, move: Move, hand: Hand) -> HalfWay | Refused:
    """Take out of the serving site what the returned one has done. The way between them is shut. Twice is once."""
    told = tools.half_way
    told.twice, told.why = 0, None
    _settled(tools, move, hand)
    for view in tools.observer.look_at(move.source):
        residue, why = _still_held(tools, move.target, view.pair)
        if residue is None or residue.done is None:
            _count(told, view, residue.acks if residue is not None else None, why)
            continue
        moved = taken_out(tools, _done(tools, view, residue.done, told), hand)
        if isinstance(moved, Refused):
            return moved
        for name, count in moved.items():
            told.taken_out[name] = told.taken_out.get(name, 0) + count
    return told


def _settled(tools: MirrorTools, move: Move, hand: Hand) -> None:
    """Wait until what has arrived is applied, and what was with the link lies in its outflow again."""

    def applied() -> bool:
        now = flows(tools, tools.observer.all())
        here = [flow for (site, _), flow in now.items() if site == move.source]
        there = [flow for (site, _), flow in now.items() if site == move.target]
        pending = any(not isinstance(flow, Flow) or flow.unapplied for flow in here)
        return not pending and not any(isinstance(flow, Flow) and flow.outflow_delivering for flow in there)

    within_s, poll_s = tools.patience.settle_s, tools.patience.settle_poll_s
    until(hand, applied, holds=bool, within_s=within_s, poll_s=poll_s, calm=CALM)


def _still_held(tools: MirrorTools, site: str, pair: str) -> tuple[Residue | None, str]:
    """What the returned broker holds, as it says now; else as it was counted: closed to clients, it does no more."""
    access = tools.observer.brokers[site][pair]
    counted = tools.residue.get(pair)
    try:
        now = origins.residue(access.reader(), access.look())
    except BrokerError as error:
        return counted, f"which were done there could not be read: {error}"
    too_deep = f"which of them were done there is not known: {now.messages + now.acks} events are too many to look at"
    return (counted if now.done is None and counted is not None and counted.done is not None else now), too_deep


def _done(
    tools: MirrorTools, view: BrokerView, done: Mapping[str, frozenset[origins.Origin]], told: HalfWay
) -> list[LeftOver]:
    """What of it lies here, by queue. Of a queue that is too deep to look at each it is only counted."""
    reader = tools.observer.brokers[view.site][view.pair].reader()
    found = []
    for name in [name for name in done if name in view.business and view.business[name].depth]:
        queue = view.business[name]
        if queue.depth > origins.RESIDUE_UP_TO:
            told.twice += min(queue.depth, len(done[name]))
            told.why = f"{name} is too deep to look at each message"
            continue
        here = origins.numbered(reader, view, queue, limit=origins.RESIDUE_UP_TO)
        mine = {origin: number for origin, number in here.items() if origin in done[name]}
        found.append(LeftOver(view, name, mine, frozenset()))
    return found


def _count(told: HalfWay, view: BrokerView, acks: int | None, why: str) -> None:
    """No more than lies here, and than is acknowledged there where that is known."""
    lying = sum(max(0, queue.depth) for queue in view.business.values())
    told.twice += lying if acks is None else min(lying, acks)
    told.why = why
