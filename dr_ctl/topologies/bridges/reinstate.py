"""How a lost site is taken in again: residue and ids are let in while no queue delivers, and compared."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep, in_part
from dr_ctl.engine.ports import Done, Move, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges import duplicates
from dr_ctl.topologies.bridges.shipping import Direction, starts, wait
from dr_ctl.topologies.bridges.tools import BridgesTools, IdBarrier, MessageBarrier
from dr_ctl.topologies.bridges.view import BrokerView, whole
from dr_ctl.topologies.common.baseline import AtBroker, before, debts, pauses, way_in
from dr_ctl.topologies.common.calls import call, open_links, pause, resume
from dr_ctl.topologies.common.figures import total
from dr_ctl.topologies.common.idstore import NotRead, Store
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.verbs.quarantine import paid
from dr_ctl.topologies.common.verbs.undoing import as_before

HOLDS: Final = "the returned site holds something for this one"
HELD: Final = "it was paused for what came"
LOOK_S: Final = 30.0


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Pause the serving site's delivery (lasting), let residue and ids in, resume, strike the debts. Messages and ids
    take two bridges: a late message may arrive before the id that says that it is done."""
    del step
    held: list[Call] = []
    let_in: list[Call] = []
    resumed: list[Call] = []
    for view in snapshot.views(move.source):
        was = before(move, view)
        for queue in (each for flow in view.flows for each in view.queues_of(flow.unit)):
            closed = not view.units[queue.address]
            if closed or queue.name in was["paused"]:
                continue
            held += [] if queue.paused else [pause(view, queue, HOLDS)]
            resumed.append(resume(view, queue, None if queue.paused else HELD))
        let_in += open_links(view)
    for view in snapshot.views(move.target):
        let_in += _ways_in(view)
    let_in += starts([*snapshot.views(move.source), *snapshot.views(move.target)], whole)
    return StepPlan(
        move.target,
        "its residue and its ids are let in while nothing is delivered; both directions drain",
        (
            *in_part("hold", held),
            *in_part("let in", let_in),
            *in_part("deliver", resumed),
            *in_part("strikes", paid(snapshot, move)),
        ),
        limits=rules.while_moving(move),
    )


def _ways_in(view: BrokerView) -> list[Call]:
    """The listeners of a returned site: the peer's bridges use one, the processor of the ids another. The queues are
    closed, so that no client gets in."""
    return [
        call(view, Goal.LINK_UP, listener.name, view.requests.open_listener(listener), f"open acceptor {listener.name}")
        for listener in (*view.link.listeners, *view.listeners)
        if not listener.started
    ]


def as_returned(at: AtBroker) -> list[Call]:
    """The listeners as they were when the site returned; the queues stay closed, even if the return fails."""
    view, was = at.view, at.was["acceptors"]
    return [
        call(
            view,
            Goal.LINK_DOWN,
            listener.name,
            view.requests.close_listener(listener),
            f"close acceptor {listener.name}",
            "it is open",
        )
        for listener in (*view.link.listeners, *view.listeners)
        if not was.get(listener.name)
    ]


def draft_reconcile(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    del rules, step, snapshot
    return StepPlan(move.source, "whether the returned site's copies hold what is served")


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    holds, lets_in, resumes, strikes = (step.part(name) for name in ("hold", "let in", "deliver", "strikes"))
    # Where nothing can come any more its clients need not wait; nor do they again where a run died after that.
    if not _nothing_left(tools, move) and (refused := tools.make(holds, context, move.source)) is not None:
        return refused
    if (refused := tools.make(lets_in, context, move.source, move.target)) is not None:
        return refused
    sites = tools.observer.brokers
    pairs = [(mine, sites[move.target][pair]) for pair, mine in sites[move.source].items()]
    # A queue that the returned site alone serves gets messages all the time, and none of them is residue.
    closed = {unit for view in tools.views(move.target) for unit, is_open in view.units.items() if not is_open}
    back = [Direction(there, here, closed.__contains__, IdBarrier()) for here, there in pairs]
    # Clients go on sending to the serving site: in that direction the wait covers only messages that lay there.
    forth = [Direction(here, there, whole, IdBarrier(), MessageBarrier()) for here, there in pairs]
    waiting = wait(tools, [*back, *forth], context)
    within_s, stall_s = step.limits.get("within"), step.limits["stall"]
    if (failed := waiting.until(tools.rules.drain.poll, within_s=within_s, stall_s=stall_s)) is not None:
        return replace(failed, text=f"{move.target} is not taken in: {failed.text}")
    found = [*_done_there(tools, move)] if holds else []  # before anybody delivers what came
    if (refused := tools.make([*resumes, *strikes], context, move.source, move.target)) is not None:
        return refused
    return Done("what it held has arrived, and its ids are applied", _figures(tools), tuple(found))


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


def reconcile(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Compare the id stores where the settings name them: the serving site must know all ids that the returned site has
    processed. An earlier step waited for the messages; copies that found no queue at the returned site are reported."""
    del step, context
    found = list(_unrouted(tools, move))
    unknown: dict[str, Json] = {}
    for pair, serving in tools.observer.brokers[move.source].items():
        mine, other = tools.observer.brokers[move.target][pair].ids, serving.ids
        if mine is not None and other is not None:
            lacking = _not_known(mine, other)
            unknown[pair] = {**lacking} if isinstance(lacking, Mapping) else None
            found += _of_ids(lacking, move)
    return Done("compared as far as it can be", {"ids_not_known": unknown or None}, tuple(found))


def _unrouted(tools: BridgesTools, move: Move) -> Iterator[Finding]:
    for view in tools.observer.look_at(move.target):
        counts = [f"{unit} {count}" for unit, count in view.unrouted.items() if count and view.flow(unit) is not None]
        if counts:
            yield found("DR-RECONCILE-002.unrouted", site=view.site, pair=view.pair, counts=some(counts))


def _not_known(mine: Store, other: Store) -> Mapping[str, int] | NotRead:
    try:
        return duplicates.count_lacking(mine, other)
    except NotRead as error:
        return error


def _of_ids(lacking: Mapping[str, int] | NotRead, move: Move) -> Iterator[Finding]:
    if isinstance(lacking, NotRead):
        yield duplicates.not_compared(lacking)
    elif lacking:
        named = some([f"{queue} {count}" for queue, count in lacking.items()])
        yield found("DR-RECONCILE-004.unknown_ids", target=move.target, source=move.source, ids=named)


UNDO: Final = Undo((way_in, pauses, debts), (as_returned,), partial(as_before, settle=applied))
