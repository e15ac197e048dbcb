"""The handlers of runbook verbs for sites that the continuity plugin connects; the table at the end names them.

`catch-up` and `drain` wait until little is under way, and, behind the fence, until both sites hold the same; after an
activation its delivery is waited for, and then watched until no late command can undo it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, brief, total
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.plan import PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import Waited, until
from dr_ctl.jolokia.client import READ_S
from dr_ctl.topologies.common.consumed import IncompleteListing
from dr_ctl.topologies.common.gate import PairReading, clients_of, common_blockers, counter_changes
from dr_ctl.topologies.common.link import evidence
from dr_ctl.topologies.common.recipe import Procedure, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import activate, fence, proving
from dr_ctl.topologies.common.verbs.activate import peer_state
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, lifting
from dr_ctl.topologies.common.view import PeerState
from dr_ctl.topologies.common.wants import SOURCE, TARGET, planning
from dr_ctl.topologies.continuity import copies, reinstate
from dr_ctl.topologies.continuity.checks import CHECKS, unreplicated
from dr_ctl.topologies.continuity.reading import READS, LinkEnds
from dr_ctl.topologies.continuity.tools import Both, ContinuityTools, PluginTimeouts, compare
from dr_ctl.topologies.continuity.view import WAITS_MS, ContinuitySnapshot, Flow, SiteView

SMALL: Final = 500
QUIET_READINGS: Final = 2


draft_catch_up: Final = planning(
    SOURCE,
    "{serving}all bridges connected, the outflow small, nothing left to deliver from staging; second copies at "
    "{target} removed by id",
    (copies.duplicates_removed, TARGET),
    limits=Rules.catching_up,
)
draft_drain: Final = planning(
    TARGET,
    "everything shipped and applied, in both directions; copies that must not be delivered removed by id; pauses "
    "lifted meanwhile",
    *LIFTED,
    (copies.done_removed, TARGET),
    limits=Rules.draining,
)


def catch_up(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait, while the source serves, until bridges are connected, little is under way, and staged messages are
    delivered."""
    link_ends = tools.observer.link_ends(move)
    if not link_ends:
        return Done("nothing is under way", {"under_way": 0})
    ends_s = context.monotonic() + step.limits["within"]
    known: list[int] = []
    idle = _Idle(tools.waits, tools.already_delivered)

    def read() -> _Reading:
        pairs = tools.read(link_ends)
        left = under_way(pairs)
        why = [
            reason
            for ends, both in zip(link_ends, pairs, strict=True)
            for reason in idle.why(ends, both, context.monotonic())
        ]
        why += [
            f"a bridge of {view.site} is not connected" for both in pairs for view in both if not view.link.attached
        ]
        if left is None:
            why.append("what is under way was not read: the continuity plugin has not started")
        else:
            known.append(left)
        context.sample(evidence((view.site, view.link) for both in pairs for view in both))
        context.report_waiting("under way between the sites", left, brief(why) if why else None)
        return _Reading(pairs, left, why)

    def little(now: _Reading) -> bool:
        return now.left is not None and now.left <= SMALL and not now.why

    def until_little() -> Waited[_Reading]:
        within_s, poll_s = ends_s - context.monotonic(), tools.waits.poll_s
        return until(context, read, holds=little, within_s=within_s, poll_s=poll_s)

    waited, removed = until_little(), 0
    if waited.satisfied and (removed := _without_echoes(tools, link_ends, waited.reading.pairs, context)):
        waited = until_little()  # the removal took a moment, in which clients worked on
    if waited.satisfied and (against := list(_not_followed(link_ends, waited.reading.pairs, move))):
        return Failed(brief([finding.text for finding in against]), findings=tuple(against))
    left, why = waited.reading.left, waited.reading.why
    if waited.satisfied:
        beside = f"; {removed} second copies removed at {move.target}" if removed else ""
        already_delivered = {
            queue: ids for flows in tools.already_delivered.values() for queue, ids in flows.items() if ids
        }
        if already_delivered:
            numbers = brief([f"{queue}: {len(ids)}" for queue, ids in already_delivered.items()])
            beside += f"; staged at {move.source} and refused there, for they were delivered before: {numbers}"
        named: dict[str, Json] = {queue: [*sorted(ids)] for queue, ids in already_delivered.items()}
        return Done(f"{if_known(left)} under way{beside}", {"under_way": left, "removed": removed, "had": named})
    if why:
        return Failed(f"not caught up: {brief(why)}", findings=tuple(_not_taken(waited.reading.pairs)))
    if min(known) >= known[0]:
        return Failed(f"the outflow grows while clients work: {known[0]}, then {if_known(left)}")
    return Done(f"{if_known(left)} under way, less and less", {"under_way": left})


class _Reading(NamedTuple):
    """A reading of all pairs: the number that is under way, and the reasons why it is not little."""

    pairs: Sequence[Both]
    left: int | None
    why: list[str]


def _not_followed(link_ends: Sequence[LinkEnds], pairs: Sequence[Both], move: Move) -> Iterator[Finding]:
    """Find what came since the checks, or with a site that was taken in."""
    for (view, peer), both in zip(link_ends, pairs, strict=True):
        yield from unreplicated(*copies.followed(view.reader(), peer.reader(), *both), move)


def under_way(pairs: Sequence[Both]) -> int | None:
    """Count the messages to ship and the acknowledgements to apply, or None if a count was not read."""
    return total(count for both in pairs for view in both for count in (view.link.to_ship, view.link.unapplied))


def _not_taken(pairs: Sequence[Both]) -> Iterator[Finding]:
    """Report the messages each serving site has staged and its queues do not take, with a remedy."""
    for source, _ in pairs:
        staged = [f"{flow.queue}: {flow.staging.depth}" for flow in source.flows if flow.staging.depth]
        if staged:
            yield found("DR-CONT-017.not_taken", source=source.site, queues=brief(staged))


def _without_echoes(
    tools: ContinuityTools, link_ends: Sequence[LinkEnds], pairs: Sequence[Both], context: StepContext
) -> int:
    """Remove staged messages that also lie in the target's queue, and count how many were seen to be gone. Remove no
    message where the ids could not be read, for the drain compares all of them."""
    removed = 0
    for (_, peer), (_, target) in zip(link_ends, pairs, strict=True):
        try:
            if twice := copies.echoes(peer.reader(), target):
                places = [(target.places(name)[1], gone) for name, gone in twice.items()]
                tools.change([call for staged, gone in places for call in copies.remove(target, staged, gone)], context)
                left = copies.echoes(peer.reader(), target)
                removed += sum(
                    len(gone.ids - (left[name].ids if name in left else set())) for name, gone in twice.items()
                )
        except BrokerError as error_:
            context.notice(f"second copies at {target.site} are left for the drain: {error_}")
    return removed


@dataclass(frozen=True, slots=True)
class _Still:
    """The staged and confirmed counts of a flow; since when they are the same, and how many messages the queue had been
    given by then."""

    staged: int
    confirmed: int
    since_s: float
    added: int


class _Idle:
    """Messages staged at a serving site that do not move: `already_delivered` by pair and queue the ids that the site
    had before."""

    def __init__(self, waits: PluginTimeouts, already_delivered: dict[str, dict[str, frozenset[str]]]) -> None:
        self._waits, self._already_delivered = waits, already_delivered
        self._still: dict[tuple[str, str], _Still] = {}

    def why(self, ends: LinkEnds, both: Both, now_s: float) -> list[str]:
        """Name the messages still being delivered, except messages long refused that this site had before."""
        source, reasons = both[0], []
        for flow in source.flows:
            queue = source.business.get(flow.queue)
            now = _Still(flow.staging.depth, flow.target_bridge.acked, now_s, queue.added if queue is not None else 0)
            was = self._still.get((source.pair, flow.queue), now)
            if (now.staged, now.confirmed) != (was.staged, was.confirmed):
                was = now
            self._still[source.pair, flow.queue] = was
            for_s = now_s - was.since_s
            stuck = flow.stuck and for_s >= self._waits.stuck_s
            takes = for_s >= self._waits.refused_s and now.added > was.added
            unread = ""
            try:
                refused = stuck and self._refused(ends, both, flow.queue, takes=takes)
            except BrokerError as error_:
                refused, unread = False, f" (whether it refuses them was not read: {error_})"
            if now.staged and not refused:
                reasons.append(f"{source.site} still delivers {now.staged} staged message(s) of {flow.queue}{unread}")
        return reasons

    def _refused(self, ends: LinkEnds, both: Both, queue: str, *, takes: bool) -> bool:
        """True if a queue that takes no staged message also lacks none. A message in neither its queue nor at the other
        site was consumed. A message still at the other site but not in this queue was had here, if the queue takes
        other messages; otherwise the address or the disk may be full."""
        local, peer = ends
        if queue in copies.one_sided(*both):
            return False
        left = copies.still_to_deliver(local.reader(), peer.reader(), *both, queue)
        if left and not (takes and copies.refuses_only_what_it_had(local.reader(), both[0], queue)):
            return False
        self._already_delivered.setdefault(both[0].pair, {})[queue] = left
        return True


def drain(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift the pauses beside it; wait, compare by id, remove, and wait again for what that set going."""
    drain = _Drain(tools, step, move, context)
    # The gate's window may begin with the first reading: to lift a pause takes a reading too, and a broker answers one
    # after the other.
    drain.read()
    with lifting(tools, move, context) as lifted:
        outcome = drain.until_same()
    tools.gate.begun = drain.begun
    return lifted.judged(outcome)


class _Drain:
    """How far one drain is. `begun` has one or two readings of each pair: the first since which nothing was on its way,
    nor came in, and the latest at which the gate held. The time in which bridges confirm late runs while what has
    arrived waits for the staging delay."""

    def __init__(self, tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> None:
        self._tools, self._step, self._move, self._context = tools, step, move, context
        self._link_ends = tools.observer.link_ends(move)
        self.begun: dict[str, list[PairReading[SiteView]]] = {}
        self._began = self._moved_at = context.monotonic()
        # How long a reading may take: more after each that took longer, for a console may be slow and a reading that
        # hangs is rare.
        self._read_timeout_s = tools.waits.read_timeout_s
        self._pairs: list[Both] = []
        self._reasons: list[str] = []
        self._left: int | None = None
        self._unread: str | None = None
        self._calm = 0
        self._same = False  # the last comparison left nothing to remove, and nothing was on its way since
        self._removed: dict[str, set[str]] = {}  # the ids, by queue

    def read(self) -> None:
        """Look at both sites, and note what is to be kept of it."""
        try:
            self._pairs = self._tools.read(self._link_ends, timeout_s=self._read_timeout_s)
        except BrokerError as error_:
            self._pairs, self._reasons, self.begun = [], [str(error_)], {}
            self._read_timeout_s = min(2 * self._read_timeout_s, READ_S)
            return
        views = [view for both in self._pairs for view in both]
        self._reasons = [reason for view in views for reason in view.link.unsettled()]
        self._reasons += [f"{view.site} was opened" for view in views if view.open]
        staged = sum(flow.staging.scheduled for _, target in self._pairs for flow in target.flows)
        left = total([under_way(self._pairs), staged])
        if left != self._left:
            self._left, self._moved_at = left, self._context.monotonic()
        self._context.sample(evidence((view.site, view.link) for view in views))
        for source, target in self._pairs:
            self._note_begun(source, target)

    def _note_begun(self, source: SiteView, target: SiteView) -> None:
        # The time when the reading ended, as its numbers may be that young: a window that is too short would prove
        # nothing.
        now = PairReading(self._context.monotonic(), source, target)
        was = self.begun.get(source.pair)
        if not all(view.link.attached and not view.open and not [*view.under_way()] for view in (source, target)):
            self.begun.pop(source.pair, None)
        elif was is None or counter_changes(was[0], now):
            self.begun[source.pair] = [now]
        else:
            self.begun[source.pair] = [*was, now] if not common_blockers(now, was[0]) else was[:1]

    def until_same(self) -> Outcome:
        # Not `until`: the first reading was made before pauses were lifted, and a removal sets the count of stable
        # readings to zero.
        while self._link_ends:
            views = [view for both in self._pairs for view in both]
            quiet, why = not self._reasons, brief(self._reasons) if self._reasons else None
            still = quiet or (bool(views) and not any([*view.uncomparable(), *clients_of(view)] for view in views))
            self._context.report_waiting("reasons that keep the drain going", len(self._reasons), why)
            # Compared once they were still for long enough, and have not been since.
            self._calm, self._same = self._calm + 1 if still else 0, self._same and still
            if self._calm >= QUIET_READINGS and not self._same and (refused := self._compare()) is not None and quiet:
                return refused
            if self._same and quiet:
                break
            if (late := self._why_late(why or self._unread or "it was not still for long enough")) is not None:
                return late
            self._context.wait(self._tools.waits.poll_s)
            self.read()
        removed: dict[str, Json] = {queue: len(ids) for queue, ids in self._removed.items()}
        suffix = f"; {sum(map(len, self._removed.values()))} message(s) removed that had been done" if removed else ""
        return Done(f"nothing is under way, and both sites hold the same{suffix}", {"removed": removed})

    def _why_late(self, why: str) -> Failed | None:
        now, stall_s = self._context.monotonic(), self._step.limits["stall"]
        if (took := now - self._began) > self._step.limits["within"]:
            return Failed(f"not drained after {duration(took)}: {why}", code=ExitCode.DRAIN_TIMEOUT)
        if now - self._moved_at > stall_s:
            return Failed(f"nothing moved for {duration(stall_s)}: {why}", code=ExitCode.DRAIN_TIMEOUT)
        return None

    def _compare(self) -> Failed | None:
        """Remove messages that must not be delivered; a removal has to settle. Gives the reason against the move."""
        tools, move, removed = self._tools, self._move, False
        for (view, peer), (source, target) in zip(self._link_ends, self._pairs, strict=True):
            compared, refused = compare(
                tools.observer, source, target, move, tools.already_delivered.get(source.pair, {})
            )
            unread = [comparison.queue for comparison in compared if not comparison.known]
            if unread and _differs(source, target, unread, move):
                self._unread = (
                    f"{brief(unread)} could not be compared by id, and a count does not show what would be lost"
                )
                return None
            if refused is not None:
                return refused
            if started := [flow.queue for flow in target.flows if flow.target_bridge.started]:
                return Failed(f"{target.site}: its delivery of {brief(started)} is started although it is not active")
            gone = {
                comparison.queue: comparison.surplus | comparison.consumed
                for comparison in compared
                if comparison.surplus or comparison.consumed
            }
            if not gone:
                continue
            [(later, _)] = tools.read([(view, peer)])
            try:
                calls = list(copies.removals(later, target, compared))
            except IncompleteListing as error_:
                self._unread = str(error_)
                return None
            tools.change(calls, self._context)
            for queue, ids in gone.items():
                self._removed.setdefault(queue, set()).update(ids)
            self._calm, self._moved_at = 0, self._context.monotonic()
            self.begun = {pair: readings[:1] for pair, readings in self.begun.items()}
            removed = True
        self._same = not removed
        return None


def _differs(source: SiteView, target: SiteView, queues: Sequence[str], move: Move) -> bool:
    """True if a queue that only has a count differs from the accepted number, or has no accepted number."""
    accepted = move.spec.accept_difference
    return any(source.business[name].depth - target.depth_of(name) != accepted.get(name) for name in queues)


DEACTIVATED: Final = "a command that was under way has deactivated the site"
MAX_AGAIN: Final = 10


def draft_probe(rules: Rules, step: RunbookStep, snapshot: ContinuitySnapshot, move: Move) -> StepPlan:
    common = proving.draft_probe(rules, step, snapshot, move)
    again = [
        replace(call, at_most=MAX_AGAIN)
        for view in snapshot.views(move.target)
        for call in view.fence.opening(view.listeners, PeerState.NOT_DRAINED, DEACTIVATED)
    ]
    summary = f"{common.summary}; then watched until no late command can undo the activation"
    return replace(common, summary=summary, calls=(*common.calls, *in_phase("again", again)))


def activate_and_wait(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    _let_begin(tools, step, move, context)
    return activate.act(tools, step, move, context)


def _let_begin(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> None:
    """Wait for a delivery that is about to begin. An activation sent before a crash is not sent again, for each
    activation tells the other site to stop. Where no client is let in, the activation has failed, and waiting is
    useless. A gate that was seen to hold saw the target closed: no delivery is about to begin there."""
    if tools.gate.samples:
        return
    within_s = WAITS_MS[peer_state(move.spec.operation)] / 1000 if step.phase("listeners") else 0.0
    until(
        context,
        lambda: tools.observer.read_at(move.target),
        holds=lambda views: not any(view.activating for view in views),
        hopeless=lambda _: not tools.listeners.accept_client(tools.observer.at(move.target)),
        within_s=within_s + tools.waits.watch_poll_s,
        poll_s=tools.waits.watch_poll_s,
    )


def probe(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    outcome = proving.probe(tools, step, move, context)
    if isinstance(outcome, Failed) and not all(view.delivers for view in tools.observer.read_at(move.target)):
        # A command was quicker than the message.
        if not isinstance(watched := _watch(tools, step, move, context), Done):
            return watched
        outcome = proving.probe(tools, step, move, context)
        outcome = replace(outcome, text=f"{watched.text}; {outcome.text}")
    if not isinstance(outcome, Done | NotNeeded):
        return outcome
    closed_again = _watch(tools, step, move, context)
    if isinstance(closed_again, Failed | Unknown):
        return closed_again
    text = f"{outcome.text}; {closed_again.text}"
    return replace(outcome, text=text, findings=(*outcome.findings, *closed_again.findings))


@dataclass(frozen=True, slots=True)
class _Activated:
    """A reading after an activation: why it is not calm, whether the source is open beside a target that does not
    deliver, and for how long it has to be calm."""

    why_not_calm: str | None
    other_site_open: bool
    calm_for_s: float


def _watch(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Until no command is under way any more: activate again what one has deactivated."""
    began_s = calm_s = context.monotonic()
    again = 0

    def read() -> _Activated:
        nonlocal again, calm_s
        views, others = tools.observer.read_at(move.target), tools.observer.read_once().views(move.source)
        deactivated = [view for view in views if not view.delivers]
        other_site_open = bool(deactivated) and any(view.open for view in others)
        # A pair that is activated again delivers by itself: another call would begin its wait for the peer anew, and
        # tell that once more to stop.
        shut = {view.pair for view in deactivated if not view.activating}
        if shut and not other_site_open:
            again += 1
            if again <= MAX_AGAIN:
                context.notice(f"{move.target}: {min(shut)} was deactivated by a command: activating it again")
                tools.change([call for call in step.phase("again") if call.unit in shut], context)
        # Of a site that is away nothing comes, and what waits for it is kept.
        commands = [_commands(view) for view in (*views, *others)] if others else [None]
        undelivered = f"{min(view.pair for view in deactivated)} does not deliver yet" if deactivated else None
        why_not_calm = "commands of the plugin are still under way" if any(commands) else undelivered
        calm_s = context.monotonic() if why_not_calm is not None else calm_s
        why = undelivered or (None if others else f"{move.source} does not answer")
        context.report_waiting(
            "commands of the plugin under way, which could undo the activation", total(commands), why
        )
        intervals = [view.service.interval_ms / 1000 for view in views if view.service is not None]
        calm_for_s = max(tools.waits.watch_s, tools.waits.watch_intervals * max(intervals, default=0.0))
        return _Activated(why_not_calm, other_site_open, calm_for_s)

    waited = until(
        context,
        read,
        holds=lambda now: now.why_not_calm is None and context.monotonic() - calm_s >= now.calm_for_s,
        hopeless=lambda now: now.other_site_open or again > MAX_AGAIN or calm_s - began_s > tools.waits.watch_at_most_s,
        within_s=None,  # a calm that began in time is watched to its end
        poll_s=tools.waits.watch_poll_s,
    )
    if waited.reading.other_site_open:
        return Unknown(f"{move.target} was deactivated by a command, and {move.source} is open")
    if not waited.satisfied:
        # A late command may still undo it: a person has to look.
        often = again > MAX_AGAIN
        why = "it is deactivated again and again" if often else if_known(waited.reading.why_not_calm)
        finding = found("DR-CONT-016", target=move.target, why=why)
        return Failed(f"{move.target} was opened, but {why}", findings=(finding,), code=ExitCode.INCOMPLETE)
    findings = _left_staged(tools, move, context)
    if not again:
        return Done("no command undid the activation", findings=findings)
    try:
        closed = tools.listeners.why_not(move.target, serving=True)
    except BrokerError as error:
        closed = str(error)
    if closed is not None:
        return Unknown(f"{move.target} was deactivated and activated again, and {closed}: look at {move.target} first")
    return Done(f"activated again {again} time(s) after a late command", findings=findings)


def _left_staged(tools: ContinuityTools, move: Move, context: StepContext) -> tuple[Finding, ...]:
    """Report messages that were handed to their queue and are not taken, for longer than bridges confirm late."""
    first = _handed(tools.observer.read_at(move.target))
    if not first:
        return ()
    context.wait(tools.waits.window_s)
    now = _handed(tools.observer.read_at(move.target))
    left = [flow for key, flow in now.items() if key in first and _stands(first[key]) == _stands(flow)]
    if not left:
        return ()
    numbers = brief([f"{flow.queue}: {flow.staging.depth}" for flow in left])
    return (
        found(
            "DR-CONT-018", target=move.target, numbers=numbers, left=brief([flow.target_bridge.name for flow in left])
        ),
    )


def _handed(views: Sequence[SiteView]) -> dict[tuple[str, str], Flow]:
    """The flows all of whose staged messages have been handed over, by pair and queue."""
    return {(view.pair, flow.queue): flow for view in views for flow in view.flows if flow.stuck}


def _stands(flow: Flow) -> tuple[int, int]:
    """How many wait, and how many were confirmed."""
    return flow.staging.depth, flow.target_bridge.acked


def _commands(view: SiteView) -> int | None:
    """Count the commands under way, if the plugin has started."""
    return view.commands.out.depth + view.commands.into.depth if view.commands is not None else None


# Losses of the plugin's way between the sites.
LOST_ON_THE_WAY: Final = (
    "what was rolled back, or held by a session that closed: the plugin deletes its copies (the drain names them)",
    "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
    "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
    "messages that were put into a queue through management: they pass the plugin by",
)
BY_CONSOLE: Final = "activateSite of the continuity plugin, which starts its client acceptors"

PROCEDURE: Final[Procedure[ContinuitySnapshot, ContinuityTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up),
    "quarantine": reinstate.QUARANTINE,
    "drain": VerbHandler(draft_drain, drain),
    "activate": VerbHandler(activate.draft, activate_and_wait, activate.UNDO),
    "probe": VerbHandler(draft_probe, probe),
    # How a lost site is taken in again.
    "residue": VerbHandler(fence.draft_of_returned, reinstate.count_residue),
    "reinstate": VerbHandler(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": VerbHandler(reinstate.draft_reconcile, reinstate.reconcile),
}
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, ContinuityTools, BY_CONSOLE, LOST_ON_THE_WAY)
