"""The handlers of runbook verbs for a shared store, which its holder hands over; the table at the end names them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Json, Role, brief
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.operations import ACTIVATE, FAILOVER
from dr_ctl.engine.plan import Call, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.roles import roles_text
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common import recipe as common
from dr_ctl.topologies.common.gate import Gate, PairReading
from dr_ctl.topologies.common.recipe import Procedure, Recipe, Undo, VerbHandler
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.topology import COMMON, TopologyDefinition
from dr_ctl.topologies.common.verbs import fence
from dr_ctl.topologies.common.verbs.activate import changes
from dr_ctl.topologies.common.wants import DEBTS_CLEARED, SOURCE, TARGET, Limits, SiteOf, debts_as_before, draft_of
from dr_ctl.topologies.sharedstore.checks import CHECKS, of_missing_in_store
from dr_ctl.topologies.sharedstore.reading import READS, Observer
from dr_ctl.topologies.sharedstore.store import Lag
from dr_ctl.topologies.sharedstore.view import STOPPED, BrokerView, hand_over, start

NOTHING = "nothing to ship: both sites use one store"
SMALL_LAG: Final = 1_000_000  # bytes of the database's WAL, written in less than a second


class StoreGate(Gate[BrokerView]):
    observer: Observer

    def blockers(self, now: PairReading[BrokerView], before: PairReading[BrokerView] | None, move: Move) -> list[str]:
        reasons = super().blockers(now, before, move)
        source = now.source
        # In a resumed run, the source may have given up the store already, and is closed.
        if not source.has_the_store and not (move.activation_sent and not source.answered):
            lock = source.lock.text if source.lock is not None else "the lock was not read"
            reasons.append(f"{source.site} does not hold the store: {lock}")
        return reasons

    def compare(self, now: PairReading[BrokerView], move: Move) -> Outcome:
        """Compare the holder's queues with the store: a message that is only in the holder's memory is lost with it."""
        source = now.source
        depths: dict[str, Json] = {name: queue.depth for name, queue in source.business.items() if queue.depth}
        stored = self.observer.all()[0].shared.counts() if source.answered else None
        if stored is None:
            return Done("the gate holds", {"depths": depths})
        if findings := of_missing_in_store(source.count_missing(stored), move.spec.accept_difference):
            return Failed(findings[0].text, findings=tuple(findings))
        return Done("the gate holds, and the store has all of it", {"depths": depths})


class StoreTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, StoreGate(observer, recipe.rules.drain.poll))
        self.shared = observer.all()[0].shared

    def by_hand(self, site: str) -> str:
        """Return what to type if no site serves: start either broker, because an ended one has no management."""
        other_holder = [session for name in self.observer.brokers if name != site for session in self.observer.at(name)]
        starts = [session.store_config.start for session in (*other_holder, *self.observer.at(site))]
        return f"{' or '.join(starts)}: the first that starts takes the store and serves"


def _draft_of(
    site: SiteOf, summary: str, limits: Limits
) -> Callable[[Rules, RunbookStep, Snapshot[BrokerView], Move], StepPlan]:
    """Draft a wait for the store's replica; if both sites use one store, there is no wait."""
    no_wait, wait = draft_of(site, NOTHING), draft_of(site, summary, limits=limits)
    return lambda rules, step, snapshot, move: (no_wait if snapshot.one_store else wait)(rules, step, snapshot, move)


draft_catch_up: Final = _draft_of(SOURCE, "{serving_prefix}the replica of the store not far behind", Rules.catching_up)
draft_drain: Final = _draft_of(TARGET, "the replica of the store has all of it", Rules.draining)
# Only debts are cleared: the returned broker waits by itself.
draft_reinstate: Final = draft_of(TARGET, "{target} waits for the store; debts are cleared", *DEBTS_CLEARED)


def _wait_for_replica(tools: StoreTools, step: PlannedStep, _move: Move, context: StepContext, small: int) -> Outcome:
    if tools.shared.settings.replica is None:
        return NotNeeded(step.summary)

    def show(lag: Lag | None) -> None:
        size = lag.size if lag is not None else None
        context.sample({"replica": {"bytes": size}})
        context.report_waiting("bytes that the replica lacks", size, None)

    waited = context.until(
        tools.shared.lag,
        holds=lambda lag: lag is not None and lag.size <= small,
        within_s=step.limits["within"],
        poll_s=tools.timeouts.link_poll_s if small else tools.rules.drain.poll,
        meanwhile=show,
    )
    lag = waited.reading
    if waited.satisfied and lag is not None:
        return Done(f"{lag.size} byte(s) to replicate", {"bytes": lag.size, "messages": lag.messages})
    left = f"{lag.size} byte(s)" if lag is not None else "an unknown number of bytes"
    text = f"not drained after {duration(step.limits['within'])}: {left} to replicate"
    return Failed(text, code=ExitCode.DRAIN_TIMEOUT)


def reinstate(tools: StoreTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """Prove that the broker waits; without a command that shows its process, by its closed ports only."""
    for view in tools.observer.read_at(move.target):
        if view.role is not Role.STANDBY:
            state = "its process does not run" if view.runs is False else f"it is {view.role.value}"
            return Failed(f"{move.target} does not wait for the store: {state}")
    tools.reach(DEBTS_CLEARED, move, context)
    return Done(f"{move.target} waits for the store")


HANDOVER: Final = "handover"
START_SOURCE: Final = "beside"
START_TARGET: Final = "rescue"
ENDED: Final = "it has ended"
# Counts differ only if this number of readings shows it: clients work meanwhile, and a reading takes time.
COUNT_READINGS: Final = 5


def draft_activate(rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Draft the handover. A stop has no undo. A lost site gets no call: the target takes the store by itself."""
    sources, targets = snapshot.views(move.source), snapshot.views(move.target)
    fails_over = move.spec.operation == FAILOVER
    handovers = [] if fails_over else [hand_over(view, move.target) for view in sources if view.answered]
    source_starts = [] if fails_over else [call for view in sources for call in start(view, ENDED)]
    target_starts = [] if fails_over else [call for view in targets for call in start(view, ENDED)]
    # A waiting broker tries to lock once in a lease; before that, the lease in a row has to end.
    leases_s = [view.store.lease_s * (2 if view.store.lease_is_row else 1) for view in (*sources, *targets)]
    longest_s = max(leases_s, default=0.0)
    summary = "the target takes the store" if fails_over else f"{move.source} gives up the store, the target takes it"
    proof = "the lock and a test login" if any(view.can_try_login for view in targets) else "the lock"
    starts = {START_SOURCE: source_starts, START_TARGET: target_starts}
    phases = {HANDOVER: handovers, "strikes": receipts.removals(snapshot), **starts}
    calls = tuple(call for phase, phase_calls in phases.items() for call in in_phase(phase, phase_calls))
    limits = {"within": longest_s + rules.timeouts.store_taken_s}
    return StepPlan(move.target, f"{summary}; proven by {proof}", calls, limits=limits)


def activate(tools: StoreTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    snapshot = tools.observer.read_once(min_timeout_s=tools.timeouts.last_reading_s)
    if snapshot.roles[move.target] is not Role.SERVING and (why := _why_not_now(tools, snapshot, move)) is not None:
        return Failed(why)
    served_before = snapshot.roles[move.target] is Role.SERVING
    gave_up = not any(view.answered for view in snapshot.views(move.source))
    handover_calls = () if gave_up else step.phase(HANDOVER)
    began_s = context.monotonic()
    for call in handover_calls:  # for later commands: this broker was told to stop, and did not die
        stopped = snapshot.view(call.site, call.unit)
        files = tools.observer.brokers[call.site][call.unit].document_files
        if isinstance(written := files.write(STOPPED, stopped.start if stopped else ""), Failed):
            return written
    for call, outcome in zip(handover_calls, tools.change(handover_calls, context), strict=True):
        if isinstance(outcome, Failed):  # only a refusal shows that the call had no effect
            tools.observer.brokers[call.site][call.unit].document_files.remove(STOPPED)
            return Failed(f"{call.summary}: {outcome.text}")
    tools.activation_sent = tools.activation_sent or bool(handover_calls)  # a stop lets the target take the store
    if (failed := _wait_until_served(tools, step, handover_calls, move, context)) is not None:
        return failed
    took_s = context.monotonic() - began_s
    tools.change(step.phase("strikes"), context)
    evidence: dict[str, Json] = {"proof": "attempt", "took_over_s": round(took_s, 3)}
    findings = (*_recount(tools, move, context, evidence), *_start_former_holder(tools, step, move, context))
    if served_before:
        return NotNeeded(f"{move.target} serves already", evidence, findings)
    return Done(f"{move.target} holds the store and lets clients in, after {took_s:.1f} s", evidence, findings)


def _why_not_now(tools: StoreTools, snapshot: Snapshot[BrokerView], move: Move) -> str | None:
    sources = snapshot.views(move.source)
    if move.spec.operation == FAILOVER:
        if snapshot.roles[move.source] in (Role.SERVING, Role.SICK):
            return f"{move.source} is alive: it may serve clients"
        return None
    if any(view.open for view in sources):
        return f"{move.source} is open: it would give up the store while clients work"
    if len(sources) < len(snapshot.sites[move.source]) or snapshot.roles[move.target] is not Role.STANDBY:
        return f"the store cannot be handed over: {roles_text(snapshot)}"
    for session in tools.observer.at(move.target):
        if session.process.runs(fresh_s=0.0) is False:
            return f"the process of {session.store_config.broker} does not run: no broker would take the store"
    pairs = [(view, snapshot.view(move.target, view.pair)) for view in sources if view.answered]
    changed = [why for view, target in pairs for why in changes(tools, [view], target, move)]
    return brief(changed) if changed else None


class _TakeoverReading(NamedTuple):
    """A reading while the target takes the store. `not_yet` says why it does not serve, `never` why it never
    will. `source_keeps` says that the source still has the store."""

    snapshot: Snapshot[BrokerView]
    source_keeps: bool
    not_yet: str | None
    never: str | None


def _wait_until_served(
    tools: StoreTools, step: PlannedStep, handover_calls: Sequence[Call], move: Move, context: StepContext
) -> Outcome | None:
    """Wait until the target serves, and then return None. A source that still holds the store is told to stop again; if
    it keeps the store, the wait ends early, because clients are kept out."""
    observer, fails_over = tools.observer, move.spec.operation == FAILOVER
    began_s = context.monotonic()
    left_s: float | None = None  # the rest of the source's lease
    resend_at_s = context.monotonic() + tools.timeouts.again_s

    def read_and_push() -> _TakeoverReading:
        nonlocal resend_at_s, left_s
        why_not = tools.listeners.why_not_serving(observer.at(move.target)).values()
        if all(reason is None or reason.login_worked for reason in why_not):
            context.outage_over()
        closed = next((reason.text for reason in why_not if reason is not None), None)
        snapshot = observer.read_once(min_timeout_s=tools.timeouts.last_reading_s)
        views, role = snapshot.views(move.source), snapshot.roles[move.source]
        # The source must be shown not to serve; for a lost source, another holder of the lock is enough.
        source_closed = fails_over or role in (Role.STANDBY, Role.DOWN)
        is_done = closed is None and snapshot.roles[move.target] is Role.SERVING and source_closed
        if not is_done and not fails_over:
            # The target's process may have ended since the check, and no other broker takes the store.
            ended = {view.pair for view in snapshot.views(move.target) if view.runs is False}
            tools.change([call for call in step.phase(START_TARGET) if call.unit in ended], context)
        source_keeps = any(view.has_the_store for view in views)
        if not is_done and role is Role.STANDBY and source_keeps and context.monotonic() > resend_at_s:
            resend_at_s = context.monotonic() + tools.timeouts.again_s
            tools.change(handover_calls, context)
        locks = [view.lock for site in snapshot.sites for view in snapshot.views(site) if view.lock is not None]
        names = {view.store.holder for view in views}
        previous_s, left_s = left_s, next((lock.left_s for lock in locks if lock.held and lock.holder in names), None)
        never = f"{move.source} took the store again, and serves" if role is Role.SERVING else None
        if fails_over and never is None and previous_s is not None and left_s is not None and left_s > previous_s:
            never = f"{move.source} renews its lease of the store: it is alive"
        not_yet = None if is_done else closed or f"{move.source} is {role.value}"
        return _TakeoverReading(snapshot, source_keeps, not_yet, never)

    within_s = step.limits["within"]
    # A source that still has the store after this time will not give it up.
    given_up_s = within_s - tools.timeouts.store_taken_s + tools.timeouts.activate_s
    waited = context.until(
        read_and_push,
        holds=lambda now: now.not_yet is None,
        hopeless=lambda now: bool(now.never) or (now.source_keeps and context.monotonic() >= began_s + given_up_s),
        within_s=within_s,
        poll_s=tools.timeouts.link_poll_s,
        meanwhile=lambda now: context.report_waiting(f"{move.target} takes the store", None, now.not_yet),
    )
    snapshot, kept, why, never = waited.reading
    if waited.satisfied:
        return None
    if never is not None:
        return Failed(never)
    text = f"{move.target} did not take the store within {duration(given_up_s if kept else within_s)}: {if_known(why)}"
    # If the source still holds the store, the stop had no effect; if no broker holds it, no site serves.
    if kept:
        return Failed(f"{text}; {move.source} still holds it")
    if fails_over and snapshot.lacks_held_store(move.target):
        text = f"{text}; the store is held: end the broker's process of {move.source} for certain"
    if fails_over:
        return Failed(f"{text}; dr-ctl sent {move.target} no call, because it takes the store by itself")
    views = [*snapshot.views(move.target), *snapshot.views(move.source)]
    locks = [view.lock for view in views if view.lock is not None]
    if locks and not any(lock.held for lock in locks):
        starts = " or ".join(view.store.start for view in views)
        return Failed(f"{text}; no broker holds it: {starts}", code=ExitCode.INCOMPLETE)
    return Unknown(f"{text}; look at {move.target} first")


def _recount(tools: StoreTools, move: Move, context: StepContext, evidence: dict[str, Json]) -> tuple[Finding, ...]:
    """Compare each queue's first depth at the target with the gate's reading, a few times, as clients work there."""
    samples = tools.gate.samples
    if not samples:
        return ()
    differences: list[str] = []
    for _ in range(COUNT_READINGS):
        try:
            views = tools.observer.read_at(move.target)
        except BrokerError as error:
            differences = [str(error)]
        else:
            first_depths = {
                view.pair: {name: queue.depth + queue.removed - queue.added for name, queue in view.business.items()}
                for view in views
            }
            differences = [
                f"{name}: {queue.depth} there, {first_depths[pair].get(name, 0)} here"
                for pair, sample in samples.items()
                for name, queue in sample.source.business.items()
                if queue.depth != first_depths[pair].get(name, 0)
            ]
            evidence["began_with"] = {pair: dict(depths) for pair, depths in first_depths.items()}
        if not differences:
            return ()
        context.wait(tools.timeouts.link_poll_s)
    return (found("DR-STORE-009", target=move.target, source=move.source, wrong=brief(differences)),)


def _start_former_holder(tools: StoreTools, step: PlannedStep, move: Move, context: StepContext) -> list[Finding]:
    """Start the broker that gave up the store, after its process has ended, or report it; a lost site gets no call."""
    if move.spec.operation == FAILOVER:
        return []
    findings = []
    for view in tools.observer.read_once().views(move.source):
        must_wait = view.ending and view.runs
        runs = _wait_for_end(tools, view, context) if must_wait else view.runs
        if must_wait and runs:
            start, within = view.store.start, duration(tools.timeouts.store_ends_s)
            findings.append(found("DR-STORE-010.lives_on", site=view.site, pair=view.pair, start=start, within=within))
        if runs is not False:
            continue
        tools.observer.brokers[view.site][view.pair].document_files.remove(STOPPED)
        starts = [call for call in step.phase(START_SOURCE) if call.unit == view.pair]
        failed = [outcome.text for outcome in tools.change(starts, context) if not isinstance(outcome, Done)]
        if failed or not starts:
            why = f": {failed[0]}" if failed else ""
            findings.append(found("DR-STORE-010.ended", site=view.site, pair=view.pair, target=move.target, why=why))
    return findings


def _wait_for_end(tools: StoreTools, view: BrokerView, context: StepContext) -> bool | None:
    process = tools.observer.brokers[view.site][view.pair].process
    subject, reason = f"the process of {view.broker} ends", "it was told to stop, and still runs"
    return context.until(
        lambda: process.runs(fresh_s=0.0),
        holds=lambda runs: not runs,
        within_s=tools.timeouts.store_ends_s,
        poll_s=tools.timeouts.link_poll_s,
        meanwhile=lambda _: context.report_waiting(subject, None, reason),
    ).reading


PROCEDURE: Final[Procedure[Snapshot[BrokerView], StoreTools]] = {
    **COMMON,
    "catch-up": VerbHandler(draft_catch_up, partial(_wait_for_replica, small=SMALL_LAG)),
    "quarantine": VerbHandler(
        draft_of(SOURCE, "{source} has no messages of its own: they are in the store"), fence.nothing
    ),
    "drain": VerbHandler(draft_drain, partial(_wait_for_replica, small=0)),
    "activate": VerbHandler(draft_activate, activate),
    # These verbs reinstate a lost site.
    "residue": VerbHandler(draft_of(TARGET, "it has no messages of its own"), fence.nothing),
    "reinstate": VerbHandler(draft_reinstate, reinstate, Undo(source=(debts_as_before,))),
    "reconcile": VerbHandler(draft_of(TARGET, "both sites use one store: there is nothing to compare"), fence.nothing),
}
NOT_STORED: Final = (
    "messages that were sent as non-persistent: they are in their broker's memory, and are lost with it",
)


class StoreRecipe(common.Recipe[BrokerView]):
    """Also refuses if a broker that lets no client in holds the store, because no other broker can take it then."""

    def why_not(self, snapshot: Snapshot[BrokerView], move: Move) -> Sequence[Finding]:
        findings = super().why_not(snapshot, move)
        if move.spec.operation == ACTIVATE and _is_closed_holder(snapshot, move.target) and not move.activation_sent:
            return [found("DR-STORE-011.target", target=move.target), *findings]
        if move.spec.operation != FAILOVER or not _is_closed_holder(snapshot, move.source):
            return findings
        return [found("DR-STORE-011.source", source=move.source, target=move.target), *findings]


def _is_closed_holder(snapshot: Snapshot[BrokerView], site: str) -> bool:
    views = snapshot.views(site)
    return any(view.has_the_store for view in views) and not any(view.open for view in views)


TOPOLOGY: Final = TopologyDefinition(PROCEDURE, CHECKS, READS, StoreTools, NOT_STORED, recipe_type=StoreRecipe)
