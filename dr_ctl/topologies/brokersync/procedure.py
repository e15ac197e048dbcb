"""The handlers of runbook verbs for a BrokerSync installation; the table at the end names them.

Copies of messages that the other site has consumed are found by id, removed only with evidence, and then listed again.
The messages of a returned site are compared by id before they are shipped. A person decides about copies without
evidence: they are moved aside within the broker, or put back, and none is lost. `move.source` is the site that a move
leaves, the one that serves in a reinstatement, and the one whose copies are kept aside or put back. Each function that
reads a broker raises `BrokerError`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dr_ctl.core.document import document, key
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, brief
from dr_ctl.core.notation import matches
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia.client import READ_S, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync import checks
from dr_ctl.topologies.brokersync.checks import CHECKS, STOMP_ABOVE, is_reinstated, not_compared
from dr_ctl.topologies.brokersync.reading import READS, LinkEnds, Observer, Session, agent_memory, prove_consumed
from dr_ctl.topologies.brokersync.sync.pair import cleaner
from dr_ctl.topologies.brokersync.sync.queue import DELETED, SHOWN
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView, SyncSnapshot
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.classic.beans import COUNT, MOVE_MATCHING, Count
from dr_ctl.topologies.classic.broker import both_counts, lacking
from dr_ctl.topologies.classic.ids import MAX_IDS, Listed, move_calls, plan_removal, removal_calls, shown
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import call, quarantine_queue, request, switch_part
from dr_ctl.topologies.common.consumed import Consumed, IncompleteListing, decided
from dr_ctl.topologies.common.gate import Gate, PairReading, accepting, refused
from dr_ctl.topologies.common.recipe import Procedure, Recipe, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Counts, Rules, not_accepted
from dr_ctl.topologies.common.tools import Sender, StepFailed, Tools, must_be_none
from dr_ctl.topologies.common.topology import COMMON, PairTopology, TopologyDefinition
from dr_ctl.topologies.common.verbs import activate, fence, proving
from dr_ctl.topologies.common.verbs.fence import residue_outcome
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, with_pauses_lifted
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.common.waiting import MAX_REPAIRS, SMALL_OUTFLOW, Direction, Wait, attached
from dr_ctl.topologies.common.wants import DEBTS_CLEARED, SOURCE, TARGET, AtBroker, draft_of
from dr_ctl.topologies.topology import Cleaner, Unproven

ORIGINAL_DESTINATION: Final = "original-destination"


def list_queue(session: Session, view: BrokerView, name: str, *, tries: int = 1) -> Listed:
    """List all messages of a queue, in at most `tries` attempts. At a closed site, copies may arrive meanwhile."""
    queue, grows = view.by_name.get(name), not view.open and not view.prepared
    if queue is None or queue.depth <= STOMP_ABOVE or (listener := session.agents_listener()) is None:
        return ids.listed(session, queue, tries=tries, grows=grows)
    before = _read_count(session, queue)
    # A browse raises the counters like a client. It is recorded before: if this process dies, the counters prove less.
    session.run_notes.record(view.start, SHOWN, queue.name, before.depth)
    origins: dict[str, str | None] = {}
    for frame in ids.browsed(listener, queue.name, client=AGENT):
        destination = frame.headers.get(ORIGINAL_DESTINATION)
        origins[frame.headers["message-id"]] = destination.removeprefix("/queue/") if destination is not None else None
    session.run_notes.record(view.start, SHOWN, queue.name, len(origins) - before.depth)
    return ids.complete(session.site, queue.name, origins, before, _read_count(session, queue), grows=grows)


def _read_count(session: Session, queue: Queue) -> Count:
    answer = session.reader().read([Read(queue.bean, COUNT)])[0]
    return Count.of(Fields(queue.name, answer.value()))


def _counters(view: BrokerView, queue: str, removed: int = 0) -> tuple[str, int, int]:
    row = view.by_name.get(queue)
    return (view.start, row.added, row.removed + removed) if row is not None else (view.start, 0, 0)


def find_not_shipped(session: Session, view: BrokerView, queue: str, listing: Listed) -> frozenset[str]:
    """Find the messages that only this broker ever had: they are not shipped yet, or their queue has no copies."""
    if queue in view.copy_queues:
        copy_queue = view.copy_queues[queue]
        return list_queue(session, view, copy_queue.name).complete.ids if copy_queue.depth else frozenset()
    arrival_queue = view.arrival_queue(queue)  # the original destination of a copy is the queue by which it arrived
    return frozenset(id_ for id_, address in listing.arrived_by.items() if address != arrival_queue)


def copies_only_at_standby(
    ends: tuple[Session, Session], views: tuple[BrokerView, BrokerView], queue: str
) -> tuple[frozenset[str], Consumed | str]:
    """Find the copies of a queue that only the standby has, and the proof that they were consumed, or the reason why
    there is none. `ends` begins with the serving site, which is listed last, because clients work there."""
    (serving, standby), (view, peer) = ends, views
    at_standby = list_queue(standby, peer, queue, tries=ids.TRIES)
    copies = at_standby.complete.ids - find_not_shipped(standby, peer, queue, at_standby)
    listing = list_queue(serving, view, queue, tries=ids.TRIES).complete
    return copies - listing.ids, prove_consumed(view, queue, copies, listing)


def list_at_both(observer: Observer, views: Sequence[BrokerView], queue: str) -> list[Listed]:
    """List a queue at both sites at the same time, while no client works."""
    by_site = {view.site: view for view in views}
    ends = [observer.brokers[view.site][view.pair] for view in views]
    return observer.ask_all(lambda session: list_queue(session, by_site[session.site], queue), ends)


class SyncGate(Gate[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, rules: Rules) -> None:
        self._rules = rules
        # The counters of each queue that a listing by id has shown to be the same at both sites. Such a queue is not
        # listed again before a counter moves.
        self._identical: dict[tuple[str, str], object] = {}
        super().__init__(observer, rules.drain.poll)

    def record_identical(self, source: BrokerView, target: BrokerView, queue: str, removed: int) -> None:
        """Record a queue that is the same at both sites. The views are from before its listing; after it, `removed`
        copies were removed at the target."""
        self._identical[source.pair, queue] = _counters(source, queue), _counters(target, queue, removed)

    def differing(self, now: PairReading[BrokerView], move: Move) -> list[str]:
        wrong = not_accepted(both_counts(now.source, now.target, self.observer.queues), move)
        return [counted.text(move.source, move.target) for counted in wrong]

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        depths: dict[str, Json] = {}
        compared, findings = 0, list[Finding]()
        deep = checks.find_too_deep(self._rules, view, peer, move)
        for counted in both_counts(view, peer, self.observer.queues):
            if counted.source:
                depths[counted.queue] = counted.source
            if counted.difference or not counted.source:
                continue
            counters = _counters(view, counted.queue), _counters(peer, counted.queue)
            if self._identical.get((view.pair, counted.queue)) != counters:
                if counted.queue in deep:
                    findings.append(not_compared(counted, view.site, peer.site))
                    continue
                at_source, at_target = (
                    listing.complete.ids for listing in list_at_both(self.observer, (view, peer), counted.queue)
                )
                if at_source != at_target:
                    ids = {f"only at {view.site}": at_source - at_target, f"only at {peer.site}": at_target - at_source}
                    sizes = ", ".join(f"{len(messages)} {place}" for place, messages in ids.items())
                    case, queue = "DR-PARITY-004.equal_counts", counted.queue
                    return refused(case, {queue: ids}, queue=queue, counts=sizes)
            compared += counted.source
        return Done("the gate holds", {"ids_compared": compared, "depths": depths}, tuple(findings))


@dataclass
class ReturnResult:
    """The messages of the returned site in a reinstatement, by queue. `recovered` messages were shipped late.
    `consumed_before` messages had left their queue there before they were shipped, and are kept aside.
    `consumed_since` messages were still there, had been consumed at the other site since, and were removed.
    `duplicates` counts the others, without evidence that they were consumed."""

    recovered: dict[str, int] = field(default_factory=dict, metadata=key(of="recovered_in_all"))
    consumed_before: dict[str, int] = field(default_factory=dict, metadata=key("consumed_before_the_loss"))
    consumed_since: dict[str, int] = field(default_factory=dict, metadata=key("consumed_since"))
    duplicates: dict[str, int] = field(default_factory=dict, metadata=key("possible_duplicates"))

    @property
    def recovered_in_all(self) -> int:
        return sum(self.recovered.values())

    @property
    def text(self) -> str:
        all_counts = (self.recovered, self.consumed_before, self.consumed_since, self.duplicates)
        recovered, consumed_before, consumed_since, duplicates = (sum(counts.values()) for counts in all_counts)
        text = (
            f"{recovered} message(s) recovered; not delivered again: {consumed_before} that had left their queue there "
            f"before the loss, {consumed_since} that were consumed since"
        )
        return f"{text}; {duplicates} may come as duplicates" if duplicates else text


class SyncTools(Tools[BrokerView]):
    observer: Observer
    gate: SyncGate

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, SyncGate(observer, recipe.rules))
        self.return_result = ReturnResult()
        self.link_connects_s = self.timeouts.link_attach_s


NOT_CONNECTED: Final = "it is not connected"
UNEXPLAINED: Final = "they were consumed at the other site before, or nothing explains why only this site has them"
CONSUMED: Final = "copies of consumed messages are there"
ATTACH_S: Final = 30.0  # a network connector that lost its peer tries again after up to half a minute
UNDER_WAY: Final = "copies under way between the sites"


def _switch_calls(view: BrokerView, goal: Goal, when: str | None = None, at_most: int = 1) -> list[Call]:
    if view.network is None:
        return []
    summary = f"{'start' if goal is Goal.LINK_UP else 'stop'} network connector"
    return [switch_part(view, goal, view.network, summary, when, at_most)]


def reconnect_calls(view: BrokerView) -> list[Call]:
    """Restart a connector that is not connected: it tries again at once, instead of within half a minute."""
    goals = (Goal.LINK_DOWN, Goal.LINK_UP)
    return [call for goal in goals for call in _switch_calls(view, goal, NOT_CONNECTED, MAX_REPAIRS)]


def draft_move(view: BrokerView, queue: Queue, when: str | None = UNEXPLAINED, to: str | None = None) -> Call:
    name = to or quarantine_queue(view.site, queue.name)
    move = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, move, f"move them from {queue.name} to {name}", when, MAX_IDS)


draft_catch_up: Final = draft_of(
    SOURCE,
    "{serving_prefix}the network connector connected, the copy queues small",
    (lambda at: reconnect_calls(at.view), SOURCE),
    limits=Rules.catching_up,
)
_draft_shipping: Final = draft_of(
    TARGET,
    "all copies shipped; copies of consumed messages removed; pauses lifted meanwhile",
    *LIFTED,
    (lambda at: reconnect_calls(at.view), SOURCE),
    limits=Rules.draining,
)


def draft_drain(rules: Rules, step: RunbookStep, snapshot: SyncSnapshot, move: Move) -> StepPlan:
    """Also plan the removal of consumed messages by id, which needs no undo, whichever site serves afterwards."""
    shipping = _draft_shipping(rules, step, snapshot, move)
    removals = (
        plan_removal(peer, peer.by_name[name], CONSUMED)
        for view, peer in snapshot.both(move.source, move.target)
        for name in view.copy_queues
        if name in peer.by_name
    )
    return replace(shipping, calls=(*shipping.calls, *removals))


# A connected connector is restarted too: a connector that hangs may report that it is connected.
draft_restart: Final = draft_of(
    SOURCE,
    "stop and start the network connector of {source}, until it is connected; clients stay where they are",
    (lambda at: _switch_calls(at.view, Goal.LINK_DOWN), SOURCE),
    (lambda at: _switch_calls(at.view, Goal.LINK_UP), SOURCE),
    limits=lambda _, __, move: {"within": move.spec.timeout_s or ATTACH_S},
)


@dataclass(frozen=True, slots=True)
class Difference:
    """The ids that are `missing` at the target, and the copies that only the target has: those that were provably
    `consumed` may be removed; the `unproven` others stay, for the reason `why`."""

    counted: Counts
    missing: frozenset[str]
    consumed: Consumed | None
    unproven: frozenset[str]
    why: str


def _compare_queue(
    tools: SyncTools, source: BrokerView, target: BrokerView, ends: LinkEnds, counted: Counts
) -> Difference:
    queue = counted.queue
    view, peer = list_at_both(tools.observer, (source, target), queue)
    copies = peer.complete.ids - find_not_shipped(ends[1], target, queue, peer)
    missing, only_at_target = view.complete.ids - peer.complete.ids, peer.complete.ids - view.complete.ids
    consumed = prove_consumed(source, queue, copies, view.complete)
    if not isinstance(consumed, Consumed):
        return Difference(counted, missing, None, only_at_target, consumed)
    unproven = only_at_target - consumed.ids
    why = f"{len(unproven)} were sent at {target.site}, and never shipped"
    return Difference(counted, missing, consumed if consumed.ids else None, unproven, why)


def _remove_at_pair(
    tools: SyncTools, ends: LinkEnds, move: Move, context: StepContext, removed: dict[str, int]
) -> list[Finding]:
    """Remove the target's copies of messages that were consumed at the fenced source, as far as its counters prove
    that, and count them in `removed`. Return findings about the copies that are left. No copy is removed if a queue
    lacks a message at the target, or has copies without evidence there."""
    source, target = (session.read() for session in ends)
    findings: list[Finding] = []
    differences: list[Difference] = []
    deep, accepted = checks.find_too_deep(tools.rules, source, target, move), move.spec.accept_difference
    for counted in both_counts(source, target, tools.observer.queues):
        if counted.queue not in source.copy_queues or not (counted.source or counted.target):
            continue
        if counted.queue not in deep:
            differences.append(_compare_queue(tools, source, target, ends, counted))
        elif counted.difference and counted.size != accepted.get(
            counted.queue
        ):  # the gate compares queues of equal counts
            text = f"{counted.text(source.site, target.site)}: too many to compare by id in time"
            raise StepFailed(Failed(text, findings=(not_compared(counted, source.site, target.site),)))
    for difference in differences:
        queue, missing, unproven = difference.counted.queue, len(difference.missing), len(difference.unproven)
        if missing and missing != accepted.get(queue):
            by_queue, given = {queue: {f"only at {source.site}": difference.missing}}, accepting({queue: missing})
            case = "DR-PARITY-004.one_queue_by_id"
            failed = refused(case, by_queue, count=missing, queue=queue, source=source, target=target, accepting=given)
            raise StepFailed(failed)
        if unproven and unproven != accepted.get(queue):
            finding = checks.of_unproven_copies(difference.counted, unproven, difference.why, source, target)
            raise StepFailed(Failed(finding.text, findings=(finding,)))
        if unproven:
            findings.append(found("DR-SYNC-005.left", queue=queue, site=target.site, count=unproven))
    if any(difference.consumed for difference in differences) and ends[0].read().start != source.start:
        raise StepFailed(Failed(f"the broker of {source.site} was restarted: its counters no longer prove anything"))
    for difference in differences:
        queue = difference.counted.queue
        if difference.consumed is not None:
            remove(tools, ends, source, target.by_name[queue], difference.consumed, context)
            removed[queue] = len(difference.consumed.ids)
        if not difference.missing and not difference.unproven:
            tools.gate.record_identical(source, target, queue, removed.get(queue, 0))
    return findings


def remove(
    tools: SyncTools, ends: LinkEnds, source: BrokerView, queue: Queue, consumed: Consumed, context: StepContext
) -> None:
    """Remove copies at the second broker whose messages were consumed at the first. Raises `StepFailed`."""
    serving, session = ends
    # Each consumed message proves one removal. Removals are recorded before, in case this process dies.
    serving.run_notes.record(source.start, DELETED, queue.name, len(consumed.ids))
    outcomes = tools.change(list(removal_calls(session.last_view(), queue, consumed)), context)
    now = session.read().by_name.get(queue.name)
    if now is None or now.depth == queue.depth - len(consumed.ids):
        return
    left = shown(session, now).keys() & consumed.ids
    serving.run_notes.record(source.start, DELETED, queue.name, -len(left))
    text = f"of {len(consumed.ids)} message(s) could not be removed from {queue.name} at {session.site}"
    must_be_none(left, text, outcomes)


def move_messages(
    tools: SyncTools, session: Session, queue: Queue, ids: Collection[str], context: StepContext, to: str | None = None
) -> None:
    """Move these messages to the queue `to`, or else aside. Raises `StepFailed` if some stay in their queue."""
    name = to or quarantine_queue(session.site, queue.name)
    outcomes = tools.change(list(move_calls(session.last_view(), queue, ids, name)), context)
    left = shown(session, queue).keys() & {*ids}
    must_be_none(left, f"message(s) of {queue.name} at {session.site} could not be moved", outcomes)


class Shipping(Direction[BrokerView]):
    """Waits for the copies that one broker ships to its peer, and restarts its connector while it is not connected."""

    repairing = "its network connector is not connected: restarting it"

    def __init__(self, local: Session, peer: Session, context: StepContext, timeouts: Timeouts) -> None:
        super().__init__(local, peer)
        self._context, self._timeouts = context, timeouts
        self._restarted = 0
        self._restart_at = context.monotonic() + timeouts.link_lost_s

    def remaining(self, view: BrokerView, _peer: BrokerView) -> int | None:
        return view.link.to_ship

    def reasons(self, view: BrokerView, _peer: BrokerView) -> list[str]:
        ships = view.link.attached or not view.copy_queues
        return [] if ships else [f"the network connector of {view.site} is not connected"]

    def repair_calls(self, view: BrokerView, _peer: object) -> list[Call]:
        if view.link.attached or not view.copy_queues:
            self._restart_at = self._context.monotonic() + self._timeouts.link_lost_s
            return []
        if self._context.monotonic() < self._restart_at:
            return []
        self._restarted += 1
        self._restart_at = self._context.monotonic() + self._timeouts.link_between_s * 2**self._restarted
        return reconnect_calls(view)


def catch_up(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    directions = [Shipping(*ends, context, tools.timeouts) for ends in tools.observer.link_ends(move)]
    wait = Wait(tools, directions, context, UNDER_WAY, SMALL_OUTFLOW)
    return wait.caught_up(step.limits, "the copy queues grow", "to ship")


def drain(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    def drained() -> Outcome:
        link_ends = tools.observer.link_ends(move)
        wait = Wait(tools, [Shipping(*ends, context, tools.timeouts) for ends in link_ends], context, UNDER_WAY)
        failed = wait.until(tools.rules.drain.poll, step.limits, lambda view: [view.pair] if view.open else [])
        if failed is not None:
            return failed
        removed: dict[str, dict[str, int]] = {}
        findings: list[Finding] = []
        for ends in link_ends:
            findings += _remove_at_pair(tools, ends, move, context, removed.setdefault(ends[0].pair, {}))
        count = sum(sum(counts.values()) for counts in removed.values())
        suffix = f"; {count} copies of consumed messages removed" if count else ""
        return Done(f"nothing to ship{suffix}", {"removed": document(removed)}, tuple(findings))

    return with_pauses_lifted(tools, move, context, drained)


def restart_link(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.change([call for call in step.calls if call.goal is Goal.LINK_DOWN], context)
    tools.change([call for call in step.calls if call.goal is Goal.LINK_UP], context)

    def detached() -> dict[str, str]:
        views = tools.observer.read_at(move.source)
        return {str(view): "" for view in views if not view.link.attached}  # the broker reports no reason

    return attached(tools, step, move, context, "the network connector", detached)


def connected(at: AtBroker) -> list[Call]:
    """Want a connector started if the step stops it. A stopped connector cannot be told from one without a peer."""
    return _switch_calls(at.view, Goal.LINK_UP, NOT_CONNECTED) if at.changed_by_step(Goal.LINK_UP) else []


UNDO_SHIPPING: Final = Undo(source=(connected,))
PROVEN: Final = "the serving site's counters prove that they were consumed there since"
UNPROVEN: Final = "they are not at the other site, and nothing proves that they were consumed"


# Copies of messages that were consumed at the returned site are kept aside: at the returned site those that it did not
# ship, at the serving site those that it shipped. An undo closes the link's listeners again. Messages that were shipped
# before stay: their duplicates were kept aside.
draft_reinstate: Final = draft_of(
    TARGET,
    "messages consumed before the loss are kept aside by id; the others are let in, and both directions ship",
    (lambda at: [draft_move(at.view, queue) for queue in at.view.copy_queues.values()], TARGET),
    (lambda at: [draft_move(at.view, queue) for queue in at.view.copied_queues], SOURCE),
    *wants.LINKS_ADMITTED,
    *((lambda at: reconnect_calls(at.view), site) for site in (SOURCE, TARGET)),
    *DEBTS_CLEARED,
    limits=Rules.while_moving,
)
draft_reconcile: Final = draft_of(
    TARGET,
    "copies of messages consumed meanwhile removed; both sites compared",
    (lambda at: [plan_removal(at.view, queue, PROVEN) for queue in at.view.copied_queues], TARGET),
)


def residue(tools: SyncTools, move: Move, context: StepContext, _was_open: bool) -> Outcome:
    residues = [view.link.residue for view in tools.views(move.target)]
    return residue_outcome(move, context, residues, lambda held: f"{held.messages} message(s) that it did not ship")


def reinstate(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if is_reinstated(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is reinstated already")
    findings: list[Finding] = []
    link_ends = tools.observer.between(move.source, move.target)
    for serving, returned in link_ends:
        findings += _move_duplicates(tools, returned, serving, context)
    tools.reach(wants.LINKS_ADMITTED, move, context)
    inbound = [Shipping(returned, serving, context, tools.timeouts) for serving, returned in link_ends]
    outbound = [Shipping(*ends, context, tools.timeouts) for ends in link_ends]
    for wait in (Wait(tools, inbound, context, UNDER_WAY), Wait(tools, outbound, context, UNDER_WAY, SMALL_OUTFLOW)):
        if (failed := wait.until(tools.rules.drain.poll, step.limits)) is not None:
            return replace(failed, text=f"{move.target} is not reinstated: {failed.text}")
    tools.reach(DEBTS_CLEARED, move, context)
    return Done(tools.return_result.text, document(tools.return_result), tuple(findings))


def _move_duplicates(tools: SyncTools, returned: Session, serving: Session, context: StepContext) -> list[Finding]:
    """Keep aside the certain duplicates of one pair before the returned site's messages are let in. No message is
    removed, because counters from before the loss are lost and prove nothing."""
    returned_view, serving_view, result = returned.read(), serving.read(), tools.return_result
    lost, serving_at = returned.site, serving.site
    findings: list[Finding] = []
    for name, copies in returned_view.copy_queues.items():
        in_queue, to_ship = (list_queue(returned, returned_view, queue).complete.ids for queue in (name, copies.name))
        result.recovered[name] = len(to_ship & in_queue)
        if consumed_before := to_ship - in_queue:
            result.consumed_before[name] = len(consumed_before)
        arrived_by, arrival_queue = ids.shown(serving, serving_view.by_name.get(name)), serving_view.arrival_queue(name)
        shipped = frozenset(id_ for id_, address in arrived_by.items() if address == arrival_queue) - in_queue - to_ship
        if shipped and not in_queue and not to_ship:
            count = result.duplicates[name] = len(shipped)
            findings.append(found("DR-SYNC-007.none_there", other_site=lost, site=serving_at, count=count, queue=name))
            shipped = frozenset()
        for case, session, queue, messages in (
            ("DR-RECONCILE-002.not_shipped", returned, returned_view.by_name.get(copies.name), consumed_before),
            ("DR-RECONCILE-002.shipped", serving, serving_view.by_name.get(name), shipped),
        ):
            if queue is None or not messages:
                continue
            move_messages(tools, session, queue, messages, context)
            count = len(messages)
            findings.append(found(case, count=count, queue=name, lost=lost, serving=serving_at, session=session))
    return findings


def reconcile(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove copies of messages that were consumed at the serving site since, if its counters prove that."""
    findings: list[Finding] = []
    for serving, returned in tools.observer.between(move.source, move.target):
        local, view = serving.read(), returned.read()
        for name, queue in view.business.items():
            if name not in view.copy_queues or not queue.depth:
                continue
            try:
                _, proof = copies_only_at_standby((serving, returned), (local, view), name)
            except IncompleteListing as error:
                proof = str(error)
            if isinstance(proof, Consumed):
                if proof.ids:
                    remove(tools, (serving, returned), local, queue, proof, context)
                tools.return_result.consumed_since[name] = len(proof.ids)
            elif (count := queue.depth - (local.by_name[name].depth if name in local.by_name else 0)) > 0:
                tools.return_result.duplicates[name] = tools.return_result.duplicates.get(name, 0) + count
                finding = found("DR-SYNC-007.unproven", view=view, local=local, count=count, queue=name, why=proof)
                findings.append(finding)
    snapshot = tools.observer.observe()
    for view, peer in snapshot.both(move.source, move.target):
        missing = lacking(view, peer, tools.observer.queues, snapshot.traffic.get(view.pair, {}))
        if missing and view.copy_queues:
            queues = brief([counted.text(move.source, move.target) for counted in missing])
            findings.append(found("DR-RECONCILE-001", queues=queues))
    return Done(tools.return_result.text, document(tools.return_result), tuple(findings))


def _unproven(at: AtBroker) -> list[Call]:
    queues = at.view.without_dead_letters.items()
    return [draft_move(at.view, queue, UNPROVEN) for name, queue in queues if is_chosen(at.move, name) and queue.depth]


draft_keep_aside: Final = draft_of(
    SOURCE, "copies without evidence at {source} are kept aside, by id", (_unproven, SOURCE)
)
draft_put_back: Final = draft_of(
    SOURCE,
    "messages kept aside at {source} are put back for clients",
    (lambda at: [draft_move(at.view, queue, None, to) for queue, to in kept_queues(at.view, at.move) if to], SOURCE),
)


def is_chosen(move: Move, queue: str) -> bool:
    return move.spec.queues is None or matches((move.spec.queues,), queue)


def kept_queues(view: BrokerView, move: Move) -> Iterator[tuple[Queue, str | None]]:
    """Return each queue of messages kept aside, with the queue for putting them back: the original one at a serving
    site; at a standby, the queue that ships copies, or None if no queue ships them."""
    shipped_from = {copy_queue.name: name for name, copy_queue in view.copy_queues.items()}
    prefix = quarantine_queue(view.site, "")
    for queue in view.queues:
        name = queue.name.removeprefix(prefix)
        original = shipped_from.get(name, name)
        if name == queue.name or not queue.depth or not is_chosen(move, original):
            continue
        if view.open:
            yield queue, original
        else:
            yield queue, name if name in shipped_from else None


def _unproven_copies(
    observer: Observer, serving: str, standby: str, pattern: str | None
) -> Iterator[tuple[Session, Queue, Unproven]]:
    for pair, session in observer.brokers[standby].items():
        ends = observer.brokers[serving][pair], session
        views = ends[0].read(), session.read()
        for name, queue in views[1].business.items():
            if not (queue.depth and name in views[0].copy_queues and (pattern is None or matches((pattern,), name))):
                continue
            try:
                only_at_standby, consumed = copies_only_at_standby(ends, views, name)
                copies = Unproven(pair, name, () if isinstance(consumed, Consumed) else sorted(only_at_standby))
            except IncompleteListing as error:
                copies = Unproven(pair, name, (), str(error))
            if copies.ids or copies.why_not is not None:
                yield session, queue, copies


def keep_aside(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    kept_aside: dict[str, Json] = {}
    serving, standby = move.target, move.source
    for session, queue, copies in _unproven_copies(tools.observer, serving, standby, move.spec.queues):
        if copies.why_not is not None:
            text = f"which copies of {copies.name} have no evidence is unknown: {copies.why_not}"
            return Failed(text, kept_aside)
        messages = frozenset(copies.ids)
        decided_on = Consumed(messages, decided(messages, move.spec.reason or ""))  # raises without a reason
        move_messages(tools, session, queue, decided_on.ids, context)
        kept_aside[copies.name] = [*copies.ids]
    if not kept_aside:
        return NotNeeded(f"{standby} has no copies without evidence")
    counts = [f"{len(ids)} of {name}" for name, ids in kept_aside.items() if isinstance(ids, list)]
    return Done(f"kept aside at {standby}: {brief(counts)}", {"kept_aside": kept_aside})


def put_back(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    counts_by_queue: dict[str, Json] = {}
    findings: list[Finding] = []
    for session in tools.observer.at(move.source):
        view = session.read()
        for queue, to in kept_queues(view, move):
            if to is None:
                findings.append(found("DR-SYNC-008", depth=queue.depth, name=queue.name, site=view.site))
                continue
            messages = ids.listed(session, queue).complete.ids
            move_messages(tools, session, queue, messages, context, to)
            counts_by_queue[to] = len(messages)
            findings.append(found("DR-SYNC-007.put_back", site=view.site, count=len(messages), queue=to))
    if findings and not counts_by_queue:
        return Failed(findings[0].text, code=ExitCode.PRECHECK_FAILED, findings=tuple(findings))
    if not counts_by_queue:
        return NotNeeded(f"nothing is kept aside at {move.source}")
    counts = [f"{count} to {name}" for name, count in counts_by_queue.items()]
    return Done(f"put back at {move.source}: {brief(counts)}", {"put_back": counts_by_queue}, tuple(findings))


NOT_COPIED: Final = (
    "delayed messages in a broker's scheduler: they are copied when they are due",
    "topics and durable subscriptions, dead letters: each site has its own",
)


def _activate(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Record the counters before clients are let in: no client of this site consumed the copies removed so far."""
    for session in tools.observer.at(move.target):
        if not session.open_listeners(timeout_s=READ_S):
            session.record_opening()
    return activate.act(tools, step, move, context)


PROCEDURE: Final[Procedure[SyncSnapshot, SyncTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up, UNDO_SHIPPING),
    "drain": VerbHandler(draft_drain, drain, UNDO_SHIPPING),
    "activate": VerbHandler(activate.draft, _activate, activate.UNDO),
    "probe": VerbHandler(proving.draft_probe, classic.probe),
    "restart-link": VerbHandler(draft_restart, restart_link, UNDO_SHIPPING),
    "keep-aside": VerbHandler(draft_keep_aside, keep_aside),
    "put-back": VerbHandler(draft_put_back, put_back),
    # These verbs reinstate a lost site.
    "residue": fence.counting_verb(residue),
    "reinstate": VerbHandler(
        draft_reinstate, reinstate, Undo(source=(wants.link_access_as_before, wants.debts_as_before))
    ),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}


class SyncTopology(PairTopology[BrokerView]):
    observer: Observer

    def cleaner(self, serving: str, remembered: Mapping[str, Any]) -> Cleaner:
        known = agent_memory(self.observer.documents, serving, remembered)
        return cleaner(self.observer, serving, known)

    def unproven(self, waiting: str, pattern: str | None) -> Sequence[Unproven]:
        serving = next(site for site in self.observer.brokers if site != waiting)
        return [copies for _, _, copies in _unproven_copies(self.observer, serving, waiting, pattern)]


TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, SyncTools, NOT_COPIED, made=SyncTopology)
