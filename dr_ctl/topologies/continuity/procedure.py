"""The handlers of runbook verbs for sites that the continuity plugin connects; the table at the end names them.

`catch-up` waits until little is under way; `drain` waits, behind the fence, until both sites hold the same. `activate`
waits until the target delivers its staged messages: messages that arrive at a closed site wait in staging queues.
`probe` then watches until no command of one plugin to the other is under way, and activates again after a late one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, brief, total
from dr_ctl.core.notation import if_known
from dr_ctl.engine.plan import Call, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis.reading import policies
from dr_ctl.topologies.common.consumed import IncompleteListing
from dr_ctl.topologies.common.gate import PairReading, common_blockers, pair_counters_changed, why_clients_are_not_out
from dr_ctl.topologies.common.recipe import Procedure, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import activate, proving
from dr_ctl.topologies.common.verbs.activate import peer_state
from dr_ctl.topologies.common.verbs.quiesce import LIFTED, with_pauses_lifted
from dr_ctl.topologies.common.view import PeerState
from dr_ctl.topologies.common.waiting import SMALL_OUTFLOW, Wait
from dr_ctl.topologies.common.wants import SOURCE, TARGET, draft_of
from dr_ctl.topologies.continuity import copies, reinstate
from dr_ctl.topologies.continuity.checks import CHECKS, unreplicated
from dr_ctl.topologies.continuity.reading import READS, LinkEnds
from dr_ctl.topologies.continuity.tools import BothDirections, ContinuityTools, compare
from dr_ctl.topologies.continuity.view import WAITS_MS, ContinuitySnapshot, Flow, SiteView

UNDER_WAY: Final = "under way between the sites"
QUIET_READINGS: Final = 2
draft_catch_up: Final = draft_of(
    SOURCE,
    "{serving_prefix}all bridges connected, the outflow small, nothing staged left to deliver; messages staged at "
    "{target} that are also in their queue removed by id",
    (lambda at: copies.staged_removed(at, f"it is in the queue of {at.view.site} as well"), TARGET),
    limits=Rules.catching_up,
)
draft_drain: Final = draft_of(
    TARGET,
    "everything shipped and applied, in both directions; copies that must not be delivered removed by id; pauses "
    "lifted meanwhile",
    *LIFTED,
    (
        lambda at: copies.planned_removals(at, (q for flow in at.view.flows for q in at.view.places_of(flow.queue))),
        TARGET,
    ),
    limits=Rules.draining,
)


class _WhileServing(BothDirections):
    """Waits at a pair whose source serves until bridges are connected and staged messages of the source delivered."""

    def __init__(self, ends: LinkEnds, tools: ContinuityTools, context: StepContext) -> None:
        super().__init__(*ends)
        self._tools, self._context = tools, context
        # For each queue: its staged and confirmed messages, when these changed last, and its added messages then.
        self._last_changes: dict[str, tuple[tuple[int, int], float, int]] = {}

    def reasons(self, source: SiteView, target: SiteView) -> list[str]:
        reasons = [*self._why_delivering(source, target)]
        reasons += [f"a bridge of {view.site} is not connected" for view in (source, target) if not view.link.attached]
        if self.remaining(source, target) is None:
            reasons.append("the numbers under way were not read: the continuity plugin has not started")
        return reasons

    def _why_delivering(self, source: SiteView, target: SiteView) -> Iterator[str]:
        """Name the messages that are still delivered, without staged messages that their queue refuses, because it had
        them before."""
        waits, now_s = self._tools.waits, self._context.monotonic()
        for flow in source.flows:
            added = source.business[flow.queue].added if flow.queue in source.business else 0
            if flow.delivery != self._last_changes.get(flow.queue, (None,))[0]:
                self._last_changes[flow.queue] = flow.delivery, now_s, added
            _, since_s, added_before = self._last_changes[flow.queue]
            accepting = now_s - since_s >= waits.refused_s and added > added_before
            stuck, refused, unread = flow.stuck and now_s - since_s >= waits.stuck_s, False, ""
            try:
                refused = stuck and self._refused(source, target, flow.queue, accepting=accepting)
            except BrokerError as error:
                unread = f" (whether it refuses them was not read: {error})"
            if flow.staging.depth and not refused:
                count = flow.staging.depth
                yield f"{source.site} still delivers {count} staged message(s) of {flow.queue}{unread}"

    def _refused(self, source: SiteView, target: SiteView, queue: str, *, accepting: bool) -> bool:
        """True if a queue that accepts no staged message lacks none of them. A message that is neither in its queue nor
        at the other site was consumed. A message that is at the other site and not in this queue was here before, if
        the queue accepts other messages; if not, the address or the disk may be full."""
        if queue in copies.one_sided_queues(source, target):
            return False
        (in_queue, staged), local = source.places(queue), self.local.reader()
        # Staged ids are read first: a message that is delivered meanwhile is found in the queue.
        behind, delivered = copies.read_ids(local, [staged, in_queue])
        at_target = frozenset[str]().union(*copies.read_ids(self.remote.reader(), target.places(queue)))
        undelivered = (behind - delivered) & at_target
        # Only an address that pages always accepts messages: one that fails or drops sends while it is full may have
        # refused these for that reason, and one that blocks may starve the bridge.
        if undelivered and not (accepting and policies(local, source, [in_queue.address])[in_queue.address] == "PAGE"):
            return False
        self._tools.already_delivered.setdefault(source.pair, {})[queue] = undelivered
        return True


def catch_up(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    link_ends = tools.observer.link_ends(move)
    wait = Wait(tools, [_WhileServing(ends, tools, context) for ends in link_ends], context, UNDER_WAY, SMALL_OUTFLOW)
    failed, removed = wait.until(tools.waits.poll_s, step.limits, stable_for=1), 0
    if failed is None and (removed := _remove_second_copies(tools, link_ends, context)):
        # Clients have worked during the removal.
        failed = wait.until(tools.waits.poll_s, step.limits, stable_for=1)
    if failed is None:
        # Messages may have arrived since the checks, or with a reinstated site.
        views_by_ends = zip(link_ends, tools.read(link_ends), strict=True)
        compared = [copies.add_uncopied(view.reader(), peer.reader(), *views) for (view, peer), views in views_by_ends]
        if against := [finding for views in compared for finding in unreplicated(*views, move)]:
            return Failed(brief([finding.text for finding in against]), findings=tuple(against))
        suffix = f"; {removed} second copies removed at {move.target}" if removed else ""
        refused_ids = {queue: ids for flows in tools.already_delivered.values() for queue, ids in flows.items() if ids}
        if refused_ids:
            numbers = brief([f"{queue}: {len(ids)}" for queue, ids in refused_ids.items()])
            suffix += f"; staged at {move.source} and refused there, because they were delivered before: {numbers}"
        ids_by_queue: dict[str, Json] = {queue: [*sorted(ids)] for queue, ids in refused_ids.items()}
        evidence: dict[str, Json] = {"under_way": wait.last, "removed": removed, "had": ids_by_queue}
        return Done(f"{if_known(wait.last)} under way{suffix}", evidence)
    if wait.why:
        staged = [
            (view.site, brief([f"{flow.queue}: {flow.staging.depth}" for flow in view.flows if flow.staging.depth]))
            for view in tools.observer.answering(move.source)
        ]
        findings = tuple(
            found("DR-CONT-017.not_taken", source=site, queues=queues) for site, queues in staged if queues
        )
        return Failed(f"not caught up: {brief(wait.why)}", findings=findings)
    if wait.first is not None and wait.last is not None and wait.last >= wait.first:
        return Failed(f"the outflow grows while clients work: {wait.first}, then {wait.last}")
    return Done(f"{if_known(wait.last)} under way, and falling", {"under_way": wait.last})


def _remove_second_copies(tools: ContinuityTools, link_ends: Sequence[LinkEnds], context: StepContext) -> int:
    """Remove staged messages that are also in the target's queue, and count those that a reading no longer shows. If
    ids cannot be read, the removal is left to the drain, which compares all ids."""
    removed = 0
    for _, peer in link_ends:
        try:
            target = peer.read()
            if second := copies.second_copies(peer.reader(), target):
                places = [(target.places(name)[1], consumed) for name, consumed in second.items()]
                calls = [call for place in places for call in copies.calls_to_remove(target, *place)]
                tools.change(calls, context)
                left = copies.second_copies(peer.reader(), target)
                removed += sum(
                    len(consumed.ids - (left[name].ids if name in left else set())) for name, consumed in second.items()
                )
        except BrokerError as error_:
            context.notice(f"second copies at {peer.site} are left for the drain: {error_}")
    return removed


def drain(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Lift pauses; wait, compare by id, remove, and wait for the effect of the removals."""
    pairs = [_BehindFence(ends, tools, move, context) for ends in tools.observer.link_ends(move)]
    # A reading that hangs is rare, and prolongs the outage.
    wait = Wait(tools, pairs, context, UNDER_WAY, timeout_s=tools.waits.read_timeout_s)
    # The gate's window may begin with this reading, before pauses are lifted: a broker answers one request after the
    # other.
    wait.read()

    def drained() -> Outcome:
        failed = wait.until(tools.waits.poll_s, step.limits, stable_for=1)
        tools.gate.drain_readings = {pair.local.pair: pair.begun for pair in pairs if pair.begun}
        removed: dict[str, Json] = {queue: len(ids) for pair in pairs for queue, ids in pair.removed.items()}
        count = sum(len(ids) for pair in pairs for ids in pair.removed.values())
        suffix = f"; {count} processed message(s) removed" if removed else ""
        return failed or Done(f"nothing is under way, and both sites hold the same{suffix}", {"removed": removed})

    return with_pauses_lifted(tools, move, context, drained)


class _BehindFence(BothDirections):
    """Waits at a pair behind the fence, compares it by id once nothing was under way for long enough, and removes
    messages that must not be delivered. `begun` has the reading since which nothing was under way or arrived, and then
    the readings at which the gate held: the gate's window runs during the staging delay."""

    repairing = "copies of messages that its clients consumed are removed at the other site"

    def __init__(self, ends: LinkEnds, tools: ContinuityTools, move: Move, context: StepContext) -> None:
        super().__init__(*ends)
        self._tools, self._move, self._context = tools, move, context
        self.begun: list[PairReading[SiteView]] = []
        self.removed: dict[str, set[str]] = {}  # the ids, by queue
        self._quiet = 0
        self._same = False  # the last comparison left nothing to remove, and nothing was under way since
        self._removals: list[Call] = []

    def remaining(self, source: SiteView, target: SiteView) -> int | None:
        return total((super().remaining(source, target), *(flow.staging.scheduled for flow in target.flows)))

    def reasons(self, source: SiteView, target: SiteView) -> list[str]:
        self._note_begun(source, target)
        views = (source, target)
        reasons = [reason for view in views for reason in view.link.unsettled()]
        reasons += [f"{view.site} was opened" for view in views if view.open]
        still = not reasons or not any([*view.uncomparable(), *why_clients_are_not_out(view)] for view in views)
        self._quiet, self._same, self._removals = self._quiet + 1 if still else 0, self._same and still, []
        if self._same or self._quiet < QUIET_READINGS:
            return reasons if self._same else reasons or ["it was not quiet for long enough"]
        return [*reasons, *self._compare(source, target, quiet=not reasons)]

    def _note_begun(self, source: SiteView, target: SiteView) -> None:
        # The time is that of the reading's end, because its numbers may be as recent.
        reading, begun = PairReading(self._context.monotonic(), source, target), self.begun
        if not all(view.link.attached and not view.open and not [*view.under_way()] for view in (source, target)):
            self.begun = []
        elif not begun or pair_counters_changed(reading, begun[0]):
            self.begun = [reading]
        else:
            self.begun = [*begun, reading] if not common_blockers(reading, begun[0]) else begun[:1]

    def _compare(self, source: SiteView, target: SiteView, *, quiet: bool) -> Iterator[str]:
        """Plan the removal of messages that must not be delivered; yield the reasons why the wait continues."""
        tools, move = self._tools, self._move
        already_delivered, accepted = tools.already_delivered.get(source.pair, {}), move.spec.accept_difference
        compared, unread, refused = compare(tools.observer, source, target, move, already_delivered)
        # A queue with only a count must differ by an accepted number.
        if any(source.business[name].depth - target.depth_of(name) != accepted.get(name) for name in unread):
            yield f"{brief(unread)} could not be compared by id, and a count does not show what would be lost"
            return
        if refused is None and (started := [flow.queue for flow in target.flows if flow.target_bridge.started]):
            refused = Failed(f"{target.site}: its delivery of {brief(started)} is started although it is not active")
        if refused is not None:
            self.refused = refused if quiet else None
            yield refused.text
            return
        extra = {comparison.queue: ids for comparison in compared if (ids := comparison.surplus | comparison.consumed)}
        try:
            # Removals need a reading from after the comparison.
            self._removals = list(copies.removal_calls(self.local.read(), target, compared)) if extra else []
        except IncompleteListing as error:
            yield str(error)
            return
        self._same = not extra
        for queue, ids in extra.items():
            yield f"{len(ids)} message(s) of {queue} at {target.site} that must not be delivered"
            self.removed.setdefault(queue, set()).update(ids)
            self._quiet, self.begun = 0, self.begun[:1]

    def repair_calls(self, _source: SiteView, _target: SiteView | BrokerError) -> list[Call]:
        return self._removals


DEACTIVATED: Final = "a command that was under way has deactivated the site"
MAX_AGAIN: Final = 10


def draft_probe(rules: Rules, step: RunbookStep, snapshot: ContinuitySnapshot, move: Move) -> StepPlan:
    common = proving.draft_probe(rules, step, snapshot, move)
    activations = [
        replace(call, at_most=MAX_AGAIN)
        for view in snapshot.views(move.target)
        for call in view.fence.opening(view.listeners, PeerState.NOT_DRAINED, DEACTIVATED)
    ]
    summary = f"{common.summary}; then watched until no late command can undo the activation"
    return replace(common, summary=summary, calls=(*common.calls, *in_phase("again", activations)))


def activate_and_wait(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Wait first for a delivery that is about to begin: each activation tells the other site to stop, so an activation
    from before a crash is not repeated. If no client is let in, the activation has failed, and there is no wait. If the
    gate held in this process, the target was closed, so no delivery is about to begin."""
    if not tools.gate.samples:
        within_s = WAITS_MS[peer_state(move.spec.operation)] / 1000 if step.phase("listeners") else 0.0
        context.until(
            lambda: tools.observer.read_at(move.target),
            holds=lambda views: not any(view.activating for view in views),
            hopeless=lambda _: not tools.listeners.accept_client(tools.observer.at(move.target)),
            within_s=within_s + tools.waits.watch_poll_s,
            poll_s=tools.waits.watch_poll_s,
        )
    return activate.act(tools, step, move, context)


def probe(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    outcome = proving.probe(tools, step, move, context)
    if isinstance(outcome, Failed) and not all(view.delivers for view in tools.observer.read_at(move.target)):
        # A command arrived before the message.
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


def _watch(tools: ContinuityTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Watch until no command is under way, and activate again the pairs that a command has deactivated."""
    began_s = calm_s = context.monotonic()
    again, other_site_open = 0, False

    def read() -> tuple[str | None, float]:
        """Return the reason why it is not calm, and how long it has to be calm."""
        nonlocal again, calm_s, other_site_open
        views, others = tools.observer.read_at(move.target), tools.observer.read_once().views(move.source)
        deactivated = [view for view in views if not view.delivers]
        other_site_open = bool(deactivated) and any(view.open for view in others)
        # A pair that was activated again will deliver: another call would restart its wait for the peer, and tell the
        # peer again to stop.
        pairs = {view.pair for view in deactivated if not view.activating}
        if pairs and not other_site_open:
            again += 1
            if again <= MAX_AGAIN:
                context.notice(f"{move.target}: {min(pairs)} was deactivated by a command: activating it again")
                tools.change([call for call in step.phase("again") if call.unit in pairs], context)
        # A site that does not answer sends no commands, and commands for it are kept.
        commands = [view.commands.under_way if view.commands else None for view in (*views, *others)] if others else []
        undelivered = f"{min(view.pair for view in deactivated)} does not deliver yet" if deactivated else None
        why_not_calm = "commands of the plugin are still under way" if any(commands) else undelivered
        calm_s = context.monotonic() if why_not_calm is not None else calm_s
        why = undelivered or (None if others else f"{move.source} does not answer")
        count = total(commands) if others else None
        context.report_waiting("commands of the plugin under way, which could undo the activation", count, why)
        interval_s = max((view.service.interval_ms / 1000 for view in views if view.service is not None), default=0.0)
        return why_not_calm, max(tools.waits.watch_s, tools.waits.watch_intervals * interval_s)

    waited = context.until(
        read,
        holds=lambda now: now[0] is None and context.monotonic() - calm_s >= now[1],
        hopeless=lambda _: other_site_open or again > MAX_AGAIN or calm_s - began_s > tools.waits.watch_at_most_s,
        within_s=None,  # the watch goes on to the end of a calm that began in time
        poll_s=tools.waits.watch_poll_s,
    )
    if other_site_open:
        return Unknown(f"{move.target} was deactivated by a command, and {move.source} is open")
    if not waited.satisfied:
        # A late command may still undo the activation: a person has to look.
        why = "it is deactivated again and again" if again > MAX_AGAIN else if_known(waited.reading[0])
        finding = found("DR-CONT-016", target=move.target, why=why)
        return Failed(f"{move.target} was opened, but {why}", findings=(finding,), code=ExitCode.INCOMPLETE)
    findings = _report_staged(tools, move, context)
    if not again:
        return Done("no command undid the activation", findings=findings)
    try:
        closed = tools.listeners.why_not(move.target, serving=True)
    except BrokerError as error:
        closed = str(error)
    if closed is not None:
        return Unknown(f"{move.target} was deactivated and activated again, and {closed}: look at {move.target} first")
    return Done(f"activated again {again} time(s) after a late command", findings=findings)


def _report_staged(tools: ContinuityTools, move: Move, context: StepContext) -> tuple[Finding, ...]:
    """Report messages that were sent to their queue and not accepted for longer than bridges confirm late."""

    def read_stuck() -> dict[tuple[str, str], Flow]:
        views = tools.observer.read_at(move.target)
        return {(view.pair, flow.queue): flow for view in views for flow in view.flows if flow.stuck}

    if not (first := read_stuck()):
        return ()
    context.wait(tools.waits.window_s)
    left = [flow for key, flow in read_stuck().items() if key in first and first[key].delivery == flow.delivery]
    numbers, bridges = ([f"{flow.queue}: {flow.staging.depth}" for flow in left], [f.target_bridge.name for f in left])
    finding = found("DR-CONT-018", target=move.target, numbers=brief(numbers), left=brief(bridges))
    return (finding,) if left else ()


# Losses by the plugin's replication.
NOT_REPLICATED: Final = (
    "messages rolled back, or held by a session that closed: the plugin deletes their copies (the drain names them)",
    "the time of delivery of scheduled messages: the plugin replaces it by its staging delay",
    "counts of queues that share an address, multicast ones above all: the plugin ships a message once for each",
    "messages that were put into a queue through management: the plugin does not ship them",
)
PROCEDURE: Final[Procedure[ContinuitySnapshot, ContinuityTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, catch_up),
    "quarantine": reinstate.QUARANTINE,
    "drain": VerbHandler(draft_drain, drain),
    "activate": VerbHandler(activate.draft, activate_and_wait, activate.UNDO),
    "probe": VerbHandler(draft_probe, probe),
    # These verbs reinstate a lost site.
    "residue": reinstate.RESIDUE,
    "reinstate": VerbHandler(reinstate.draft, reinstate.act, reinstate.UNDO),
    "reconcile": VerbHandler(reinstate.draft_reconcile, reinstate.reconcile),
}
TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, ContinuityTools, NOT_REPLICATED)
