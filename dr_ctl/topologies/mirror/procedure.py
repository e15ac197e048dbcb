"""The handlers of runbook verbs for a mirrored installation; the table at the end names them. They wait for links,
reinstate a lost site, and then move messages aside that only that site has.

In a reinstatement `move.source` serves, and `move.target` is the returned site. Its residue is what it had not shipped
when it was lost: messages, and acknowledgements of messages that clients consumed there. Both are called events.
Once both directions have drained, a message that only the returned site has is in no outflow, and the serving site has
no copy whose acknowledgement would remove it: clients would get it as soon as the returned site serves. A person has to
decide: dr-ctl moves the message to a queue of its own there, and never removes it.
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
from dr_ctl.topologies.common.reasons import is_reinstated
from dr_ctl.topologies.common.recipe import Procedure, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Counts, Rules, selected
from dr_ctl.topologies.common.session import ReadScope
from dr_ctl.topologies.common.tools import must_be_none
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import fence
from dr_ctl.topologies.common.verbs.fence import residue_outcome
from dr_ctl.topologies.common.verbs.proving import QUIET_READINGS
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, with_pauses_lifted
from dr_ctl.topologies.common.verbs.undoing import undo_step
from dr_ctl.topologies.common.view import Residue
from dr_ctl.topologies.common.waiting import MAX_REPAIRS, SMALL_OUTFLOW, Direction, Wait, attached
from dr_ctl.topologies.common.wants import SOURCE, TARGET, AtBroker, Wants, draft_of, links_as_before
from dr_ctl.topologies.mirror.checks import CHECKS
from dr_ctl.topologies.mirror.reading import READS, RESIDUE_UP_TO, BrowsedQueue, Session, browse, read_residue
from dr_ctl.topologies.mirror.tools import MirrorTools
from dr_ctl.topologies.mirror.view import ORIGINS_UP_TO, BrokerView, MirrorSnapshot, unexplained

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"
NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
UNDER_WAY: Final = "events under way between the sites"
EVENTS: Final = " event(s)"
WAITS: Final = "acknowledgements wait to be applied"
STALE_COUNT: Final = (
    "if that number never falls, PendingMirrorAcks of the active node still includes acknowledgements from an earlier "
    "period in which it was active: let another node take over, then restart this one"
)


def _switch_link(view: BrokerView, goal: Goal, when: str | None = None, at_most: int = 1) -> list[Call]:
    if (link := view.broker_connection) is None:
        return []
    operation, action = (START_LINK, "start") if goal is Goal.LINK_UP else (STOP_LINK, "stop")
    request = view.requests.of_server(operation, link.name)
    return [call(view, goal, link.name, request, f"{action} link {link.name}", when, at_most)]


def restart_calls(view: BrokerView) -> list[Call]:
    """Stop and start a link, because a broker gives up a handshake that hangs only after a minute. Both calls are
    conditional: a link that the plan finds attached may hang later."""
    goals = (Goal.LINK_DOWN, Goal.LINK_UP)
    return [call for goal in goals for call in _switch_link(view, goal, NOT_ATTACHED, MAX_REPAIRS)]


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
# An attached link is restarted too, because a link that hangs may report that it is attached.
draft_restart: Final = draft_of(
    SOURCE,
    "stop and start the link of {source}, until it is attached; clients stay where they are",
    (lambda at: at.needed(_switch_link(at.view, Goal.LINK_DOWN)), SOURCE),
    (link_started, SOURCE),
    limits=lambda rules, _, move: {"within": move.spec.timeout_s or rules.timeouts.link_attach_s},
)


class LinkDirection(Direction[BrokerView]):
    """Counts one direction's events that the broker has to ship or is shipping (`under_way`), and acknowledgements from
    the peer that this broker has not applied. Restarts a link that stays detached, or ships nothing, although its peer
    answers and admits links."""

    def __init__(self, local: Session, peer: Session, tools: MirrorTools, context: StepContext, small: int = 0) -> None:
        super().__init__(local, peer)
        self._tools, self._context, self._small = tools, context, small
        self._shipped: int | None = None
        self._remaining: int | None = None
        self._progress_at = context.monotonic()
        self._restart_at: float | None = None  # a detached link is not restarted before this time
        self._restarted = 0

    def remaining(self, view: BrokerView, _peer: BrokerView) -> int | None:
        shipped = view.outflow.added - view.outflow.depth if view.outflow is not None else None
        if shipped != self._shipped or not view.link.to_ship or not view.link.attached:
            self._shipped, self._progress_at = shipped, self._context.monotonic()
        self._remaining = total((view.under_way, view.link.unapplied))
        return self._remaining

    def reasons(self, view: BrokerView, peer: BrokerView) -> list[str]:
        site, idle_s = self.local.site, self._context.monotonic() - self._progress_at
        if (why := why_not_attached(site, view)) is not None:
            return [why]
        if self._remaining is not None and self._remaining <= self._small:
            return []
        if view.link.unapplied and not view.link.to_ship and not peer.link.to_ship:
            return [f"{WAITS} at {site} ({view.link.unapplied}){f'; {STALE_COUNT}' if view.nodes else ''}"]
        if idle_s > self._tools.waits.idle_s:
            return [f"the peer accepts nothing from {site} for {idle_s:.0f} s: its link hangs"]
        return []

    def repair_calls(self, view: BrokerView, peer: BrokerView | BrokerError) -> list[Call]:
        now, between_s = self._context.monotonic(), self._tools.timeouts.link_between_s * 2**self._restarted
        ships_nothing = now - self._progress_at > self._tools.waits.hung_s
        hangs = any(view.link.links_started.values()) and (ships_nothing or not view.link.attached)
        if not hangs or isinstance(peer, BrokerError) or not all(listener.started for listener in peer.link.listeners):
            self._restart_at = None
            return []
        self._restart_at = now + self._tools.timeouts.link_lost_s if self._restart_at is None else self._restart_at
        if not ships_nothing and now < self._restart_at:
            return []
        self._restart_at, self._progress_at = now + between_s, now
        self._restarted += 1
        state = "ships nothing" if ships_nothing else "is not attached"
        self.repairing = f"the link {state} although the peer answers: restarting it"
        # Stop and start travel in one request, so that nothing in between can leave the link stopped.
        return restart_calls(self.local.last_view())


def why_not_attached(name: str, view: BrokerView) -> str | None:
    if view.link.missing or view.link.attached:
        return None
    return f"the link of {name} is not {'attached' if any(view.link.links_started.values()) else 'started'}"


def _wait_for_both(tools: MirrorTools, move: Move, context: StepContext, small: int = 0) -> Wait[BrokerView]:
    link_ends = [ends for local, peer in tools.observer.link_ends(move) for ends in ((local, peer), (peer, local))]
    events = [LinkDirection(*ends, tools, context, small) for ends in link_ends]
    return Wait(tools, events, context, UNDER_WAY, small, counts=EVENTS, scope=ReadScope.OUTFLOW)


def catch_up(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    wait = _wait_for_both(tools, move, context, SMALL_OUTFLOW)
    failed = wait.until(tools.timeouts.link_poll_s, step.limits, stable_for=1)
    if failed is not None and (wait.why or wait.first is None or wait.last is None):
        return Failed(f"not caught up: {brief(wait.why) or failed.text}")
    under_way, first = wait.last or 0, wait.first or 0
    if failed is not None and under_way >= first:
        return Failed(f"the outflow grows while clients work: {first} event(s), then {under_way}")
    return Done(f"{under_way} event(s) under way", {"under_way": under_way, "restarts": wait.repairs})


def drain(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses, and at the same time wait until nothing is under way in either direction."""

    def drained() -> Outcome:
        wait = _wait_for_both(tools, move, context)
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
        answers = zip(brokers, tools.observer.answers(brokers, ReadScope.OUTFLOW), strict=True)
        reasons = {
            name: f"{name} does not answer: {view}" if isinstance(view, BrokerError) else why_not_attached(name, view)
            for name, view in ((f"{session.site}/{session.pair}", view) for session, view in answers)
        }
        return {name: reason for name, reason in reasons.items() if reason is not None}

    return attached(tools, step, move, context, "the link", detached)


UNDO_LINK: Final = Undo(source=(links_as_before,), target=(links_as_before,))


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The messages of one queue of `view` that are to be moved aside (`to_move`), each with its number at this broker,
    and the messages that only the serving site has, where they stay."""

    view: BrokerView
    queue: str
    to_move: Mapping[Origin, int]
    only_at_serving: frozenset[Origin] = frozenset()


def _leftovers_aside(at: AtBroker) -> Iterator[Call]:
    """Want messages in a queue of dr-ctl's own that only the returned site has after everything has arrived."""
    view, name = at.view, quarantine_queue(at.view.site, "…")
    when = f"messages are only at {view.site} for longer than shipping can take"
    created, moved = (view.requests.of_server(operation, name) for operation in (CREATE_QUEUE, MOVE))
    yield call(view, Goal.CREATE, name, created, f"create {name}", when, len(view.business))
    yield call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, ORIGINS_UP_TO)


draft_reconcile: Final = draft_of(
    SOURCE, "count messages recovered, duplicated, or left at one site", (_leftovers_aside, TARGET)
)


def reconcile(tools: MirrorTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Report queues that differ for longer than shipping takes; move messages aside that only the returned site has."""
    first: dict[tuple[str, str], Leftovers] = {}

    def read() -> tuple[MirrorSnapshot, dict[tuple[str, str], Counts]]:
        snapshot = tools.observer.observe()
        differences = {
            (view.pair, difference.queue): difference
            for view, peer in snapshot.both(move.source, move.target)
            for difference in unexplained(view, peer, tools.observer.queues, snapshot.traffic.get(view.pair, {}))
        }
        if differences and not first:
            first.update(_find_leftovers(tools, snapshot, differences, move))
        return snapshot, differences

    within_s, poll_s = tools.waits.left_over_s, tools.rules.drain.poll
    snapshot, differences = context.until(read, holds=lambda now: not now[1], within_s=within_s, poll_s=poll_s).reading
    # Clients work meanwhile: a message is left over only if the first reading also found it at one site only.
    leftovers = [
        replace(
            leftover,
            to_move={origin: n for origin, n in leftover.to_move.items() if origin in first[key].to_move},
            only_at_serving=leftover.only_at_serving & first[key].only_at_serving,
        )
        for key, leftover in (_find_leftovers(tools, snapshot, differences, move) if differences else {}).items()
        if key in first
    ]
    differing = [finding.text(move.source, move.target) for finding in differences.values()]
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
    leftover_data: dict[str, Json] = {"left_over": [*differing], "left_over_ids": ids, "quarantined": dict(moved)}
    return Done(text, {**document(tools.return_result), **leftover_data}, tuple(findings))


def _find_leftovers(
    tools: MirrorTools, snapshot: MirrorSnapshot, differing: Iterable[tuple[str, str]], move: Move
) -> dict[tuple[str, str], Leftovers]:
    """Find the messages that are at one site only, in queues that are shallow enough to browse."""
    leftovers = {}
    for pair, name in differing:
        views = [view for site in (move.source, move.target) if (view := snapshot.view(site, pair)) is not None]
        queues = [view.business.get(name) for view in views]
        # A browse does not show delayed messages, or those that a client holds, which would seem to be missing.
        unlisted = any(queue is not None and (queue.delivering or queue.scheduled) for queue in queues)
        if len(views) == 2 and not unlisted and all(q is None or q.depth <= ORIGINS_UP_TO for q in queues):  # noqa: PLR2004
            local, peer = (_messages(tools, view, name) for view in views)
            # A message whose origin is not shown may be a copy of any other, so none is known to be at one site only.
            if not local.unnamed and not peer.unnamed:
                to_move = {origin: number for origin, number in peer.numbers.items() if origin not in local.ids}
                leftovers[pair, name] = Leftovers(views[1], name, to_move, local.ids - peer.ids)
    return leftovers


def _messages(tools: MirrorTools, view: BrokerView, name: str) -> BrowsedQueue:
    reader = tools.observer.brokers[view.site][view.pair].reader()
    queue = view.business.get(name)  # an empty queue may have been removed by its broker
    return browse(reader, view, [queue], limit=RESIDUE_UP_TO)[0] if queue is not None else BrowsedQueue({})


def move_aside(tools: MirrorTools, leftovers: Iterable[Leftovers], context: StepContext) -> dict[str, int]:
    moved: dict[str, int] = {}
    for leftover in (leftover for leftover in leftovers if leftover.to_move):
        view, queue = leftover.view, leftover.view.business[leftover.queue]
        name = quarantine_queue(view.site, queue.name)
        calls = [call(view, Goal.CREATE, name, view.requests.create(name, ""), f"create {name}")]
        for origin, number in sorted(leftover.to_move.items()):
            summary = f"move {identity(origin)} from {queue.name} to {name}"
            calls.append(call(view, Goal.MOVE, queue.name, request(queue.bean, MOVE, (number, name)), summary))
        outcomes = tools.change(calls, context)
        remaining = _messages(tools, tools.observer.brokers[view.site][view.pair].read(), queue.name)
        not_moved = leftover.to_move.keys() & remaining.ids
        count = len(leftover.to_move) - len(not_moved) + sum(moved.values())
        text = f"message(s) of {queue.name} could not be moved to {name} ({count}, of all queues, were moved)"
        must_be_none(not_moved, text, outcomes)
        moved[name] = moved.get(name, 0) + len(leftover.to_move)
    return moved


def _queues_paused(at: AtBroker) -> list[Call]:
    """Want every queue paused, also queues that the settings leave out: a consumer would get residue whose
    acknowledgement has not arrived yet. The pauses outlast a restart of the broker."""
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


def _activity_text(views: Sequence[BrokerView]) -> str:
    counts = [
        f"{queue.name}: {queue.added} added, {queue.acked} acknowledged"
        for view in views
        for queue in view.business.values()
        if queue.added or queue.acked
    ]
    return f"; since its start, by clients and by the mirror: {brief(counts) or 'no message added or acknowledged'}"


def count_residue(tools: MirrorTools, move: Move, context: StepContext, was_open: bool) -> Outcome:
    for session in tools.observer.at(move.target):
        counted = read_residue(session.reader(), session.read())
        # If clients were let in at the returned site, events since its start may be their work.
        tools.residue[session.pair] = replace(counted, since={}) if was_open else counted
    since = sum(len(ids) for residue in tools.residue.values() for ids in residue.since.values())
    suffix = f", {since} of these written since its return" if since else ""
    residues = [*tools.residue.values()]
    return residue_outcome(
        move, context, residues, lambda held: f"{held.messages} message(s) and {held.acks} acknowledgement(s){suffix}"
    )


def reinstate(tools: MirrorTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if is_reinstated(tools.observer.observe(), move):
        # An earlier process may have died right after it cleared the debts, so queues are not paused again.
        if all(not residue.messages and not residue.acks for residue in tools.residue.values()):
            tools.return_result.start_counting()
        return NotNeeded(f"{move.target} is reinstated already")
    if failed_calls := tools.send_calls(QUEUES_PAUSED, move, context):
        return Failed(f"could not pause {brief([call.resource for call in failed_calls])}")
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
    """Return each queue's origins, or None if the queue is too deep to browse, or an origin is not shown."""
    chosen = selected(view, tools.observer.queues)
    shallow = [queue for queue in chosen.values() if queue.depth <= ORIGINS_UP_TO]
    reader = tools.observer.brokers[view.site][view.pair].reader()
    rows = zip(shallow, browse(reader, view, shallow, limit=ORIGINS_UP_TO), strict=True)
    return {**dict.fromkeys(chosen), **{queue.name: listing.ids for queue, listing in rows if not listing.unnamed}}


def _compare(
    tools: MirrorTools, view: BrokerView, earlier: BrokerView, origins: Mapping[str, frozenset[Origin] | None]
) -> None:
    """Compare the serving broker with its view and `origins` before the residue was let in; no queue delivers
    meanwhile. New messages that clients sent to another broker are recovered. Messages that were acknowledged at the
    returned site, and were not at the serving site before, may have been consumed at both, unless their
    acknowledgements were applied before the loss. Acknowledgements that the returned site wrote only since its return
    are echoes (`ReturnResult`). Acknowledgements without ids are counted, less the messages that they removed."""
    result, counted = tools.return_result, tools.residue.get(view.pair)
    for name, ids in _origins(tools, view).items():
        before = origins.get(name, frozenset())  # a queue that was created by the residue had no messages before
        if ids is None or before is None:
            result.not_read.append(name)
        else:
            result.add_recovered(name, [(node, number) for node, number in ids - before if node != view.node])
    if counted is None:
        result.acks = None
    elif counted.acked is None:
        now, then = (sum(queue.removed for queue in broker.business.values()) for broker in (view, earlier))
        result.add_unmatched_count(max(0, counted.acks - (now - then)))
        result.acks_by_id = None
    else:
        for name, acked in counted.acked.items():
            unmatched, echoes = acked - (origins.get(name) or frozenset()), counted.since.get(name, frozenset())
            result.add_unmatched(name, unmatched - echoes)
            result.echoes += len(unmatched & echoes)


class _FromReturned(LinkDirection):
    def remaining(self, local: BrokerView, peer: BrokerView) -> int | None:
        super().remaining(local, peer)
        is_attached = not any(why_not_attached(view.site, view) for view in (local, peer))
        # The serving site's producers work on, and a few of its events do not delay the residue.
        backlog = peer.under_way or 0
        left = total((local.under_way, peer.link.unapplied, backlog if backlog > SMALL_OUTFLOW else 0))
        self._remaining = left if is_attached else None
        return self._remaining


class _FromServing(LinkDirection):
    """Waits for nothing in this direction, because the serving site's producers work on."""

    def remaining(self, view: BrokerView, peer: BrokerView) -> int | None:
        super().remaining(view, peer)
        self._remaining = 0
        return 0


def move_consumed_aside(tools: MirrorTools, move: Move, context: StepContext) -> Outcome:
    """Undo a failed reinstatement, after the links are kept out again: at the serving site, move messages aside that
    were consumed at the returned site. It may be repeated."""
    undone_return = tools.undone_return
    undone_return.duplicates, undone_return.why = 0, None
    _wait_until_settled(tools, move, context)
    for view in tools.observer.read_at(move.source):
        residue, why = _read_residue_again(tools, move.target, view.pair)
        if residue is None or residue.consumed is None:
            # Duplicates are no more than the messages here, and no more than the acknowledgements, if those are known.
            message_count = sum(max(0, queue.depth) for queue in view.business.values())
            undone_return.duplicates += message_count if residue is None else min(message_count, residue.acks)
            undone_return.why = why
            continue
        for name, count in move_aside(tools, _find_consumed(tools, view, residue.consumed), context).items():
            undone_return.taken_out[name] = undone_return.taken_out.get(name, 0) + count
    return Done("as it was", document(undone_return), undone_return.findings(move))


def _wait_until_settled(tools: MirrorTools, move: Move, context: StepContext) -> None:
    """Wait until events that have arrived are applied, and events that a link was shipping are in its outflow again."""

    def applied() -> bool:
        local, peer = (
            tools.observer.answers(tools.observer.at(site), ReadScope.OUTFLOW) for site in (move.source, move.target)
        )
        pending = any(isinstance(view, BrokerError) or view.link.unapplied != 0 for view in local)
        flows = [view.outflow for view in peer if not isinstance(view, BrokerError)]
        return not pending and not any(flow is not None and flow.delivering for flow in flows)

    within_s, poll_s = tools.timeouts.settle_s, tools.timeouts.settle_poll_s
    context.until(applied, holds=bool, within_s=within_s, poll_s=poll_s, stable_for=QUIET_READINGS)


def _read_residue_again(tools: MirrorTools, site: str, pair: str) -> tuple[Residue | None, str]:
    """Return the returned broker's residue as read now, or, if that fails, as counted before: the residue of a closed
    broker does not grow. Also return the reason why the residue may not have each message's id."""
    session = tools.observer.brokers[site][pair]
    counted = tools.residue.get(pair)
    try:
        latest = read_residue(session.reader(), session.read())
    except BrokerError as error:
        return counted, f"which messages were consumed at {site} could not be read: {error}"
    too_many = f"which were consumed at {site} is unknown: {latest.messages + latest.acks} events are too many"
    counted_by_id = latest.consumed is None and counted is not None and counted.consumed is not None
    return counted if counted_by_id else latest, too_many


def _find_consumed(tools: MirrorTools, view: BrokerView, consumed: Mapping[str, frozenset[Origin]]) -> list[Leftovers]:
    """Return the messages of `view` that were consumed at the returned site; those of a deep queue are only counted."""
    leftovers, undone_return = [], tools.undone_return
    for name in [name for name in consumed if name in view.business and view.business[name].depth]:
        queue = view.business[name]
        if queue.depth > RESIDUE_UP_TO:
            undone_return.duplicates += min(queue.depth, len(consumed[name]))
            undone_return.why = f"{name} is too deep to browse"
            continue
        local = _messages(tools, view, name)
        to_move = {origin: number for origin, number in local.numbers.items() if origin in consumed[name]}
        if unnamed := min(local.unnamed, len(consumed[name]) - len(to_move)):
            undone_return.duplicates += unnamed
            undone_return.why = f"the broker does not show the origin of messages of {name}"
        leftovers.append(Leftovers(view, name, to_move))
    return leftovers


UNDO_REINSTATE: Final = Undo(wants.RETURN_AS_BEFORE, by=partial(undo_step, after_closing=move_consumed_aside))
PROCEDURE: Final[Procedure[MirrorSnapshot, MirrorTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up, UNDO_LINK),
    "drain": VerbHandler(draft_drain, drain, UNDO_LINK),
    "restart-link": VerbHandler(draft_restart, restart_link, UNDO_LINK),
    # These verbs reinstate a lost site.
    "residue": fence.counting_verb(count_residue, _activity_text),
    "reinstate": VerbHandler(draft_reinstate, reinstate, UNDO_REINSTATE),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}
NOT_COMPARED: Final = (
    f"whether messages are the same, and not only as many: in queues deeper than {ORIGINS_UP_TO}, beside delayed "
    "messages, and where a broker does not show a message's origin"
)
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, MirrorTools, unreadable=(NOT_COMPARED,))
