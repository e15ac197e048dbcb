"""How a lost site is taken in again: what it still holds is counted, let in while no queue delivers, and compared.

An outflow is shipped in its order, messages first and their acknowledgements behind. Where a return does not come to
its end, the way is shut first, and all that has arrived is applied. Messages that the returned site still acknowledges
are taken out by id; messages without a known id are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import some
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import pause_lasting
from dr_ctl.topologies.common.consumed import Acknowledged, Consumed
from dr_ctl.topologies.common.failover import nothing_owed
from dr_ctl.topologies.common.figures import Residue
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules, selected
from dr_ctl.topologies.common.verbs.plain import closed_first
from dr_ctl.topologies.common.verbs.undoing import as_before
from dr_ctl.topologies.common.wants import AtBroker, Wants
from dr_ctl.topologies.mirror import origins, parity
from dr_ctl.topologies.mirror.origins import Origin, browsed, residue
from dr_ctl.topologies.mirror.reading import Flow
from dr_ctl.topologies.mirror.reconcile import LeftOver, taken_out
from dr_ctl.topologies.mirror.shipping import Events, flows, started, wait
from dr_ctl.topologies.mirror.tools import HalfWay, MirrorTools
from dr_ctl.topologies.mirror.view import BrokerView

CALM: Final = 5
# The serving site's producers go on: their messages are under way all the time, and are no residue.
SMALL: Final = 500


def _held(at: AtBroker) -> list[Call]:
    """Every queue, whatever the settings narrow: one that goes on delivering would meet the residue. Lasting: a restart
    must not let residue meet consumers."""
    return at.missing(pause_lasting(at.view, queue) for queue in at.view.business.values())


def _comes(at: AtBroker) -> list[Call]:
    """Where both sites were lost in turn, the one that returns still keeps the other out."""
    return [*wants.listens(at), *started(at)]


HELD: Final[Wants] = ((_held, wants.SOURCE),)
LET_IN: Final[Wants] = ((wants.listens, wants.SOURCE), (_comes, wants.TARGET))
DELIVERED: Final[Wants] = ((wants.delivers, wants.SOURCE), *wants.PAID)
draft: Final = wants.planning(
    wants.TARGET,
    "its residue is let in while nothing is delivered; both directions drain",
    *(*HELD, *LET_IN, *DELIVERED),
    limits=Rules.while_moving,
)


def _since(views: Sequence[BrokerView]) -> str:
    done = [
        f"{queue.name}: {queue.added} added, {queue.acked} acknowledged"
        for view in views
        for queue in view.business.values()
        if queue.added or queue.acked
    ]
    return f"; since its start, by them and by the mirror: {some(done) or 'nothing came or went'}"


def count_residue(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    findings = closed_first(tools, step, move, context, _since)
    if isinstance(findings, Refused):
        return findings
    for access in tools.observer.at(move.target):
        counted = residue(access.reader(), access.read())
        # Where its clients were let in, what it wrote since its start may be their work.
        tools.residue[access.pair] = replace(counted, since={}) if findings else counted
    total = Residue.together(tools.residue.values())
    since = sum(len(ids) for each in tools.residue.values() for ids in each.since.values())
    text = f"{total.messages} message(s) and {total.acks} acknowledgement(s)"
    text += f", {since} of these written since it is back" if since else ""
    context.notice(f"{move.target} still holds for the other site: {text}")
    return Done(text, total.figures(), tuple(findings))


@dataclass
class _Taken:
    """A pair before its residue is let in. A None means a queue too deep to look at, or a residue not counted."""

    before: Mapping[str, frozenset[Origin] | None]
    removed: int
    residue: Residue | None


def act(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        # A process may have died right after striking out the debts: delivery is not paused once more.
        if all(not each.messages and not each.acks for each in tools.residue.values()):
            tools.rejoined.begin()
        return NotNeeded(f"{move.target} is taken in already")
    if tools.reach(HELD, move, context) is not None:
        return Refused(f"could not pause {some([call.thing for call in tools.missing(HELD, move)[0]])}")
    taken = {view.pair: _before(tools, view) for view in tools.observer.look_at(move.source)}
    tools.reach(LET_IN, move, context)  # the wait tells what keeps it out
    ways = tools.observer.between(move.target, move.source)
    both = [(_Residue(here, there, tools, context), _Beside(there, here, tools, context)) for here, there in ways]
    about = f"of {move.target}'s residue under way"
    waited = wait(tools, [each for two in both for each in two], context, about)
    failed = waited.until(tools.rules.drain.poll, step.limits, calms=CALM)
    if failed is not None:
        return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    tools.rejoined.begin()
    for view in tools.observer.look_at(move.source):
        _compare(tools, view, taken[view.pair])
    return tools.reach(DELIVERED, move, context) or Done(tools.rejoined.text, document(tools.rejoined))


def _before(tools: MirrorTools, view: BrokerView) -> _Taken:
    removed = sum(queue.removed for queue in view.business.values())
    return _Taken(_origins(tools, view), removed, tools.residue.get(view.pair))


def _origins(tools: MirrorTools, view: BrokerView) -> dict[str, frozenset[Origin] | None]:
    """Give the origins of each queue's messages, or None if the queue is too deep to look at each, or its broker does
    not show where one comes from."""
    chosen = selected(view, tools.observer.queues)
    shallow = [queue for queue in chosen.values() if queue.depth <= parity.ORIGINS_UP_TO]
    reader = tools.observer.brokers[view.site][view.pair].reader()
    rows = zip(shallow, browsed(reader, view, shallow, limit=parity.ORIGINS_UP_TO), strict=True)
    return {**dict.fromkeys(chosen), **{queue.name: each.ids for queue, each in rows if not each.unnamed}}


def _compare(tools: MirrorTools, view: BrokerView, taken: _Taken) -> None:
    """Compare while no queue delivers: new messages that were not born here came out of the residue. A message
    acknowledged at the returned site and gone here came twice, unless its acknowledgement was applied before."""
    for name, ids in _origins(tools, view).items():
        was = taken.before.get(name, frozenset())  # a queue that came with the residue was not there
        if ids is None or was is None:
            tools.rejoined.not_read.append(name)
        else:
            tools.rejoined.add_recovered(name, [each for each in ids - was if each[0] != view.node])
    applied = sum(queue.removed for queue in view.business.values()) - taken.removed
    if taken.residue is None:
        tools.rejoined.acks = None
    elif taken.residue.acked is None:
        tools.rejoined.add_acks(max(0, taken.residue.acks - applied))
        tools.rejoined.acks_by_id = None
    else:
        for name, acked in taken.residue.acked.items():
            gone = acked - (taken.before.get(name) or frozenset())
            echoes = taken.residue.since.get(name, frozenset())
            tools.rejoined.add_acked(name, gone - echoes)
            tools.rejoined.echoes += len(gone & echoes)


class _Residue(Events):
    """From the returned broker to the serving one."""

    def left(self, here: Flow, there: Flow) -> int | None:
        super().left(here, there)
        backlog = there.to_ship if there.to_ship > SMALL else 0
        residue = here.to_ship + here.outflow_delivering + there.unapplied + backlog
        self._left = residue if here.attached and there.attached else None
        return self._left


class _Beside(Events):
    """The other way, on which nothing is waited for: the serving site's producers go on."""

    def left(self, here: Flow, there: Flow) -> int | None:
        super().left(here, there)
        self._left = 0
        return 0


def withheld(tools: MirrorTools, move: Move, context: StepContext) -> Outcome:
    """Take out of the serving site what the returned one has done. The way between them is shut. Twice is once."""
    half_way = tools.half_way
    half_way.duplicates, half_way.why = 0, None
    _settled(tools, move, context)
    for view in tools.observer.look_at(move.source):
        residue, why = _still_held(tools, move.target, view.pair)
        if residue is None or residue.done is None:
            _count(half_way, view, residue.acks if residue is not None else None, why)
            continue
        moved = taken_out(tools, _done(tools, view, residue.done, half_way, move.target), context)
        if isinstance(moved, Refused):
            return moved
        for name, count in moved.items():
            half_way.taken_out[name] = half_way.taken_out.get(name, 0) + count
    return Done("as it was", document(half_way), half_way.findings(move))


def _settled(tools: MirrorTools, move: Move, context: StepContext) -> None:
    """Wait until what has arrived is applied, and what was with the link lies in its outflow again."""

    def applied() -> bool:
        now = flows(tools, tools.observer.all())
        here = [flow for (site, _), flow in now.items() if site == move.source]
        there = [flow for (site, _), flow in now.items() if site == move.target]
        pending = any(not isinstance(flow, Flow) or flow.unapplied for flow in here)
        return not pending and not any(isinstance(flow, Flow) and flow.outflow_delivering for flow in there)

    within_s, poll_s = tools.timeouts.settle_s, tools.timeouts.settle_poll_s
    until(context, applied, holds=bool, within_s=within_s, poll_s=poll_s, stable_for=CALM)


def _still_held(tools: MirrorTools, site: str, pair: str) -> tuple[Residue | None, str]:
    """The returned broker's residue, by a look now or as counted before: a broker closed to clients does no more."""
    access = tools.observer.brokers[site][pair]
    counted = tools.residue.get(pair)
    try:
        now = origins.residue(access.reader(), access.read())
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


UNDO: Final = Undo(source=(wants.way_in, wants.pauses, wants.debts), by=partial(as_before, settle=withheld))
