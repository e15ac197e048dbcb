"""The gate waits until its conditions hold together on every pair for a window; then both sites are compared."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Generic

from dr_ctl.core.document import document
from dr_ctl.core.errors import BrokerError, TimedOut, Unreachable
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Json, brief
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.topologies.common.calls import CLUSTER_PREFIX
from dr_ctl.topologies.common.observer import Observer, V
from dr_ctl.topologies.common.receipts import changes
from dr_ctl.topologies.common.session import FOR_GATE, Session
from dr_ctl.topologies.common.snapshot import V_co, started_since
from dr_ctl.topologies.common.view import Broker, evidence

Ids = Mapping[str, Mapping[str, Collection[str]]]
"""Message ids by queue, and by the kind of their difference."""


@dataclass(frozen=True, slots=True)
class PairReading(Generic[V_co]):
    at_s: float
    source: V_co
    target: V_co


def common_blockers(now: PairReading[Any], before: PairReading[Any] | None) -> list[str]:
    reasons = []
    if now.source.link.missing:
        reasons.append(f"{now.source.site} has no link to {now.target.site}: nothing is shipped")
    for view in (now.source, now.target):
        reasons += list(clients_of(view))
        reasons += list(view.link.unsettled())
        between = [queue for queue in view.queues if queue.name.startswith(CLUSTER_PREFIX) and queue.depth]
        reasons += [f"{view.site}: {queue.depth} between brokers of the site in {queue.name}" for queue in between]
    for view, peer in ((now.source, now.target), (now.target, now.source)):
        reasons += [
            f"{view.site} has a client on the listener of the link: {client}"
            for client in view.fence.clients_at_link(peer)
        ]
    reasons += [f"{now.target.site}: {obstacle.text}" for obstacle in now.target.obstacles if not obstacle.addresses]
    return reasons + (pair_counters_changed(before, now) if before is not None else [])


def pair_counters_changed(before: PairReading[Any], now: PairReading[Any]) -> list[str]:
    both = ((before.source, now.source), (before.target, now.target))
    return [reason for was, view in both for reason in counters_changed(was, view)]


def clients_of(view: Broker) -> Iterator[str]:
    """Say what ties clients to a broker yet: a way in, a connection, messages that may come back to a queue."""
    if view.open:
        yield f"{view.site} lets clients in"
    elif contenders := view.fence.contenders:
        yield f"{view.site} may open at any moment: lock coordinator {', '.join(contenders)} is not stopped"
    listeners = {listener.port for listener in (*view.listeners, *view.fence.leaves_open) if listener.port is not None}
    if connections := [connection for connection in view.from_outside if connection.port in listeners]:
        yield f"{view.site} has {len(connections)} client connection(s), the first from {connections[0].remote}"
    if held := [consumer for consumer in view.consumers if consumer.queue in view.business]:
        yield f"{view.site} has a consumer of {held[0].queue}: {held[0].who}"
    if busy := [queue.name for queue in view.business.values() if queue.delivering > 0]:
        yield f"{view.site} has messages in delivery: {', '.join(busy[:3])}"
    if unknown := [queue.name for queue in view.business.values() if not queue.counted]:
        yield f"{view.site}: what lies in {', '.join(unknown[:3])} cannot be told"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def counters_changed(
    before: Broker, now: Broker, moves: Callable[[str | None], bool] = lambda _: True
) -> Iterator[str]:
    """Say of a broker what changed between two readings, of the units that are moved."""
    if before.start != now.start:
        yield f"{now.site} was restarted"
        return
    was = {queue.bean: queue.added for queue in before.link.counters}
    for queue in now.link.counters:
        if moves(now.unit_of(queue.name)) and queue.added != was.get(queue.bean, 0):
            yield f"{now.site}: {queue.name} is still being added to"


def refused(key: str, ids: Ids, **values: Any) -> Failed:
    """Fail with the finding of that key, and name the messages that differ."""
    named = {queue: {what: [*sorted(names)] for what, names in by.items()} for queue, by in ids.items()}
    more = [f"{queue}, {what}: {brief(names)}" for queue, by in named.items() for what, names in by.items() if names]
    return Failed.of(found(key, more=more, **values), evidence={"ids": document(named)})


def accepting(counts: Mapping[str, int]) -> str:
    """The options that accept these differences, as one types them."""
    return " ".join(f"--accept-difference {quote(f'{queue}={count}')}" for queue, count in counts.items())


class Gate(ABC, Generic[V]):
    """The gate of one command. `samples` holds by pair the last reading at which the gate passed, `begun` the readings
    of an earlier wait. The window starts at the first of these readings, because no counter changed since."""

    def __init__(self, observer: Observer[V, Any], poll_s: float, min_window_s: float | None = None) -> None:
        self.observer = observer
        self.min_window_s = observer.timeouts.window_s if min_window_s is None else min_window_s
        # A slightly longer interval lets three readings span a short window, where four were needed.
        spans_s = self.min_window_s / 2
        self._poll_s = spans_s if poll_s < spans_s < 2 * poll_s else poll_s
        self.timeouts = observer.timeouts
        self.samples: dict[str, PairReading[V]] = {}
        self.begun: dict[str, list[PairReading[V]]] = {}

    def is_outdated(self, move: Move, *, is_open: bool) -> bool:
        """Say whether the gate has to be proven again: another node of a broker is active since, or a message came or
        went at the same brokers and no client was let in."""
        both = list[tuple[V, V]]()
        for view in (view for sample in self.samples.values() for view in (sample.source, sample.target)):
            newest = self.observer.brokers[view.site][view.pair].newest
            both.append((view, newest[1] if newest is not None else view))
        if any(was.nodes and not same_start(was.start, view.start) for was, view in both):
            return True
        return not is_open and any(was.start == view.start and changes(was, view, move.moves) for was, view in both)

    def blockers(self, now: PairReading[V], before: PairReading[V] | None, _move: Move) -> list[str]:
        return common_blockers(now, before)

    @abstractmethod
    def differing(self, now: PairReading[V], move: Move) -> list[str]: ...

    @abstractmethod
    def compare(self, now: PairReading[V], move: Move) -> Outcome:
        """Compare the messages by identity, and say how many were compared. Raises `BrokerError`."""

    def verify(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Wait until the gate holds. The outcome tells by pair what was compared, or what blocks the gate."""
        waits = [_PairAtGate(self, ends, step, move, context) for ends in self.observer.link_ends(move)]
        while going_on := [wait for wait in waits if wait.outcome is None]:
            began = context.monotonic()
            answers = self.observer.answers([session for wait in going_on for session in wait.ends], FOR_GATE)
            readings = list(zip(answers[::2], answers[1::2], strict=True))
            views = [view for both in readings for view in both if isinstance(view, Broker)]
            if len(views) == 2 * len(readings):
                context.sample(evidence((view.site, view.link) for view in views))
            if opened := [view for view in views if view.nodes and view.open and started_since(move, view)]:
                return Failed(f"{opened[0].site}: another node is active, and lets clients in")
            for wait, (source, target) in zip(going_on, readings, strict=True):
                wait.read(source, target, began)
            reasons = [reason for wait in going_on if not isinstance(wait.outcome, Done) for reason in wait.reasons]
            why = brief(reasons) if reasons else None
            context.report_waiting("blockers left at the gate", len(reasons), why)
            for wait in going_on:
                if wait.outcome is not None and not isinstance(wait.outcome, Done):
                    named = f"{wait.pair}: " if len(waits) > 1 else ""
                    return replace(wait.outcome, text=f"{named}{wait.outcome.text}")
            if left := [wait for wait in going_on if wait.outcome is None]:
                context.until_next(began, max(self._poll_s, min(wait.due_s() for wait in left) - began))
        self.samples = {wait.pair: wait.window[-1] for wait in waits}
        compared: dict[str, Json] = {wait.pair: dict(wait.outcome.evidence) for wait in waits if wait.outcome}
        findings = tuple(finding for wait in waits if wait.outcome for finding in wait.outcome.findings)
        return Done("the gate holds, and both sites hold the same", compared, findings)


@dataclass
class _PairAtGate(Generic[V]):
    gate: Gate[V]
    ends: tuple[Session[V], Session[V]]
    step: PlannedStep
    move: Move
    context: StepContext

    def __post_init__(self) -> None:
        self.pair = self.ends[0].pair
        self.outcome: Outcome | None = None
        self.reasons: list[str] = []
        begun = self.gate.begun.get(self.pair, [])
        self.window: list[PairReading[V]] = begun[1:]
        self._begun = begun[0] if begun else None
        self._until = self.context.monotonic() + self.step.limits["within"]
        self._differing: tuple[list[str], float] | None = None

    def read(self, source: V | BrokerError, target: V | BrokerError, began_s: float) -> None:
        if not isinstance(source, BrokerError) and not isinstance(target, BrokerError):
            now = PairReading(began_s, source, target)
            self.reasons = self.gate.blockers(now, self._begun, self.move)
            self.window = [*self.window, now] if not self.reasons else []
            self._begun = None if self.reasons else self._begun or now
        else:
            self._begin_anew(*(error for error in (source, target) if isinstance(error, BrokerError)))
        self.outcome = self._judge()

    def _begin_anew(self, *errors: BrokerError) -> None:
        self.reasons = [str(error) for error in errors]
        self.window, self._begun = [], None

    def due_s(self) -> float:
        """Return the time of the next reading: the end of the window, where only time is missing. More readings slow a
        small broker, and counters tell what came in between."""
        if self._begun is None or len(self.window) + 1 < self._wanted:
            return 0.0
        return self._begun.at_s + self.gate.min_window_s

    @property
    def _wanted(self) -> int:
        return max(int(self.step.limits["stable"]), 2)

    def _judge(self) -> Outcome | None:
        now = self.window[-1] if len(self.window) >= self._wanted else None
        if now is not None and self._begun is not None and now.at_s - self._begun.at_s >= self.gate.min_window_s:
            wrong = self.gate.differing(now, self.move)
            if not wrong:
                return self._same(now)
            if self._differing is None or self._differing[0] != wrong:
                self._differing = (wrong, self.context.monotonic())
            self.reasons = ["; ".join(wrong)]
            if self.context.monotonic() - self._differing[1] > self.gate.timeouts.differs_s:
                return Failed.of(found("DR-PARITY-003", reasons=brief(self.reasons)))
        if self.context.monotonic() > self._until:
            why = brief(self.reasons) if self.reasons else "it was not stable for long enough"
            return Failed(f"the gate did not open in time: {why}", code=ExitCode.DRAIN_TIMEOUT)
        return None

    def _same(self, now: PairReading[V]) -> Outcome | None:
        try:
            outcome = self.gate.compare(now, self.move)
        except (TimedOut, Unreachable) as error:  # a slow broker is waited for, as by a reading
            self._begin_anew(error)
            return None
        except BrokerError as error:
            return Failed(f"the messages could not be compared by their ids: {error}")
        return replace(outcome, evidence={"samples": len(self.window), **outcome.evidence})
