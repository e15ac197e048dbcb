"""How a lost site is taken in again: residue and ids are let in while no queue delivers, and compared."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, Outcome, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges import duplicates
from dr_ctl.topologies.bridges.shipping import Direction, starts, wait
from dr_ctl.topologies.bridges.tools import BridgesTools, IdBarrier, MessageBarrier
from dr_ctl.topologies.bridges.view import BrokerView, whole
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import call, pause, resume
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.idstore import NotRead
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.verbs.undoing import as_before
from dr_ctl.topologies.common.view import Acceptor, Queue
from dr_ctl.topologies.common.wants import AtBroker, Wants

HOLDS: Final = "the returned site holds something for this one"
HELD: Final = "it was paused for what came"
LOOK_S: Final = 30.0


def _served(at: AtBroker) -> Iterator[Queue]:
    """The queues that delivered before to clients who are let in."""
    for queue in (each for flow in at.view.flows for each in at.view.queues_of(flow.unit)):
        if not at.view.kept_out(queue.address) and queue.name not in at.was["paused"]:
            yield queue


def _held(at: AtBroker) -> list[Call]:
    """Messages and ids take two bridges: a late message may arrive before the id that says that it is done."""
    return at.missing(pause(at.view, queue, HOLDS) for queue in _served(at))


def _delivered(at: AtBroker) -> list[Call]:
    return at.missing(resume(at.view, queue, None if queue.paused else HELD) for queue in _served(at))


def _started(at: AtBroker) -> list[Call]:
    return starts(at.view, whole)


def _ways_in(at: AtBroker) -> list[Call]:
    """The listeners of a returned site: the peer's bridges use one, the processor of the ids another. The queues are
    closed, so that no client gets in."""
    return at.missing(_listener(at.view, Goal.LINK_UP, each) for each in (*at.view.link.listeners, *at.view.listeners))


HELD_BACK: Final[Wants] = ((_held, wants.SOURCE),)
LET_IN: Final[Wants] = (
    (wants.listens, wants.SOURCE),
    (_ways_in, wants.TARGET),
    (_started, wants.SOURCE),
    (_started, wants.TARGET),
)
DELIVERED: Final[Wants] = ((_delivered, wants.SOURCE), *wants.PAID)
draft: Final = wants.planning(
    wants.TARGET,
    "its residue and its ids are let in while nothing is delivered; both directions drain",
    *(*HELD_BACK, *LET_IN, *DELIVERED),
    limits=Rules.while_moving,
)


def as_returned(at: AtBroker) -> list[Call]:
    """The listeners as they were when the site returned; the queues stay closed, even if the return fails."""
    view, was = at.view, at.was["acceptors"]
    ways = (each for each in (*view.link.listeners, *view.listeners) if not was.get(each.name))
    return [_listener(view, Goal.LINK_DOWN, each, "it is open") for each in ways]


def _listener(view: BrokerView, goal: Goal, listener: Acceptor, when: str | None = None) -> Call:
    opens, requests = goal is Goal.LINK_UP, view.requests
    asked = requests.open_listener(listener) if opens else requests.close_listener(listener)
    return call(view, goal, listener.name, asked, f"{'open' if opens else 'close'} acceptor {listener.name}", when)


draft_reconcile: Final = wants.planning(wants.SOURCE, "whether the returned site's copies hold what is served")


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    # Where nothing can come any more its clients need not wait; nor do they again where a run died after that.
    if not _nothing_left(tools, move) and (refused := tools.reach(HELD_BACK, move, context)) is not None:
        return refused
    if (refused := tools.reach(LET_IN, move, context)) is not None:
        return refused
    sites = tools.observer.brokers
    pairs = [(mine, sites[move.target][pair]) for pair, mine in sites[move.source].items()]
    # A queue that the returned site alone serves gets messages all the time, and none of them is residue.
    closed = {unit for view in tools.views(move.target) for unit, is_open in view.units.items() if not is_open}
    back = [Direction(there, here, closed.__contains__, IdBarrier()) for here, there in pairs]
    # Clients go on sending to the serving site: in that direction the wait covers only messages that lay there.
    forth = [Direction(here, there, whole, IdBarrier(), MessageBarrier()) for here, there in pairs]
    waiting = wait(tools, [*back, *forth], context)
    if (failed := waiting.until(tools.rules.drain.poll, step.limits)) is not None:
        return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    held = any(call.goal is Goal.PAUSE for call in step.calls)
    findings = [*_done_there(tools, move)] if held else []  # before anybody delivers what came
    if (refused := tools.reach(DELIVERED, move, context)) is not None:
        return refused
    return Done("what it held has arrived, and its ids are applied", _figures(tools), tuple(findings))


def _done_there(tools: BridgesTools, move: Move) -> Iterator[Finding]:
    """Messages that consumers of the returned site had done when it was lost, and that nobody was told of."""
    for pair, serving in tools.observer.brokers[move.source].items():
        way = tools.observer.brokers[move.target][pair], serving
        try:
            yield from duplicates.done_at(way, serving.read(), timeout_s=LOOK_S)
        except NotRead as error:
            yield duplicates.not_compared(error)


def _nothing_left(tools: BridgesTools, move: Move) -> bool:
    """True if the returned site was seen to hold no messages or ids for the other; closed queues get no new ones."""
    held = list(tools.residue.values())
    empty = bool(held) and not any(each.messages or each.acks for each in held)
    return empty and total(view.link.unapplied for view in tools.views(move.source)) == 0


def _figures(tools: BridgesTools) -> dict[str, Json]:
    """Count the residue that was let in, unless an earlier process counted it."""
    held = list(tools.residue.values())
    return {
        "recovered": total(each.messages for each in held) if held else None,
        "ids_applied": total(each.acks for each in held) if held else None,
    }


def applied(tools: BridgesTools, move: Move, context: StepContext) -> Outcome:
    """Let the ids that have arrived be applied: a message that came in without its id may be duplicates."""
    waited = until(
        context,
        lambda: tools.observer.unapplied_at(move.source, timeout_s=5.0),
        holds=lambda left: left == 0,
        within_s=tools.timeouts.settle_s,
        poll_s=tools.timeouts.settle_poll_s,
    )
    return Done("as it was", findings=tuple(_duplicates(tools, move, waited.look)))


def _duplicates(tools: BridgesTools, move: Move, unapplied: int | None) -> list[Finding]:
    """Report messages that came in without their ids: at most as many as ids are left there, and as messages came; what
    lies in the returned site's buffers did not come."""
    views = tools.observer.answering(move.target)
    ids = total((unapplied, *(view.ids_to_ship for view in views))) if views else None
    held = total(each.messages for each in tools.residue.values()) if tools.residue else None
    left = total(view.link.to_ship for view in views) if views else 0
    came = max(0, held - (left or 0)) if held is not None else None
    known = [each for each in (ids, came) if each is not None]
    if known and min(known) == 0:
        return []
    most = f"at most {min(known)}" if known else "an unknown number of"
    return [found("DR-RETURN-007", most=most, target=move.target, why="the ids that say they are done did not come")]


def reconcile(tools: BridgesTools, _step: PlannedStep, move: Move, _context: StepContext) -> Outcome:
    """Compare the id stores where the settings name them: the serving site must know all ids that the returned site has
    processed. An earlier step waited for the messages; copies that found no queue at the returned site are reported."""
    findings = list(_unrouted(tools, move))
    unknown: dict[str, Json] = {}
    for pair, serving in tools.observer.brokers[move.source].items():
        mine, other = tools.observer.brokers[move.target][pair].ids, serving.ids
        if mine is not None and other is not None:
            unknown[pair] = None
            try:
                lacking = duplicates.count_lacking(mine, other)
            except NotRead as error:
                findings.append(duplicates.not_compared(error))
                continue
            unknown[pair] = {**lacking}
            if lacking:
                ids = some([f"{queue} {count}" for queue, count in lacking.items()])
                findings.append(found("DR-RECONCILE-004.unknown_ids", target=move.target, source=move.source, ids=ids))
    return Done("compared as far as it can be", {"ids_not_known": unknown or None}, tuple(findings))


def _unrouted(tools: BridgesTools, move: Move) -> Iterator[Finding]:
    for view in tools.observer.look_at(move.target):
        counts = [f"{unit} {count}" for unit, count in view.unrouted.items() if count and view.flow(unit) is not None]
        if counts:
            yield found("DR-RECONCILE-002.unrouted", site=view.site, pair=view.pair, counts=some(counts))


UNDO: Final = Undo((wants.way_in, wants.pauses, wants.debts), (as_returned,), partial(as_before, settle=applied))
