"""The handlers of runbook verbs for a BrokerSync installation; the table at the end names them.

Copies of messages that the other site has consumed are found by id, removed only with evidence, and then listed again.
The messages of a returned site are compared by id before they come in. A person decides about copies without evidence:
they are moved aside within the broker, or put back, and none is lost. `move.source` is the site that a move leaves, the
one that serves in a reinstatement, and the one whose copies are kept aside or put back. Whatever asks a broker raises
`BrokerError`.
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
from dr_ctl.topologies.brokersync.checks import CHECKS, STOMP_ABOVE, not_compared, nothing_owed
from dr_ctl.topologies.brokersync.reading import READS, LinkEnds, Observer, Session, for_agent, proven
from dr_ctl.topologies.brokersync.sync.pair import cleaner
from dr_ctl.topologies.brokersync.sync.queue import DELETED, SHOWN
from dr_ctl.topologies.brokersync.view import AGENT, BrokerView, SyncSnapshot
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic import verbs as classic
from dr_ctl.topologies.classic.beans import COUNT, MOVE_MATCHING, Count
from dr_ctl.topologies.classic.broker import both_counts, lacking
from dr_ctl.topologies.classic.ids import MAX_IDS, Listed, move_calls, plan_removal, removal_calls, shown
from dr_ctl.topologies.common import wants
from dr_ctl.topologies.common.calls import call, quarantine_queue, request, switched
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


def listed(session: Session, view: BrokerView, name: str, *, tries: int = 1) -> Listed:
    """List all messages of a queue, in at most `tries` attempts. At a closed site, copies may arrive meanwhile."""
    queue, grows = view.by_name.get(name), not view.open and not view.prepared
    if queue is None or queue.depth <= STOMP_ABOVE or (listener := session.agents_listener()) is None:
        return ids.listed(session, queue, tries=tries, grows=grows)
    before = _count(session, queue)
    # A browse raises the counters as a client does. It is noted before: if this process dies, the counters prove less.
    session.noted.note(view.start, SHOWN, queue.name, before.depth)
    origins: dict[str, str | None] = {}
    for frame in ids.browsed(listener, queue.name, client=AGENT):
        was = frame.headers.get(ORIGINAL_DESTINATION)
        origins[frame.headers["message-id"]] = was.removeprefix("/queue/") if was is not None else None
    session.noted.note(view.start, SHOWN, queue.name, len(origins) - before.depth)
    return ids.complete(session.site, queue.name, origins, before, _count(session, queue), grows=grows)


def _count(session: Session, queue: Queue) -> Count:
    answer = session.reader().read([Read(queue.bean, COUNT)])[0]
    return Count.of(Fields(queue.name, answer.value()))


def _counts(view: BrokerView, queue: str, removed: int = 0) -> tuple[str, int, int]:
    named = view.by_name.get(queue)
    return (view.start, named.added, named.removed + removed) if named is not None else (view.start, 0, 0)


def not_shipped(session: Session, view: BrokerView, queue: str, listing: Listed) -> frozenset[str]:
    """Find the messages that only this broker ever had: it did not ship them yet, or never ships what is sent here."""
    if queue in view.copy_queues:
        copy_queue = view.copy_queues[queue]
        return listed(session, view, copy_queue.name).complete.ids if copy_queue.depth else frozenset()
    arrives = view.arrival_queue(queue)  # a copy keeps, as its original destination, the queue by which it arrived
    return frozenset(id_ for id_, by in listing.arrived_by.items() if by != arrives)


def copies_at_standby_alone(
    ends: tuple[Session, Session], views: tuple[BrokerView, BrokerView], queue: str
) -> tuple[frozenset[str], Consumed | str]:
    """Find the copies of a queue that lie at the standby alone, and the proof that they were consumed, or the
    reason why there is none. `ends` begins with the serving site, which is listed last: clients work there."""
    (serving, waiting), (view, peer) = ends, views
    there = listed(waiting, peer, queue, tries=ids.TRIES)
    copies = there.complete.ids - not_shipped(waiting, peer, queue, there)
    listing = listed(serving, view, queue, tries=ids.TRIES).complete
    return copies - listing.ids, proven(view, queue, copies, listing)


def both_listed(observer: Observer, views: Sequence[BrokerView], queue: str) -> list[Listed]:
    """List a queue at both sites, side by side, because no client works."""
    by_site = {view.site: view for view in views}
    ends = [observer.brokers[view.site][view.pair] for view in views]
    return observer.ask_all(lambda session: listed(session, by_site[session.site], queue), ends)


class SyncGate(Gate[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, rules: Rules) -> None:
        self._rules = rules
        # The counters of each queue that a listing by id has shown to be the same at both sites. Such a queue is not
        # listed again before a counter moves.
        self._identical: dict[tuple[str, str], object] = {}
        super().__init__(observer, rules.drain.poll)

    def note_identical(self, source: BrokerView, target: BrokerView, queue: str, removed: int) -> None:
        """Note a queue that is the same at both sites. The views are from before its listing, and `removed` copies were
        removed at the target after it."""
        self._identical[source.pair, queue] = _counts(source, queue), _counts(target, queue, removed)

    def differing(self, now: PairReading[BrokerView], move: Move) -> list[str]:
        wrong = not_accepted(both_counts(now.source, now.target, self.observer.queues), move)
        return [counted.text(move.source, move.target) for counted in wrong]

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        view, peer = now.source, now.target
        depths: dict[str, Json] = {}
        compared, findings = 0, list[Finding]()
        deep = checks.too_deep(self._rules, view, peer, move)
        for counted in both_counts(view, peer, self.observer.queues):
            if counted.source:
                depths[counted.queue] = counted.source
            if counted.difference or not counted.source:
                continue
            now_there = _counts(view, counted.queue), _counts(peer, counted.queue)
            if self._identical.get((view.pair, counted.queue)) != now_there:
                if counted.queue in deep:
                    findings.append(not_compared(counted, view.site, peer.site))
                    continue
                at_source, at_target = (
                    listing.complete.ids for listing in both_listed(self.observer, (view, peer), counted.queue)
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
    """What a reinstatement did with the messages of the returned site, by queue. `recovered` were shipped late.
    `consumed_before` had left their queue there before they were shipped, and are kept aside.
    `consumed_since` were still there, had been consumed at the other site since, and were removed. `duplicates`
    counts the others, without evidence that they were consumed."""

    recovered: dict[str, int] = field(default_factory=dict, metadata=key(of="recovered_in_all"))
    consumed_before: dict[str, int] = field(default_factory=dict, metadata=key("consumed_before_the_loss"))
    consumed_since: dict[str, int] = field(default_factory=dict, metadata=key("consumed_since"))
    duplicates: dict[str, int] = field(default_factory=dict, metadata=key("possible_duplicates"))

    @property
    def recovered_in_all(self) -> int:
        return sum(self.recovered.values())

    @property
    def text(self) -> str:
        every = (self.recovered, self.consumed_before, self.consumed_since, self.duplicates)
        recovered, consumed_before, consumed_since, duplicates = (sum(counts.values()) for counts in every)
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
CONSUMED: Final = "copies of what was consumed lie there"
ATTACH_S: Final = 30.0  # a network connector that lost its peer tries again after up to half a minute
UNDER_WAY: Final = "copies under way between the sites"


def _switched(view: BrokerView, goal: Goal, when: str | None = None, at_most: int = 1) -> list[Call]:
    if view.network is None:
        return []
    summary = f"{'start' if goal is Goal.LINK_UP else 'stop'} network connector"
    return [switched(view, goal, view.network, summary, when, at_most)]


def reconnect_calls(view: BrokerView) -> list[Call]:
    """Let a connector that is not connected try again at once, instead of within half a minute."""
    goals = (Goal.LINK_DOWN, Goal.LINK_UP)
    return [call for goal in goals for call in _switched(view, goal, NOT_CONNECTED, MAX_REPAIRS)]


def plan_move(view: BrokerView, queue: Queue, when: str | None = UNEXPLAINED, to: str | None = None) -> Call:
    name = to or quarantine_queue(view.site, queue.name)
    asked = request(queue.bean, MOVE_MATCHING, ("JMSMessageID IN (…)", name))
    return call(view, Goal.MOVE, queue.name, asked, f"move them from {queue.name} to {name}", when, MAX_IDS)


draft_catch_up: Final = draft_of(
    SOURCE,
    "{serving_prefix}the network connector connected, the copy queues small",
    (lambda at: reconnect_calls(at.view), SOURCE),
    limits=Rules.catching_up,
)
_draft_shipping: Final = draft_of(
    TARGET,
    "all copies shipped; copies of what was consumed removed; pauses lifted meanwhile",
    *LIFTED,
    (lambda at: reconnect_calls(at.view), SOURCE),
    limits=Rules.draining,
)


def draft_drain(rules: Rules, step: RunbookStep, snapshot: SyncSnapshot, move: Move) -> StepPlan:
    """Consumed messages are removed by id: the removal needs no undo, whoever serves afterwards."""
    shipping = _draft_shipping(rules, step, snapshot, move)
    removals = (
        plan_removal(peer, peer.by_name[name], CONSUMED)
        for view, peer in snapshot.both(move.source, move.target)
        for name in view.copy_queues
        if name in peer.by_name
    )
    return replace(shipping, calls=(*shipping.calls, *removals))


# A connected connector is restarted too: a connector that hangs may say that it is connected.
draft_restart: Final = draft_of(
    SOURCE,
    "stop and start the network connector of {source}, until it is connected; clients stay where they are",
    (lambda at: _switched(at.view, Goal.LINK_DOWN), SOURCE),
    (lambda at: _switched(at.view, Goal.LINK_UP), SOURCE),
    limits=lambda _, __, move: {"within": move.spec.timeout_s or ATTACH_S},
)


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """The target `lacks` some messages by id. Of the copies that lie only there, those that were `consumed`, which is
    proven, may be removed, and each other one `stays`, for the reason `why`."""

    counted: Counts
    lacks: frozenset[str]
    consumed: Consumed | None
    stays: frozenset[str]
    why: str


def _compared(
    tools: SyncTools, source: BrokerView, target: BrokerView, ends: LinkEnds, counted: Counts
) -> QueueDifference:
    queue = counted.queue
    view, peer = both_listed(tools.observer, (source, target), queue)
    copies = peer.complete.ids - not_shipped(ends[1], target, queue, peer)
    lacks, alone = view.complete.ids - peer.complete.ids, peer.complete.ids - view.complete.ids
    consumed = proven(source, queue, copies, view.complete)
    if not isinstance(consumed, Consumed):
        return QueueDifference(counted, lacks, None, alone, consumed)
    stays = alone - consumed.ids
    why = f"{len(stays)} were sent at {target.site}, and never shipped"
    return QueueDifference(counted, lacks, consumed if consumed.ids else None, stays, why)


def _remove_at_pair(
    tools: SyncTools, ends: LinkEnds, move: Move, context: StepContext, removed: dict[str, int]
) -> list[Finding]:
    """Remove the target's copies of messages that the fenced source has consumed, where its counters cover these, and
    count them in `removed`. Return findings about the copies that are left. No copy is removed from a queue whose
    target lacks a message, or has copies without evidence."""
    source, target = (session.read() for session in ends)
    findings: list[Finding] = []
    differences: list[QueueDifference] = []
    deep, accepted = checks.too_deep(tools.rules, source, target, move), move.spec.accept_difference
    for counted in both_counts(source, target, tools.observer.queues):
        if counted.queue not in source.copy_queues or not (counted.source or counted.target):
            continue
        if counted.queue not in deep:
            differences.append(_compared(tools, source, target, ends, counted))
        elif counted.difference and counted.size != accepted.get(
            counted.queue
        ):  # the gate compares queues of equal counts
            text = f"{counted.text(source.site, target.site)}: too many to compare by id in time"
            raise StepFailed(Failed(text, findings=(not_compared(counted, source.site, target.site),)))
    for difference in differences:
        queue, lacks, stays = difference.counted.queue, len(difference.lacks), len(difference.stays)
        if lacks and lacks != accepted.get(queue):
            missing, options = {queue: {f"only at {source.site}": difference.lacks}}, accepting({queue: lacks})
            case = "DR-PARITY-004.one_queue_by_id"
            failed = refused(case, missing, count=lacks, queue=queue, source=source, target=target, accepting=options)
            raise StepFailed(failed)
        if stays and stays != accepted.get(queue):
            finding = checks.unproven_copies(difference.counted, stays, difference.why, source, target)
            raise StepFailed(Failed(f"{queue}: {difference.why}", findings=(finding,)))
        if stays:
            findings.append(found("DR-SYNC-005.left", queue=queue, site=target.site, count=stays))
    if any(difference.consumed for difference in differences) and ends[0].read().start != source.start:
        raise StepFailed(Failed(f"the broker of {source.site} was restarted: its counters prove nothing any more"))
    for difference in differences:
        queue = difference.counted.queue
        if difference.consumed is not None:
            remove(tools, ends, source, target.by_name[queue], difference.consumed, context)
            removed[queue] = len(difference.consumed.ids)
        if not difference.lacks and not difference.stays:
            tools.gate.note_identical(source, target, queue, removed.get(queue, 0))
    return findings


def remove(
    tools: SyncTools, ends: LinkEnds, source: BrokerView, queue: Queue, gone: Consumed, context: StepContext
) -> None:
    """Remove copies at the second broker that clients of the first, the `source`, consumed. Raises `StepFailed`."""
    serving, session = ends
    # From now on the counters prove so many copies fewer. That is noted before the removal, in case this process dies.
    serving.noted.note(source.start, DELETED, queue.name, len(gone.ids))
    outcomes = tools.change(list(removal_calls(session.last_view(), queue, gone)), context)
    now = session.read().by_name.get(queue.name)
    if now is None or now.depth == queue.depth - len(gone.ids):
        return
    stayed = shown(session, now).keys() & gone.ids
    serving.noted.note(source.start, DELETED, queue.name, -len(stayed))
    what = f"of {len(gone.ids)} message(s) could not be removed from {queue.name} at {session.site}"
    must_be_none(stayed, what, outcomes)


def move_messages(
    tools: SyncTools, session: Session, queue: Queue, ids: Collection[str], context: StepContext, to: str | None = None
) -> None:
    """Move these messages to the queue `to`, else aside. Raises `StepFailed` where some stay in their own queue."""
    name = to or quarantine_queue(session.site, queue.name)
    outcomes = tools.change(list(move_calls(session.last_view(), queue, ids, name)), context)
    stayed = shown(session, queue).keys() & {*ids}
    must_be_none(stayed, f"message(s) of {queue.name} at {session.site} could not be moved", outcomes)


class Copies(Direction[BrokerView]):
    """Waits for the copies that one broker ships to its peer, and restarts its connector while it is not connected."""

    repairing = "its network connector is not connected: restarting it"

    def __init__(self, local: Session, peer: Session, context: StepContext, timeouts: Timeouts) -> None:
        super().__init__(local, peer)
        self._context, self._timeouts = context, timeouts
        self._restarted = 0
        self._again_at = context.monotonic() + timeouts.link_lost_s

    def remaining(self, view: BrokerView, _peer: BrokerView) -> int | None:
        return view.link.to_ship

    def reasons(self, view: BrokerView, _peer: BrokerView) -> list[str]:
        ships = view.link.attached or not view.copy_queues
        return [] if ships else [f"the network connector of {view.site} is not connected"]

    def repair_calls(self, view: BrokerView, _peer: object) -> list[Call]:
        if view.link.attached or not view.copy_queues:
            self._again_at = self._context.monotonic() + self._timeouts.link_lost_s
            return []
        if self._context.monotonic() < self._again_at:
            return []
        self._restarted += 1
        self._again_at = self._context.monotonic() + self._timeouts.link_between_s * 2**self._restarted
        return reconnect_calls(view)


def catch_up(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    directions = [Copies(*ends, context, tools.timeouts) for ends in tools.observer.link_ends(move)]
    wait = Wait(tools, directions, context, UNDER_WAY, SMALL_OUTFLOW)
    return wait.caught_up(step.limits, "the copy queues grow", "to ship")


def drain(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    def drained() -> Outcome:
        link_ends = tools.observer.link_ends(move)
        wait = Wait(tools, [Copies(*ends, context, tools.timeouts) for ends in link_ends], context, UNDER_WAY)
        failed = wait.until(tools.rules.drain.poll, step.limits, lambda view: [view.pair] if view.open else [])
        if failed is not None:
            return failed
        removed: dict[str, dict[str, int]] = {}
        findings: list[Finding] = []
        for ends in link_ends:
            findings += _remove_at_pair(tools, ends, move, context, removed.setdefault(ends[0].pair, {}))
        count = sum(sum(counts.values()) for counts in removed.values())
        suffix = f"; {count} copies of what was consumed removed" if count else ""
        return Done(f"nothing to ship{suffix}", {"removed": document(removed)}, tuple(findings))

    return with_pauses_lifted(tools, move, context, drained)


def restart_link(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    tools.change([call for call in step.calls if call.goal is Goal.LINK_DOWN], context)
    tools.change([call for call in step.calls if call.goal is Goal.LINK_UP], context)

    def detached() -> dict[str, str]:
        views = tools.observer.read_at(move.source)
        return {str(view): "" for view in views if not view.link.attached}  # the broker tells no reason

    return attached(tools, step, move, context, "the network connector", detached)


def connected(at: AtBroker) -> list[Call]:
    """Want a connector started if the step stops it: a connector that was stopped, or had no peer, looks the same."""
    return _switched(at.view, Goal.LINK_UP, NOT_CONNECTED) if at.changed_by_step(Goal.LINK_UP) else []


UNDO_SHIPPING: Final = Undo(source=(connected,))
PROVEN: Final = "the serving site's counters prove that they were consumed there since"
UNPROVEN: Final = "they do not lie at the other site, and nothing proves that they were consumed"


# Copies of messages that were consumed at the returned site are kept aside: there those that it did not ship, and at
# the serving site those that it shipped. An undo closes the listeners of the link again. Messages that came in until
# then stay: their duplicates were kept aside before.
draft_reinstate: Final = draft_of(
    TARGET,
    "what was consumed before the loss is kept aside by id; the rest is let in, and both directions ship",
    (lambda at: [plan_move(at.view, queue) for queue in at.view.copy_queues.values()], TARGET),
    (lambda at: [plan_move(at.view, queue) for queue in at.view.copied_queues], SOURCE),
    *wants.LINKS_ADMITTED,
    *((lambda at: reconnect_calls(at.view), site) for site in (SOURCE, TARGET)),
    *DEBTS_CLEARED,
    limits=Rules.while_moving,
)
draft_reconcile: Final = draft_of(
    TARGET,
    "copies of what was consumed meanwhile removed; both sites compared",
    (lambda at: [plan_removal(at.view, queue, PROVEN) for queue in at.view.copied_queues], TARGET),
)


def residue(tools: SyncTools, move: Move, context: StepContext, _was_open: bool) -> Outcome:
    residues = [view.link.residue for view in tools.views(move.target)]
    return residue_outcome(move, context, residues, lambda of: f"{of.messages} message(s) that it did not ship")


def reinstate(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if nothing_owed(tools.observer.observe(), move):
        return NotNeeded(f"{move.target} is taken in already")
    findings: list[Finding] = []
    link_ends = tools.observer.between(move.source, move.target)
    for serving, returned in link_ends:
        findings += _move_duplicates(tools, returned, serving, context)
    tools.reach(wants.LINKS_ADMITTED, move, context)
    back = [Copies(returned, serving, context, tools.timeouts) for serving, returned in link_ends]
    forth = [Copies(*ends, context, tools.timeouts) for ends in link_ends]
    for wait in (Wait(tools, back, context, UNDER_WAY), Wait(tools, forth, context, UNDER_WAY, SMALL_OUTFLOW)):
        if (failed := wait.until(tools.rules.drain.poll, step.limits)) is not None:
            return replace(failed, text=f"{move.target} is not reinstated: {failed.text}")
    tools.reach(DEBTS_CLEARED, move, context)
    return Done(tools.return_result.text, document(tools.return_result), tuple(findings))


def _move_duplicates(tools: SyncTools, returned: Session, serving: Session, context: StepContext) -> list[Finding]:
    """Keep aside the certain duplicates of one pair before the returned site's messages are let in. The counters from
    before the loss are gone and prove nothing, so no message is removed."""
    returned_view, serving_view, result = returned.read(), serving.read(), tools.return_result
    lost, serves = returned.site, serving.site
    findings: list[Finding] = []
    for name, copy_queue in returned_view.copy_queues.items():
        in_queue, to_ship = (listed(returned, returned_view, queue).complete.ids for queue in (name, copy_queue.name))
        result.recovered[name] = len(to_ship & in_queue)
        if consumed_before := to_ship - in_queue:
            result.consumed_before[name] = len(consumed_before)
        arrived_by, arrival_queue = ids.shown(serving, serving_view.by_name.get(name)), serving_view.arrival_queue(name)
        shipped = frozenset(id_ for id_, by in arrived_by.items() if by == arrival_queue) - in_queue - to_ship
        if shipped and not in_queue and not to_ship:
            count = result.duplicates[name] = len(shipped)
            findings.append(found("DR-SYNC-007.none_there", other_site=lost, site=serves, count=count, queue=name))
            shipped = frozenset()
        for case, session, queue, messages in (
            ("DR-RECONCILE-002.not_shipped", returned, returned_view.by_name.get(copy_queue.name), consumed_before),
            ("DR-RECONCILE-002.shipped", serving, serving_view.by_name.get(name), shipped),
        ):
            if queue is None or not messages:
                continue
            move_messages(tools, session, queue, messages, context)
            count = len(messages)
            findings.append(found(case, count=count, queue=name, lost=lost, serving=serves, session=session))
    return findings


def reconcile(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Remove what clients of the serving site have consumed since, where its counters prove that; count the rest."""
    findings: list[Finding] = []
    for serving, returned in tools.observer.between(move.source, move.target):
        local, view = serving.read(), returned.read()
        for name, queue in view.business.items():
            if name not in view.copy_queues or not queue.depth:
                continue
            try:
                _, gone = copies_at_standby_alone((serving, returned), (local, view), name)
            except IncompleteListing as error:
                gone = str(error)
            if isinstance(gone, Consumed):
                if gone.ids:
                    remove(tools, (serving, returned), local, queue, gone, context)
                tools.return_result.consumed_since[name] = len(gone.ids)
            elif (more := queue.depth - (local.by_name[name].depth if name in local.by_name else 0)) > 0:
                tools.return_result.duplicates[name] = tools.return_result.duplicates.get(name, 0) + more
                findings.append(found("DR-SYNC-007.unproven", view=view, local=local, count=more, queue=name, why=gone))
    snapshot = tools.observer.observe()
    for view, peer in snapshot.both(move.source, move.target):
        wrong = lacking(view, peer, tools.observer.queues, snapshot.traffic.get(view.pair, {}))
        if wrong and view.copy_queues:
            queues = brief([counted.text(move.source, move.target) for counted in wrong])
            findings.append(found("DR-RECONCILE-001", queues=queues))
    return Done(tools.return_result.text, document(tools.return_result), tuple(findings))


def _unproven(at: AtBroker) -> list[Call]:
    queues = at.view.without_dead_letters.items()
    return [plan_move(at.view, queue, UNPROVEN) for name, queue in queues if named(at.move, name) and queue.depth]


draft_keep_aside: Final = draft_of(
    SOURCE, "copies at {source} that nothing proves are kept aside, by id", (_unproven, SOURCE)
)
draft_put_back: Final = draft_of(
    SOURCE,
    "what was kept aside at {source} goes where clients get it",
    (lambda at: [plan_move(at.view, queue, None, to) for queue, to in kept_queues(at.view, at.move) if to], SOURCE),
)


def named(move: Move, queue: str) -> bool:
    return move.spec.queues is None or matches((move.spec.queues,), queue)


def kept_queues(view: BrokerView, move: Move) -> Iterator[tuple[Queue, str | None]]:
    """Return each queue in which messages were kept aside, with the queue in which clients will get them: their own at
    a serving site; at a standby, the queue that ships copies. None: only this standby has them, and nothing ships
    them."""
    shipped_from = {copy_queue.name: name for name, copy_queue in view.copy_queues.items()}
    prefix = quarantine_queue(view.site, "")
    for queue in view.queues:
        name = queue.name.removeprefix(prefix)
        own = shipped_from.get(name, name)
        if name == queue.name or not queue.depth or not named(move, own):
            continue
        if view.open:
            yield queue, own
        else:
            yield queue, name if name in shipped_from else None


def _unproven_copies(
    observer: Observer, serving: str, waiting: str, pattern: str | None
) -> Iterator[tuple[Session, Queue, Unproven]]:
    for pair, session in observer.brokers[waiting].items():
        ends = observer.brokers[serving][pair], session
        views = ends[0].read(), session.read()
        for name, queue in views[1].business.items():
            if not (queue.depth and name in views[0].copy_queues and (pattern is None or matches((pattern,), name))):
                continue
            try:
                alone, gone = copies_at_standby_alone(ends, views, name)
                copies = Unproven(pair, name, () if isinstance(gone, Consumed) else sorted(alone))
            except IncompleteListing as error:
                copies = Unproven(pair, name, (), str(error))
            if copies.ids or copies.why_not is not None:
                yield session, queue, copies


def keep_aside(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    kept_aside: dict[str, Json] = {}
    serving, waiting = move.target, move.source
    for session, queue, copies in _unproven_copies(tools.observer, serving, waiting, move.spec.queues):
        if copies.why_not is not None:
            text = f"which copies of {copies.name} nothing proves cannot be determined: {copies.why_not}"
            return Failed(text, kept_aside)
        messages = frozenset(copies.ids)
        decided_on = Consumed(messages, decided(messages, move.spec.reason or ""))  # raises without a reason
        move_messages(tools, session, queue, decided_on.ids, context)
        kept_aside[copies.name] = [*copies.ids]
    if not kept_aside:
        return NotNeeded(f"{waiting} has no copies that nothing proves")
    counts = [f"{len(ids)} of {name}" for name, ids in kept_aside.items() if isinstance(ids, list)]
    return Done(f"kept aside at {waiting}: {brief(counts)}", {"kept_aside": kept_aside})


def put_back(tools: SyncTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    back: dict[str, Json] = {}
    findings: list[Finding] = []
    for session in tools.observer.at(move.source):
        view = session.read()
        for queue, to in kept_queues(view, move):
            if to is None:
                findings.append(found("DR-SYNC-008", depth=queue.depth, name=queue.name, site=view.site))
                continue
            messages = ids.listed(session, queue).complete.ids
            move_messages(tools, session, queue, messages, context, to)
            back[to] = len(messages)
            findings.append(found("DR-SYNC-007.put_back", site=view.site, count=len(messages), queue=to))
    if findings and not back:
        return Failed(findings[0].text, code=ExitCode.PRECHECK_FAILED, findings=tuple(findings))
    if not back:
        return NotNeeded(f"nothing is kept aside at {move.source}")
    counts = [f"{count} to {name}" for name, count in back.items()]
    return Done(f"put back at {move.source}: {brief(counts)}", {"put_back": back}, tuple(findings))


NOT_COPIED: Final = (
    "messages that wait in a broker's scheduler for their time: they are copied when they are sent on",
    "topics and durable subscriptions, dead letters: each site has its own",
)


def _activate(tools: SyncTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Note the counters before clients are let in: what the agent removed until now was consumed by no client here."""
    for session in tools.observer.at(move.target):
        if not session.open_listeners(timeout_s=READ_S):
            session.note_opening()
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
    # These rows take a lost site in again.
    "residue": fence.counting(residue),
    "reinstate": VerbHandler(
        draft_reinstate, reinstate, Undo(source=(wants.link_access_as_before, wants.debts_as_before))
    ),
    "reconcile": VerbHandler(draft_reconcile, reconcile),
}


class SyncTopology(PairTopology[BrokerView]):
    observer: Observer

    def cleaner(self, serving: str, remembered: Mapping[str, Any]) -> Cleaner:
        known = for_agent(self.observer.documents, serving, remembered)
        return cleaner(self.observer, serving, known)

    def unproven(self, waiting: str, pattern: str | None) -> Sequence[Unproven]:
        serving = next(site for site in self.observer.brokers if site != waiting)
        return [copies for _, _, copies in _unproven_copies(self.observer, serving, waiting, pattern)]


TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, SyncTools, NOT_COPIED, made=SyncTopology)
