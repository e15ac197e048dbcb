"""A return that does not come to its end: messages that came in and were done at the returned site are not delivered.

An outflow is shipped in its order, messages first and their acknowledgements behind. The way is shut first, and all
that has arrived is applied. Messages that the returned site still acknowledges are taken out by id; messages without a
known id are counted.
"""

from collections.abc import Mapping
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.engine.outcome import Refused
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.consumed import Acknowledged, Consumed
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
    half_way = tools.half_way
    half_way.duplicates, half_way.why = 0, None
    _settled(tools, move, hand)
    for view in tools.observer.look_at(move.source):
        residue, why = _still_held(tools, move.target, view.pair)
        if residue is None or residue.done is None:
            _count(half_way, view, residue.acks if residue is not None else None, why)
            continue
        moved = taken_out(tools, _done(tools, view, residue.done, half_way, move.target), hand)
        if isinstance(moved, Refused):
            return moved
        for name, count in moved.items():
            half_way.taken_out[name] = half_way.taken_out.get(name, 0) + count
    return half_way


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
    """The returned broker's residue, by a look now or as counted before: a broker closed to clients does no more."""
    access = tools.observer.brokers[site][pair]
    counted = tools.residue.get(pair)
    try:
        now = origins.residue(access.reader(), access.look())
    except BrokerError as error:
        return counted, f"which were done there could not be read: {error}"
    too_deep = f"which of them were done there is not known: {now.messages + now.acks} events are too many to look at"
    return (counted if now.done is None and counted is not None and counted.done is not None else now), too_deep


def _done(
    tools: MirrorTools, view: BrokerView, done: Mapping[str, frozenset[origins.Origin]], half_way: HalfWay, by: str
) -> list[LeftOver]:
    """The messages done at the site `by` that lie here. A queue too deep to look at each message is only counted."""
    reader = tools.observer.brokers[view.site][view.pair].reader()
    found = []
    for name in [name for name in done if name in view.business and view.business[name].depth]:
        queue = view.business[name]
        if queue.depth > origins.RESIDUE_UP_TO:
            half_way.duplicates += min(queue.depth, len(done[name]))
            half_way.why = f"{name} is too deep to look at each message"
            continue
        [here] = origins.browsed(reader, view, [queue], limit=origins.RESIDUE_UP_TO)
        mine = {origin: number for origin, number in here.numbers.items() if origin in done[name]}
        if may_be := min(here.unnamed, len(done[name]) - len(mine)):
            half_way.duplicates += may_be
            half_way.why = f"the broker does not show where messages of {name} come from"
        acknowledged = Acknowledged(frozenset(map(origins.told, done[name])), by)
        gone = Consumed(frozenset(map(origins.told, mine)), acknowledged)
        found.append(LeftOver(view, name, mine, frozenset(), gone))
    return found


def _count(half_way: HalfWay, view: BrokerView, acks: int | None, why: str) -> None:
    """No more than lies here, and than is acknowledged there where that is known."""
    lying = sum(max(0, queue.depth) for queue in view.business.values())
    half_way.duplicates += lying if acks is None else min(lying, acks)
    half_way.why = why
