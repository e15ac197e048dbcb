"""The handlers of runbook verbs for a mirrored installation; the table at the end names them. They wait for links,
reinstate a lost site, and then move messages aside that lie only at that site.

In a reinstatement `move.source` serves, and `move.target` is the returned site. Its residue is what it had not shipped
when it was lost: messages, and acknowledgements of messages that clients consumed there. Both are called events.
Once both directions have drained, a message that lies only at the returned site is in no outflow any more, and the
serving site has no copy whose acknowledgement would remove it: clients would get it as soon as that site serves. A
person has to look: dr-ctl moves the message to a queue of its own there, and never removes it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Json, brief, total
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext
from dr_ctl.topologies.artemis.broker import CREATE_QUEUE, MOVE
from dr_ctl.topologies.artemis.reading import Origin, identity
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import call, pause, quarantine_queue, request
from dr_ctl.topologies.common.reasons import nothing_owed
from dr_ctl.topologies.common.recipe import Procedure, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Counts, Rules, selected
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.tools import must_be_none
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import fence
from dr_ctl.topologies.common.verbs.fence import residue_outcome
from dr_ctl.topologies.common.verbs.proving import QUIET_READINGS
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, with_pauses_lifted
from dr_ctl.topologies.common.verbs.undoing import as_before
from dr_ctl.topologies.common.view import Residue
from dr_ctl.topologies.common.waiting import MAX_REPAIRS, SMALL_OUTFLOW, Direction, Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, draft_of, links_as_before
from dr_ctl.topologies.mirror.checks import CHECKS
from dr_ctl.topologies.mirror.reading import READS, RESIDUE_UP_TO, Browsed, Session, browsed, residue
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import ORIGINS_UP_TO, BrokerView, MirrorSnapshot, unexplained

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"
NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
UNDER_WAY: Final = "events under way between the sites"
EVENTS: Final = " event(s)"
WAITS: Final = "acknowledgements wait to be applied"
STALE_COUNT: Final = (
    "if that never falls, PendingMirrorAcks of the active node still includes acknowledgements from an earlier period "
    "in which it was active: let another node take over, then restart this one"
)


def _switch_link(view: BrokerView, goal: Goal, when: str | None = None, at_most: int = 1) -> list[Call]:
    if (link := view.broker_connection) is None:
        return []
    operation, does = (START_LINK, "start") if goal is Goal.LINK_UP else (STOP_LINK, "stop")
    asked = view.requests.of_server(operation, link.name)
    return [call(view, goal, link.name, asked, f"{does} link {link.name}", when, at_most)]


def restart_calls(view: BrokerView) -> list[Call]:
    """Stop and start a link, because a broker gives up a handshake that hangs only after a minute. Both calls are
    conditional: a link that the plan finds attached may hang later."""
    goals = (Goal.LINK_DOWN, Goal.LINK_UP)
    return [asked for goal in goals for asked in _switch_link(view, goal, NOT_ATTACHED, MAX_REPAIRS)]


def link_started(at: AtBroker) -> list[Call]:
    return at.needed(_switch_link(at.view, Goal.LINK_UP))


_LINKS_RESTARTED: Final[Wants] = tuple((lambda at: restart_calls(at.view), site) for site in (SOURCE, TARGET))
draft_catch_up: Final = draft_of(
    SOURCE, "{serving_prefix}both links attached, the outflow small", *_LINKS_RESTARTED, limits=Rules.catching_up
)
draft_drain: Final = draft_of(
    TARGET,
    "everything shipped and applied, in both directions; pauses lifted meanwhile",
    *LIFTED,
    *_LINKS_RESTARTED,
    limits=Rules.draining,
)
# An attached link is restarted too, because a link that hangs may say that it is attached.
draft_restart: Final = draft_of(
    SOURCE,
    "stop and start the link of {source}, until it is attached; clients stay where they are",
    (lambda at: at.needed(_switch_link(at.view, Goal.LINK_DOWN)), SOURCE),
    (link_started, SOURCE),
    limits=lambda rules, _, move: {"within": move.spec.timeout_s or rules.timeouts.link_attach_s},
)


class LinkDirection(Direction[BrokerView]):
    """Counts what is left in one direction: the events that the broker still has to ship or is shipping (`under_way`),
    and acknowledgements from the peer that this broker has yet to apply. Restarts a link that stays unattached, or
    ships nothing, although its peer answers and lets links in."""

    def __init__(self, local: Session, peer: Session, tools: MirrorTools, context: StepContext, small: int = 0) -> None:
        super().__init__(local, peer)
        self._tools, self._context, self._small = tools, context, small
        self._shipped: int | None = None
        self._left: int | None = None
        self._progress_at = context.monotonic()
        self._restart_at: float | None = None  # a link that is only unattached is not restarted before this moment
        self._restarted = 0

    def remaining(self, view: BrokerView, _peer: BrokerView) -> int | None:
        shipped = view.outflow.added - view.outflow.depth if view.outflow is not None else None
        if shipped != self._shipped or not view.link.to_ship or not view.link.attached:
            self._shipped, self._progress_at = shipped, self._context.monotonic()
        self._left = total((view.under_way, view.link.unapplied))
        return self._left

    def reasons(self, view: BrokerView, peer: BrokerView) -> list[str]:
        site, idle_s = self.local.site, self._context.monotonic() - self._progress_at
        if (why := why_not_attached(site, view)) is not None:
            return [why]
        if self._left is not None and self._left <= self._small:
            return []
        if view.link.unapplied and not view.link.to_ship and not peer.link.to_ship:
            return [f"{WAITS} at {site} ({view.link.unapplied}){f'; {STALE_COUNT}' if view.nodes else ''}"]
        if idle_s > self._tools.waits.idle_s:
            return [f"the peer has taken nothing from {site} for {idle_s:.0f} s: its link hangs"]
        return []

    def repair_calls(self, view: BrokerView, peer: BrokerView | BrokerError) -> list[Call]:
        now, between_s = self._context.monotonic(), self._tools.timeouts.link_between_s * 2**self._restarted
        idle = now - self._progress_at > self._tools.waits.hung_s
        hangs = any(view.link.links_started.values()) and (idle or not view.link.attached)
        if not hangs or isinstance(peer, BrokerError) or not all(listener.started for listener in peer.link.listeners):
            self._restart_at = None
            return []
        self._restart_at = now + self._tools.timeouts.link_lost_s if self._restart_at is None else self._restart_at
        if not idle and now < self._restart_at:
            return []
        self._restart_at, self._progress_at = now + between_s, now
        self._restarted += 1
        what = "ships nothing" if idle else "is not attached"
        self.repairing = f"the link {what} although the peer answers: restarting it"
        # Stop and start travel in one request, so that nothing in between can leave the link stopped.
        return restart_calls(self.local.last_view())


def why_not_attached(name: str, view: BrokerView) -> str | None:
    if view.link.missing or view.link.attached:
        return None
    return f"the link of {name} is not {'attached' if any(view.link.links_started.values()) else 'started'}"


def _both(tools: MirrorTools, move: Move, context: StepContext, small: int = 0) -> Wait[BrokerView]:
    link_ends = [ends for local, peer in tools.observer.link_ends(move) for ends in ((local, peer), (peer, local))]
    events = [LinkDirection(*ends, tools, context, small) for ends in link_ends]
    return Wait(tools, events, context, UNDER_WAY, small, counts=EVENTS, scope=ReadScope.OUTFLOW)


def catch_up(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    wait = _both(tools, move, context, SMALL_OUTFLOW)
    failed = wait.until(tools.timeouts.link_poll_s, step.limits, stable_for=1)
    if failed is not None and (wait.why or wait.first is None or wait.last is None):
        return Failed(f"not caught up: {brief(wait.why) or failed.text}")
    under_way, first = wait.last or 0, wait.first or 0
    if failed is not None and under_way >= first:
        return Failed(f"the outflow grows while clients work: {first} event(s), then {under_way}")
    return Done(f"{under_way} event(s) under way", {"under_way": under_way, "restarts": wait.repairs})


def drain(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses and wait, side by side, until nothing is under way in either direction."""

    def drained() -> Outcome:
        wait = _both(tools, move, context)
        failed = wait.until(
            tools.rules.drain.poll,
            step.limits,
            opened=lambda view: [listener.name for listener in view.listeners if listener.started],
        )
        return failed or Done("nothing is under way", {"restarts": wait.repairs})

    return with_pauses_lifted(tools, move, context, drained)


def restart_link(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.change(step.calls, context)  # stop and start travel in one request, as in `repair_calls`

    def detached() -> dict[str, str]:
        brokers = tools.observer.at(move.source)
        now = zip(brokers, tools.observer.answers(brokers, ReadScope.OUTFLOW), strict=True)
        why = {
            name: f"{name} does not answer: {view}" if isinstance(view, BrokerError) else why_not_attached(name, view)
            for name, view in ((f"{session.site}/{session.pair}", view) for session, view in now)
        }
        return {name: reason for name, reason in why.items() if reason is not None}

    return attached(tools, step, move, context, "the link", detached)


UNDO_LINK: Final = Undo(source=(links_as_before,), target=(links_as_before,))


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The messages of one queue of `view` that are to be moved aside (`to_move`), each with the number that this broker
    gave it, and the messages that lie only at the serving site, where they stay."""

    view: BrokerView
    queue: str
    to_move: Mapping[Origin, int]
    only_at_serving: frozenset[Origin] = frozenset()


def _leftovers_aside(at: AtBroker) -> Iterator[Call]:
    """Want messages that still lie only at the returned site once everything has arrived in a queue of dr-ctl's own."""
    view, name = at.view, quarantine_queue(at.view.site, "…")
    when = f"messages lie only at {view.site} for longer than shipping can take"
    created, moved = (view.requests.of_server(operation, name) for operation in (CREATE_QUEUE, MOVE))
    yield call(view, Goal.CREATE, name, created, f"create {name}", when, len(view.business))
    yield call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, ORIGINS_UP_TO)


draft_reconcile: Final = draft_of(
    SOURCE, "what was recovered, duplicated, or left over at one side", (_leftovers_aside, TARGET)
)


def reconcile(tools: MirrorTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Report queues that differ for longer than shipping takes; move messages aside that only the returned site has."""
    first: dict[tuple[str, str], LeftOver] = {}

    def read() -> tuple[MirrorSnapshot, dict[tuple[str, str], Counts]]:
        snapshot = tools.observer.observe()
        wrong = {
            (view.pair, difference.queue): difference
            for view, peer in snapshot.both(move.source, move.target)
            for difference in unexplained(view, peer, tools.observer.queues, snapshot.traffic.get(view.pair, {}))
        }
        if wrong and not first:
            first.update(_left_over(tools, snapshot, wrong, move))
        return snapshot, wrong

    within_s, poll_s = tools.waits.left_over_s, tools.rules.drain.poll
    snapshot, wrong = context.until(read, holds=lambda now: not now[1], within_s=within_s, poll_s=poll_s).reading
    # Clients go on meanwhile: a message is left over only if it lay at one site alone at the first reading, too.
    leftovers = [
        replace(
            leftover,
            to_move={origin: n for origin, n in leftover.to_move.items() if origin in first[key].to_move},
            only_at_serving=leftover.only_at_serving & first[key].only_at_serving,
        )
        for key, leftover in (_left_over(tools, snapshot, wrong, move) if wrong else {}).items()
        if key in first
    ]
    differing = [finding.text(move.source, move.target) for finding in wrong.values()]
    findings = [found("DR-RECONCILE-001", queues=brief(differing))] if differing else []
    if moved := move_aside(tools, leftovers, context):
        count, queues = sum(moved.values()), ", ".join(moved)
        findings.append(found("DR-RECONCILE-002.kept_aside", target=move.target, count=count, queues=queues))
    text = f"{tools.return_result.text}{tools.return_result.duplicates(move.target)}"
    ids: Json = {
        leftover.queue: {
            move.target: [identity(origin) for origin in sorted(leftover.to_move)],
            move.source: [identity(origin) for origin in sorted(leftover.only_at_serving)],
        }
        for leftover in leftovers
    }
    own: dict[str, Json] = {"left_over": [*differing], "left_over_ids": ids, "quarantined": dict(moved)}
    return Done(text, {**document(tools.return_result), **own}, tuple(findings))


def _left_over(
    tools: MirrorTools, snapshot: MirrorSnapshot, wrong: Iterable[tuple[str, str]], move: Move
) -> dict[tuple[str, str], LeftOver]:
    """Name the messages that lie at one site alone, in queues that are shallow enough to look at each message."""
    leftovers = {}
    for pair, name in wrong:
        views = [view for site in (move.source, move.target) if (view := snapshot.view(site, pair)) is not None]
        queues = [view.business.get(name) for view in views]
        # A browse leaves out messages that a client holds or that are delayed: they would seem to lie only at the peer.
        held = any(queue is not None and (queue.delivering or queue.scheduled) for queue in queues)
        if len(views) == 2 and not held and all(q is None or q.depth <= ORIGINS_UP_TO for q in queues):  # noqa: PLR2004
            local, peer = (_messages(tools, view, name) for view in views)
            # A message whose origin is not shown may be a copy of any other: then none is known to lie alone.
            if not local.unnamed and not peer.unnamed:
                to_move = {origin: number for origin, number in peer.numbers.items() if origin not in local.ids}
                leftovers[pair, name] = LeftOver(views[1], name, to_move, local.ids - peer.ids)
    return leftovers


def _messages(tools: MirrorTools, view: BrokerView, name: str) -> Browsed:
    reader = tools.observer.brokers[view.site][view.pair].reader()
    queue = view.business.get(name)  # an empty queue may have been removed by its broker
    return browsed(reader, view, [queue], limit=RESIDUE_UP_TO)[0] if queue is not None else Browsed({})


def move_aside(tools: MirrorTools, leftovers: Iterable[LeftOver], context: StepContext) -> dict[str, int]:
    moved: dict[str, int] = {}
    for leftover in (leftover for leftover in leftovers if leftover.to_move):
        view, queue = leftover.view, leftover.view.business[leftover.queue]
        name = quarantine_queue(view.site, queue.name)
        calls = [call(view, Goal.CREATE, name, view.requests.create(name, ""), f"create {name}")]
        for origin, number in sorted(leftover.to_move.items()):
            text = f"move {identity(origin)} from {queue.name} to {name}"
            calls.append(call(view, Goal.MOVE, queue.name, request(queue.bean, MOVE, (number, name)), text))
        outcomes = tools.change(calls, context)
        after = _messages(tools, tools.observer.brokers[view.site][view.pair].read(), queue.name)
        stayed = leftover.to_move.keys() & after.ids
        done = len(leftover.to_move) - len(stayed) + sum(moved.values())
        what = f"message(s) of {queue.name} could not be moved to {name} ({done}, of all queues, were moved)"
        must_be_none(stayed, what, outcomes)
        moved[name] = moved.get(name, 0) + len(leftover.to_move)
    return moved


def _queues_paused(at: AtBroker) -> list[Call]:
    """Want every queue paused, also queues that the settings leave out: a consumer would get residue whose
    acknowledgement has yet to arrive. The pauses outlast a restart of the broker."""
    return at.needed(pause(at.view, queue, lasting=True) for queue in at.view.business.values())


QUEUES_PAUSED: Final[Wants] = ((_queues_paused, SOURCE),)
# The returned site still keeps the other site's link out if it was the survivor of an earlier failover.
LINK_ADMITTED: Final[Wants] = (
    (wants.link_admitted, SOURCE),
    (lambda at: [*wants.link_admitted(at), *link_started(at)], TARGET),
)
RESUMED_AND_CLEARED: Final[Wants] = ((wants.delivery_resumed, SOURCE), *wants.DEBTS_CLEARED)
draft_reinstate: Final = draft_of(
    TARGET,
    "its residue is let in while nothing is delivered; both directions drain",
    *(*QUEUES_PAUSED, *LINK_ADMITTED, *RESUMED_AND_CLEARED),
    limits=Rules.while_moving,
)


def _activity(views: Sequence[BrokerView]) -> str:
    done = [
        f"{queue.name}: {queue.added} added, {queue.acked} acknowledged"
        for view in views
        for queue in view.business.values()
        if queue.added or queue.acked
    ]
    return f"; since its start, by clients and by the mirror: {brief(done) or 'nothing came or went'}"


def count_residue(tools: MirrorTools, move: Move, context: StepContext, was_open: bool) -> Outcome:
    for session in tools.observer.at(move.target):
        counted = residue(session.reader(), session.read())
        # If clients were let in at the returned site, events since its start may be their work.
        tools.residue[session.pair] = replace(counted, since={}) if was_open else counted
    since = sum(len(ids) for residue in tools.residue.values() for ids in residue.since.values())
    late = f", {since} of these written since it is back" if since else ""
    residues = [*tools.residue.values()]
    return residue_outcome(
        move, context, residues, lambda held: f"{held.messages} message(s) and {held.acks} acknowledgement(s){late}"
    )


def reinstate(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        # An earlier process may have died right after it cleared the debts: queues are not paused once more.
        if all(not residue.messages and not residue.acks for residue in tools.residue.values()):
            tools.return_result.start_counting()
        return NotNeeded(f"{move.target} is reinstated already")
    if left := tools.send_calls(QUEUES_PAUSED, move, context):
        return Failed(f"could not pause {brief([call.thing for call in left])}")
    before = {view.pair: (view, _origins(tools, view)) for view in tools.observer.read_at(move.source)}
    tools.send_calls(LINK_ADMITTED, move, context)  # the wait below shows what failed
    link_ends = tools.observer.between(move.target, move.source)
    events: list[LinkDirection] = [_FromReturned(*ends, tools, context) for ends in link_ends]
    events += [_FromServing(serving, returned, tools, context) for returned, serving in link_ends]
    subject = f"of {move.target}'s residue under way"
    wait = Wait(tools, events, context, subject, counts=EVENTS, scope=ReadScope.OUTFLOW, falls_only=True)
    failed = wait.until(tools.rules.drain.poll, step.limits, stable_for=QUIET_READINGS)
    if failed is not None:
        return replace(failed, text=f"{move.target} is not reinstated: {failed.text}")
    tools.return_result.start_counting()
    for view in tools.observer.read_at(move.source):
        _compare(tools, view, *before[view.pair])
    tools.reach(RESUMED_AND_CLEARED, move, context)
    return Done(tools.return_result.text, document(tools.return_result))


def _origins(tools: MirrorTools, view: BrokerView) -> dict[str, frozenset[Origin] | None]:
    """Return each queue's origins, None where the queue is too deep to look at, or an origin is not shown."""
    chosen = selected(view, tools.observer.queues)
    shallow = [queue for queue in chosen.values() if queue.depth <= ORIGINS_UP_TO]
    reader = tools.observer.brokers[view.site][view.pair].reader()
    rows = zip(shallow, browsed(reader, view, shallow, limit=ORIGINS_UP_TO), strict=True)
    return {**dict.fromkeys(chosen), **{queue.name: listing.ids for queue, listing in rows if not listing.unnamed}}


def _compare(
    tools: MirrorTools, view: BrokerView, was: BrokerView, origins: Mapping[str, frozenset[Origin] | None]
) -> None:
    """Compare the serving broker with what it `was` before the residue was let in; no queue delivers meanwhile. New
    messages that clients sent to another broker are recovered ones. Messages that were acknowledged at the returned
    site, and did not lie at the serving site before, may have been consumed at both, unless their acknowledgements were
    applied before the loss. Acknowledgements that the returned site made only since it is back are echoes
    (`ReturnResult`). Where acknowledgements have no ids, they are counted, less the messages that they removed."""
    result, counted = tools.return_result, tools.residue.get(view.pair)
    for name, ids in _origins(tools, view).items():
        before = origins.get(name, frozenset())  # a queue that came with the residue had no messages before
        if ids is None or before is None:
            result.not_read.append(name)
        else:
            result.add_recovered(name, [(node, number) for node, number in ids - before if node != view.node])
    if counted is None:
        result.acks = None
    elif counted.acked is None:
        now, then = (sum(queue.removed for queue in at.business.values()) for at in (view, was))
        result.add_unmatched_count(max(0, counted.acks - (now - then)))
        result.acks_by_id = None
    else:
        for name, acked in counted.acked.items():
            gone, echoes = acked - (origins.get(name) or frozenset()), counted.since.get(name, frozenset())
            result.add_unmatched(name, gone - echoes)
            result.echoes += len(gone & echoes)


class _FromReturned(LinkDirection):
    def remaining(self, local: BrokerView, peer: BrokerView) -> int | None:
        super().remaining(local, peer)
        is_attached = not any(why_not_attached(view.site, view) for view in (local, peer))
        # The serving site's producers go on, and a few of its events do not delay the residue.
        backlog = peer.under_way or 0
        left = total((local.under_way, peer.link.unapplied, backlog if backlog > SMALL_OUTFLOW else 0))
        self._left = left if is_attached else None
        return self._left


class _FromServing(LinkDirection):
    """Waits for nothing in this direction, because the serving site's producers go on."""

    def remaining(self, view: BrokerView, peer: BrokerView) -> int | None:
        super().remaining(view, peer)
        self._left = 0
        return 0


def move_consumed_aside(tools: MirrorTools, move: Move, context: StepContext) -> Outcome:
    """Undo a reinstatement that has failed, once the links are kept out again: move messages aside at the serving site
    that were consumed at the returned one. A repetition does no harm."""
    undone_return = tools.undone_return
    undone_return.duplicates, undone_return.why = 0, None
    _wait_until_settled(tools, move, context)
    for view in tools.observer.read_at(move.source):
        held, why = _still_held(tools, move.target, view.pair)
        if held is None or held.consumed is None:
            # Duplicates are no more than the messages here, and no more than the acknowledgements, if those are known.
            lying = sum(max(0, queue.depth) for queue in view.business.values())
            undone_return.duplicates += lying if held is None else min(lying, held.acks)
            undone_return.why = why
            continue
        for name, count in move_aside(tools, _consumed_here(tools, view, held.consumed), context).items():
            undone_return.taken_out[name] = undone_return.taken_out.get(name, 0) + count
    return Done("as it was", document(undone_return), undone_return.findings(move))


def _wait_until_settled(tools: MirrorTools, move: Move, context: StepContext) -> None:
    """Wait until events that have arrived are applied, and events that a link was shipping lie in its outflow again."""

    def applied() -> bool:
        local, peer = (
            tools.observer.answers(tools.observer.at(site), ReadScope.OUTFLOW) for site in (move.source, move.target)
        )
        pending = any(isinstance(view, BrokerError) or view.link.unapplied != 0 for view in local)
        flows = [view.outflow for view in peer if not isinstance(view, BrokerError)]
        return not pending and not any(flow is not None and flow.delivering for flow in flows)

    within_s, poll_s = tools.timeouts.settle_s, tools.timeouts.settle_poll_s
    context.until(applied, holds=bool, within_s=within_s, poll_s=poll_s, stable_for=QUIET_READINGS)


def _still_held(tools: MirrorTools, site: str, pair: str) -> tuple[Residue | None, str]:
    """Return the returned broker's residue as read now, or, if that fails, as counted before: the residue of a closed
    broker does not grow. Return, too, the reason why the residue may not name each message."""
    session = tools.observer.brokers[site][pair]
    counted = tools.residue.get(pair)
    try:
        now = residue(session.reader(), session.read())
    except BrokerError as error:
        return counted, f"which messages were consumed at {site} could not be read: {error}"
    too_deep = f"which were consumed at {site} is not known: {now.messages + now.acks} events are too many to look at"
    counted_by_id = now.consumed is None and counted is not None and counted.consumed is not None
    return counted if counted_by_id else now, too_deep


def _consumed_here(tools: MirrorTools, view: BrokerView, consumed: Mapping[str, frozenset[Origin]]) -> list[LeftOver]:
    """Return the messages consumed at the returned site that lie in `view`; a queue too deep is only counted."""
    done, undone_return = [], tools.undone_return
    for name in [name for name in consumed if name in view.business and view.business[name].depth]:
        queue = view.business[name]
        if queue.depth > RESIDUE_UP_TO:
            undone_return.duplicates += min(queue.depth, len(consumed[name]))
            undone_return.why = f"{name} is too deep to look at each message"
            continue
        local = _messages(tools, view, name)
        lying_here = {origin: number for origin, number in local.numbers.items() if origin in consumed[name]}
        if unnamed := min(local.unnamed, len(consumed[name]) - len(lying_here)):
            undone_return.duplicates += unnamed
            undone_return.why = f"the broker does not show where messages of {name} come from"
        done.append(LeftOver(view, name, lying_here))
    return done


UNDO_REINSTATE: Final = Undo(wants.RETURN_AS_BEFORE, by=partial(as_before, once_shut=move_consumed_aside))
PROCEDURE: Final[Procedure[MirrorSnapshot, MirrorTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up, UNDO_LINK),
    "drain": VerbHandler(draft_drain, drain, UNDO_LINK),
    "restart-link": VerbHandler(draft_restart, restart_link, UNDO_LINK),
    # These verbs reinstate a lost site.
    "residue": fence.counting(count_residue, _activity),
    "reinstate": VerbHandler(draft_reinstate, reinstate, UNDO_REINSTATE),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}
WHETHER_THE_SAME: Final = (
    f"whether messages are the same, and not only as many: in queues deeper than {ORIGINS_UP_TO}, beside delayed "
    "messages, and where a broker does not show a message's origin"
)
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, MirrorTools, cannot_tell=(WHETHER_THE_SAME,))
