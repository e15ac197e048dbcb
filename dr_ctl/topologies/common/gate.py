"""The gate waits until all its conditions hold on every pair for a window; then it compares both sites.

A topology adds conditions in `Gate.blockers`. A view is one broker at a reading; `view.business` has clients' queues.
"""

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
from dr_ctl.topologies.common.view import Broker, link_figures

Ids = Mapping[str, Mapping[str, Collection[str]]]
"""The message ids that differ, by queue, then by how they differ, such as "only at london"."""


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
        reasons += list(why_clients_are_not_out(view))
        reasons += list(view.link.unsettled())
        between = [queue for queue in view.queues if queue.name.startswith(CLUSTER_PREFIX) and queue.depth]
        way = "on their way between its brokers"
        reasons += [f"{view.site}: {queue.depth} message(s) {way}, in {queue.name}" for queue in between]
    for view, peer in ((now.source, now.target), (now.target, now.source)):
        reasons += [
            f"{view.site} has a client on the listener of the link: {client}"
            for client in view.fence.clients_at_link(peer)
        ]
    # An obstacle keeps clients from working at an open broker. One at some addresses only is left to the plan's checks.
    reasons += [f"{now.target.site}: {obstacle.text}" for obstacle in now.target.obstacles if not obstacle.addresses]
    return reasons + (pair_counters_changed(now, before) if before is not None else [])


def pair_counters_changed(now: PairReading[Any], before: PairReading[Any]) -> list[str]:
    both = ((now.source, before.source), (now.target, before.target))
    return [reason for view, was in both for reason in counters_changed(view, was)]


def why_clients_are_not_out(view: Broker) -> Iterator[str]:
    """Give the reasons why clients can still change a broker: an open listener, a connection, a message in delivery."""
    if view.open:
        yield f"{view.site} lets clients in"
    elif locks := view.fence.contending:
        yield f"{view.site} may open at any moment: lock coordinator {', '.join(locks)} is not stopped"
    listeners = {listener.port for listener in (*view.listeners, *view.fence.leaves_open) if listener.port is not None}
    if connections := [connection for connection in view.outside_connections if connection.port in listeners]:
        yield f"{view.site} has {len(connections)} client connection(s), the first from {connections[0].remote}"
    if held := [consumer for consumer in view.consumers if consumer.queue in view.business]:
        yield f"{view.site} has a consumer of {held[0].queue}: {held[0].who}"
    if busy := [queue.name for queue in view.business.values() if queue.delivering > 0]:
        yield f"{view.site} has messages in delivery: {', '.join(busy[:3])}"
    if unknown := [queue.name for queue in view.business.values() if not queue.depth_known]:
        yield f"{view.site}: the depth of {', '.join(unknown[:3])} cannot be determined"
    if view.prepared:
        yield f"{view.site} has {len(view.prepared)} prepared transaction(s)"


def counters_changed(
    now: Broker, before: Broker, moves: Callable[[str | None], bool] = lambda _: True
) -> Iterator[str]:
    """Say what changed at a broker between two readings, in the units that are moved."""
    if before.start != now.start:
        yield f"{now.site} was restarted"
        return
    was = {queue.bean: queue.added for queue in before.link.counters}
    for queue in now.link.counters:
        if moves(now.unit_of(queue.name)) and queue.added != was.get(queue.bean, 0):
            yield f"{now.site}: {queue.name} is still being added to"


def refused(key: str, ids: Ids, **values: Any) -> Failed:
    """Fail with the finding of this key, and name the messages that differ."""
    by_queue = {queue: {how: [*sorted(some)] for how, some in kinds.items()} for queue, kinds in ids.items()}
    rows = [(queue, how, some) for queue, kinds in by_queue.items() for how, some in kinds.items() if some]
    lines = [f"{queue}, {how}: {brief(some)}" for queue, how, some in rows]
    return Failed.of(found(key, more=lines, **values), evidence={"ids": document(by_queue)})


def accepting(counts: Mapping[str, int]) -> str:
    """Return the options that accept these differences, as a person types them."""
    return " ".join(f"--accept-difference {quote(f'{queue}={count}')}" for queue, count in counts.items())


class Gate(ABC, Generic[V]):
    """The gate of one command. `samples` has the last reading of each pair at which the gate held. A drain may leave
    `drain_readings` of each pair: the first reading without messages under way, then the readings at which the common
    conditions held. The gate's window starts at the first of them, unless a counter has changed since."""

    def __init__(self, observer: Observer[V, Any], poll_s: float, min_window_s: float | None = None) -> None:
        self.observer = observer
        self.min_window_s = observer.timeouts.window_s if min_window_s is None else min_window_s
        # An interval between a quarter and a half of the window becomes a half: three readings then span the window.
        half_s = self.min_window_s / 2
        self._poll_s = half_s if poll_s < half_s < 2 * poll_s else poll_s
        self.timeouts = observer.timeouts
        self.samples: dict[str, PairReading[V]] = {}
        self.drain_readings: dict[str, list[PairReading[V]]] = {}

    def is_outdated(self, move: Move, *, clients_let_in: bool) -> bool:
        """Say whether the gate has to be proven again: another node of a broker became active after the gate held, or a
        queue changed at the same node. Queues change anyway once `clients_let_in`."""
        views = [view for sample in self.samples.values() for view in (sample.source, sample.target)]
        both = [(view, self.observer.brokers[view.site][view.pair].newest_view or view) for view in views]
        if any(was.nodes and not same_start(was.start, view.start) for was, view in both):
            return True
        has_changed = any(was.start == view.start and changes(was, view, move.moves) for was, view in both)
        return has_changed and not clients_let_in

    def blockers(self, now: PairReading[V], before: PairReading[V] | None, _move: Move) -> list[str]:
        return common_blockers(now, before)

    def differing(self, _now: PairReading[V], _move: Move) -> list[str]:
        """Name the queues whose counts differ between the sites, beyond what the command accepts: none where the
        topology cannot compare counts."""
        return []

    @abstractmethod
    def compare(self, now: PairReading[V], move: Move) -> Outcome:
        """Compare the messages by identity, and say how many were compared. Raises `BrokerError`."""

    def verify(self, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        """Wait until the gate holds. The outcome has the result of each pair's comparison, or the blockers."""
        waits = [_PairAtGate(self, ends, step, move, context) for ends in self.observer.link_ends(move)]
        while unfinished := [wait for wait in waits if wait.outcome is None]:
            began = context.monotonic()
            answers = self.observer.answers([session for wait in unfinished for session in wait.ends], FOR_GATE)
            # The answers alternate: source, target, source, target.
            readings = list(zip(answers[::2], answers[1::2], strict=True))
            views = [view for both in readings for view in both if isinstance(view, Broker)]
            if len(views) == 2 * len(readings):
                context.sample(link_figures((view.site, view.link) for view in views))
            if opened := [view for view in views if view.nodes and view.open and started_since(move, view)]:
                return Failed(f"{opened[0].site}: another node is active, and lets clients in")
            for wait, (source, target) in zip(unfinished, readings, strict=True):
                wait.read(source, target, began)
            reasons = [reason for wait in unfinished if not isinstance(wait.outcome, Done) for reason in wait.reasons]
            context.report_waiting("blockers left at the gate", len(reasons), brief(reasons) if reasons else None)
            for wait in unfinished:
                if wait.outcome is not None and not isinstance(wait.outcome, Done):
                    prefix = f"{wait.pair}: " if len(waits) > 1 else ""
                    return replace(wait.outcome, text=f"{prefix}{wait.outcome.text}")
            if left := [wait for wait in unfinished if wait.outcome is None]:
                context.until_next(began, max(self._poll_s, min(wait.next_reading_s() for wait in left) - began))
        self.samples = {wait.pair: wait.stable_readings[-1] for wait in waits}
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
        earlier = self.gate.drain_readings.get(self.pair, [])
        # All conditions hold at the stable readings. The window may begin before them, with the drain.
        self.stable_readings: list[PairReading[V]] = earlier[1:]
        self._window_start = earlier[0] if earlier else None
        self._until = self.context.monotonic() + self.step.limits["within"]
        self._differing: tuple[list[str], float] | None = None  # the counts that differ, and since when

    def read(self, source: V | BrokerError, target: V | BrokerError, began_s: float) -> None:
        if not isinstance(source, BrokerError) and not isinstance(target, BrokerError):
            now = PairReading(began_s, source, target)
            self.reasons = self.gate.blockers(now, self._window_start, self.move)
            self.stable_readings = [*self.stable_readings, now] if not self.reasons else []
            self._window_start = None if self.reasons else self._window_start or now
        else:
            self._restart_window(*(error for error in (source, target) if isinstance(error, BrokerError)))
        self.outcome = self._judge()

    def _restart_window(self, *errors: BrokerError) -> None:
        self.reasons = [str(error) for error in errors]
        self.stable_readings, self._window_start = [], None

    def next_reading_s(self) -> float:
        """Return the moment of the next reading; 0 means at once. The last reading that is needed waits for the end of
        the window: readings slow a small broker, and its counters show messages that came in between."""
        if self._window_start is None or len(self.stable_readings) + 1 < self._readings_needed:
            return 0.0
        return self._window_start.at_s + self.gate.min_window_s

    @property
    def _readings_needed(self) -> int:
        return max(int(self.step.limits["stable"]), 2)

    def _judge(self) -> Outcome | None:
        now, start = self.stable_readings[-1] if self.stable_readings else None, self._window_start
        is_stable = len(self.stable_readings) >= self._readings_needed
        if is_stable and now and start and now.at_s - start.at_s >= self.gate.min_window_s:
            differing = self.gate.differing(now, self.move)
            if not differing:
                return self._compare_messages(now)
            if self._differing is None or self._differing[0] != differing:
                self._differing = (differing, self.context.monotonic())
            # Counts are up to date only after a while, so only a lasting difference fails the step.
            self.reasons = ["; ".join(differing)]
            if self.context.monotonic() - self._differing[1] > self.gate.timeouts.differs_s:
                return Failed.of(found("DR-PARITY-003", reasons=brief(self.reasons)))
        if self.context.monotonic() > self._until:
            why = brief(self.reasons) if self.reasons else "it was not stable for long enough"
            return Failed(f"the conditions of the gate were not met in time: {why}", code=ExitCode.DRAIN_TIMEOUT)
        return None

    def _compare_messages(self, now: PairReading[V]) -> Outcome | None:
        try:
            outcome = self.gate.compare(now, self.move)
        except (TimedOut, Unreachable) as error:
            # The wait goes on, as it does when a slow broker does not answer a reading.
            self._restart_window(error)
            return None
        except BrokerError as error:
            return Failed(f"the messages could not be compared by their ids: {error}")
        return replace(outcome, evidence={"samples": len(self.stable_readings), **outcome.evidence})
