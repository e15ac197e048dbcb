"""`activate` opens the target's listeners pair by pair, and shows that clients are let in. Once some may have opened,
the run cannot go back: it repeats the calls for the others until the time is over."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, Role, brief
from dr_ctl.engine.operations import ACTIVATE, FAILBACK, FAILOVER
from dr_ctl.engine.plan import ALL, Call, Goal, PlannedStep, in_phase
from dr_ctl.engine.ports import Done, Failed, Move, NotNeeded, Outcome, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import missing_effects, resume
from dr_ctl.topologies.common.checks import lock_findings
from dr_ctl.topologies.common.reasons import came_back_open, ended_quarantine, paused_at
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.session import FOR_OPENING, ReadScope
from dr_ctl.topologies.common.snapshot import Snapshot, reopened
from dr_ctl.topologies.common.tools import StepFailed, Tools
from dr_ctl.topologies.common.verbs.proving import shown_open
from dr_ctl.topologies.common.verbs.quiesce import queues_to_resume
from dr_ctl.topologies.common.verbs.undoing import name_units
from dr_ctl.topologies.common.view import Broker, PeerState, V
from dr_ctl.topologies.common.wants import AtBroker, clients_as_before

SAME_SECOND_S: Final = 1.0


def peer_state(operation: str) -> PeerState:
    """Return the state of the other site when an operation opens its target. A single step has no gate."""
    return {FAILOVER: PeerState.AWAY, ACTIVATE: PeerState.CLOSED}.get(operation, PeerState.DRAINED)


def draft(rules: Rules, _step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    closed_first = move.spec.operation == FAILBACK and came_back_open(snapshot, move)
    when = "they were kept out when it came back" if closed_first else None
    peer, calls = peer_state(move.spec.operation), list[Call]()
    again = [view for view in snapshot.views(move.target) if reopened(move, view)]
    for view in snapshot.views(move.target):
        calls += in_phase("admit", view.fence.granting(when))
        closed = (listener for listener in view.listeners if closed_first or view in again or not listener.started)
        calls += in_phase("listeners", view.fence.opening(closed, peer))
    if snapshot.roles[move.target] is Role.SERVING and move.spec.operation != FAILOVER and not again:
        # A resumed run is past the gate: only the pauses of its quiesce are left.
        for view in snapshot.views(move.source):
            calls += [resume(view, queue) for queue in queues_to_resume(AtBroker.of(rules, move, view))]
    calls += [resume(view, queue) for view, queue in paused_at(snapshot, move.target)]
    calls += in_phase("strikes", receipts.removals(snapshot))
    return StepPlan(move.target, f"the listeners open, {shown_open(snapshot, move)}", tuple(calls))


UNDO: Final = Undo(target=(clients_as_before,))


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    strikes, admits, rest = step.phase("strikes"), step.phase("admit"), step.phase("")
    views = (_as_at_the_gate(tools, move, context) if admits else None) or may_open(tools, move)
    starts = list[Call]()
    for view in views:
        closed = (listener for listener in view.listeners if not listener.started)
        opens = view.fence.opening(closed, peer_state(move.spec.operation))
        starts += [call for call in opens if not view.holds(call)]
    tools.change(rest, context)
    kept_out = _let_roles_in(tools, admits, views, move, context) if admits else None
    tools.activation_sent, served = tools.activation_sent or bool(starts), tools.may_serve or move.activation_sent
    opening = _Opening(tools, starts, move, context)
    failed = opening.not_opened()
    tools.may_serve = tools.may_serve or (bool(starts) and not isinstance(failed, Failed))
    if failed is None and (failed := opening.until_served()) is not None and not served and opening.is_locked_out():
        tools.may_serve, failed = False, opening.refusal
    if failed is not None:
        return failed
    tools.change(strikes, context)
    refused = f"not through every listener: {opening.refused[0].text}" if opening.refused else None
    if (lacks := refused or kept_out or _not_drained(tools, move)) is not None:
        return Failed(f"{move.target} serves, but {lacks}", code=ExitCode.INCOMPLETE)
    by_lock = tuple(_of_locks(tools, views if not starts else (), move))
    if not (starts or rest or admits):
        return NotNeeded(f"{move.target} serves already", findings=by_lock)
    text = f"{move.target} lets clients in"
    if any(session.stomp is not None for session in tools.observer.at(move.target)):
        return Done(text, {"proof": "attempt"}, by_lock)
    return Done(text, {"proof": "flag"}, (found("DR-ACTIVATE-001", target=move.target), *by_lock))


def _of_locks(tools: Tools[Broker], opened: Sequence[Broker], move: Move) -> Iterator[Finding]:
    """Report locks that have opened the target (`opened`) without this run, and those that a move leaves stopped."""
    if locks := [name for view in opened for name in view.fence.contending]:
        yield found("DR-DOOR-008.done", target=move.target, locks=brief(locks))
    for session in tools.observer.at(move.source) if move.spec.operation != FAILOVER else ():
        if session.newest_view is not None:
            yield from lock_findings(session.newest_view)


def _as_at_the_gate(tools: Tools[Broker], move: Move, context: StepContext) -> list[Broker] | None:
    """Return the target, with its present rights, if the gate read both sites as closed within the last second; else
    None. Then roles may be granted before the last reading, because the listeners are still closed."""
    samples = tools.gate.samples
    pairs = {session.pair for session in tools.observer.at(move.target)}
    if not pairs <= samples.keys() or context.monotonic() - min(samples[pair].at_s for pair in pairs) > SAME_SECOND_S:
        return None
    if any(view.open for pair in pairs for view in (samples[pair].source, samples[pair].target)):
        return None
    return tools.observer.read_at(move.target, pairs, ReadScope.RIGHTS)


def _let_roles_in(
    tools: Tools[Broker], admits: Sequence[Call], before: Sequence[Broker], move: Move, context: StepContext
) -> str | None:
    """Let the clients' roles in; return why they are still kept out, which does not end a failover. The other site is
    read after the last call here, because a listener is only opened after such a reading."""
    tools.grant_roles(admits, before, context)
    if not missing_effects([call for call in admits if call.resource != ALL], _may_still_open(tools, move, context)):
        return None
    kept_out = tools.admit(move.target, admits, context)
    if kept_out is not None and move.spec.operation != FAILOVER:
        raise StepFailed(Failed(kept_out))
    _may_still_open(tools, move, context)
    return kept_out


def _may_still_open(tools: Tools[Broker], move: Move, context: StepContext) -> list[Broker]:
    """Repeat `may_open` while a broker does not answer: a call was sent already, and clients wait."""

    def answer() -> list[Broker] | BrokerError:
        try:
            return may_open(tools, move)
        except BrokerError as error:
            return error

    within_s, poll_s = tools.timeouts.activate_s, tools.timeouts.poll_s
    views = context.until(answer, holds=lambda views: isinstance(views, list), within_s=within_s, poll_s=poll_s).reading
    if isinstance(views, BrokerError):
        raise views
    return views


def sides(tools: Tools[V], move: Move) -> tuple[list[V], list[V], str | None]:
    """Read the target's brokers and the source's at the same time; return both, and the signs that the source lives."""
    if move.spec.operation != FAILOVER:
        sessions = [*tools.observer.at(move.target), *tools.observer.at(move.source)]
        views = tools.observer.ask_all(lambda session: session.read(FOR_OPENING), sessions)
        targets = [view for view in views if view.site == move.target]
        return targets, [view for view in views if view.site == move.source], None
    # Silence is no error of a lost site only.
    targets = tools.observer.read_at(move.target)
    snapshot = tools.observer.read_once(min_timeout_s=tools.timeouts.last_reading_s)
    life_signs, word = snapshot.signs_of_life[move.source], move.spec.presume_down == move.source
    signs = () if tools.cut_off else (*life_signs.signs, *(() if word else life_signs.takeovers))
    sick = "it cannot be managed" if snapshot.roles[move.source] is Role.SICK else None
    return targets, snapshot.views(move.source), brief(signs) if signs else sick


def why_open(tools: Tools[V], sources: Sequence[V], move: Move) -> str | None:
    names = sorted({name for view in sources for name in tools.open_at(view, move)})
    return f"{name_units(tools, move.source, names)} open: a second site is never opened" if names else None


def may_open(tools: Tools[V], move: Move) -> list[V]:
    """Return the target's brokers. Raises `StepFailed` with the first reason not to open them."""
    targets, sources, lives = sides(tools, move)
    if (why := next(_against_opening(tools, targets, sources, lives, move), None)) is not None:
        raise StepFailed(Failed(why))
    return targets


def _against_opening(
    tools: Tools[V], targets: Sequence[V], sources: Sequence[V], lives: str | None, move: Move
) -> Iterator[str]:
    closed = [view for view in targets if not tools.open_at(view, move)]
    if lives is not None and len(closed) == len(targets):
        yield f"{move.source} is alive, and may serve clients: {lives}"
    yield from filter(None, (why_open(tools, sources, move), ended_quarantine(targets, move.source)))
    if contenders := [name for view in sources for name in view.fence.contending]:
        yield f"{move.source} may open at any moment: lock coordinator {brief(contenders)} is not stopped"
    if tools.may_serve:
        return  # clients may have changed queues since the gate
    if move.spec.operation != FAILOVER and not all(view.link.records_changes for view in targets):
        yield f"{move.target}: its link is not started, so nothing would be shipped back"
    both = [(source, view) for view in closed for source in sources if source.pair == view.pair]
    if changed := [why for source, view in both for why in changes(tools, (source, view), view, move)]:
        yield brief(changed)


def _not_drained(tools: Tools[Broker], move: Move) -> str | None:
    """Say what is not shipped to a site that somebody else opened without this run's gate."""
    if move.spec.operation == FAILOVER or move.activation_sent or tools.gate.samples:
        return None
    views = tools.observer.read_once().views(move.source)
    left = [f"{view.link.to_ship} to ship at {view.site}" for view in views if view.link.to_ship]
    return f"this run did not open it: {brief(left)}" if left else None


def changes(tools: Tools[Any], views: Sequence[Broker], target: Broker | None, move: Move) -> list[str]:
    """Name the changes at these brokers of one pair since the run's gate held; for a single step, which has no gate,
    since the receipt at the `target`."""
    if (sample := tools.gate.samples.get(views[0].pair)) is not None:
        was = {view.site: view for view in (sample.source, sample.target)}
        return [why for view in views for why in receipts.changes(was[view.site], view, move.moves)]
    receipt = receipts.held_at(target) if target is not None and move.spec.operation == ACTIVATE else None
    return receipts.changes_since(receipt, views, move.spec) if receipt is not None else []


class _Opening:
    """Opens the target's listeners, and has the outcome of each call."""

    def __init__(self, tools: Tools[Broker], starts: Sequence[Call], move: Move, context: StepContext) -> None:
        self._tools, self._move, self._context = tools, move, context
        self._sessions = tools.observer.at(move.target)
        self._outcomes = dict(zip(starts, tools.change(starts, context), strict=True))
        self._again_at = context.monotonic() + tools.timeouts.again_s
        self._tries = 1
        self._answered = not any(isinstance(outcome, Unknown) for outcome in self._outcomes.values())

    @property
    def refused(self) -> list[Outcome]:
        return [outcome for outcome in self._outcomes.values() if isinstance(outcome, Failed)]

    @property
    def refusal(self) -> Failed:
        return Failed(f"{self._move.target} could not be opened: {self.refused[0].text}")

    def _of(self, pair: str) -> list[Outcome]:
        return [outcome for call, outcome in self._outcomes.items() if call.unit == pair]

    def not_opened(self) -> Outcome | None:
        """Refuse if an error answered every call, unless a client is let in."""
        if not self._outcomes or len(self.refused) < len(self._outcomes):
            return None
        site = self._move.target
        if self._tools.listeners.accept_client(self._sessions):
            return Unknown(f"{site}: {self.refused[0].text}; yet a client is let in: look at {site} first")
        return self.refusal

    def is_locked_out(self) -> bool:
        """Say whether locks kept every pair closed: each call was answered, every start of a lock coordinator with an
        error, and the site is proven closed. The start of a listener with a lock is accepted, but has no effect before
        the lock is held."""
        if not self._answered or not all(self._is_lock_refused(session.pair) for session in self._sessions):
            return False
        listeners = self._tools.listeners
        return isinstance(listeners.await_closed(self._move.target, self._context, 0.0, lambda _: None), Done)

    def _is_lock_refused(self, pair: str) -> bool:
        locks = [outcome for call, outcome in self._outcomes.items() if call.unit == pair and call.goal is Goal.START]
        return bool(locks) and all(isinstance(outcome, Failed) for outcome in locks)

    def until_served(self) -> Outcome | None:
        waited = self._context.until(
            self._read,
            holds=lambda left: not left,
            hopeless=lambda left: len(self._sessions) == 1 and all(map(self._is_for_good, left)),
            within_s=self._tools.timeouts.activate_s,
            poll_s=self._tools.timeouts.poll_s,
            meanwhile=self._try_again,
        )
        return None if waited.satisfied else self._left_over(waited.reading)

    def _read(self) -> dict[str, str]:
        """Return by pair why it does not serve. A pair serves if some of its listeners are open."""
        why_not = self._tools.listeners.why_not_serving(self._sessions)
        if all(why is None or why.login_worked for why in why_not.values()):
            self._context.outage_over()
        return {
            pair: why.text
            for pair, why in why_not.items()
            if why is not None and not (why.by_flag and {Failed} < {*map(type, self._of(pair))})
        }

    def _is_for_good(self, pair: str) -> bool:
        """Say whether every call was refused, or each start of a lock coordinator twice."""
        return self._came_to(pair, Failed) or (self._tries > 1 and self._is_lock_refused(pair))

    def _came_to(self, pair: str, *kinds: type[Outcome]) -> bool:
        outcomes = self._of(pair)
        return bool(outcomes) and all(isinstance(outcome, kinds) for outcome in outcomes)

    def _try_again(self, left: Mapping[str, str]) -> None:
        """Repeat the calls of pairs that were refused, not answered or closed again, if the other broker is closed."""
        tools, move = self._tools, self._move
        if self._context.monotonic() <= self._again_at:
            return
        self._again_at = self._context.monotonic() + tools.timeouts.again_s
        views = tools.observer.answers(self._sessions, ReadScope.STATE)
        closed = {view.pair for view in views if not isinstance(view, BrokerError) and not view.open}
        pairs = {pair for pair in left if pair in closed or self._came_to(pair, Failed, Unknown)}
        if not pairs:
            return
        snapshot = tools.observer.read_once(min_timeout_s=tools.timeouts.last_reading_s)
        others = {pair: snapshot.view(move.source, pair) for pair in pairs}
        # Only a lost site may be silent: beside any other silent broker no listener is opened.
        fails_over = move.spec.operation == FAILOVER
        may = {pair for pair, view in others.items() if (fails_over if view is None else not view.open)}
        calls = [call for call in self._outcomes if call.unit in may]
        self._tries += bool(calls)
        self._outcomes.update(zip(calls, tools.change(calls, self._context), strict=True))
        self._answered &= not any(isinstance(outcome, Unknown) for outcome in self._outcomes.values())

    def _left_over(self, left: Mapping[str, str]) -> Outcome:
        refused = {
            call.unit: outcome.text for call, outcome in reversed(self._outcomes.items()) if isinstance(outcome, Failed)
        }
        why = {pair: refused.get(pair, reason) for pair, reason in left.items()}
        target = self._move.target
        if len(left) == len(self._sessions):
            return Unknown(f"{target}: {next(iter(why.values()))}; look at {target} first")
        named = brief([f"{pair}: {reason}" for pair, reason in why.items()])
        return Failed(f"{target} serves, but not with every pair: {named}", code=ExitCode.INCOMPLETE)
