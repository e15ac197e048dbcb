"""The agents of all pairs. They follow announcements of consumption, confirm them by counters, and delete copies."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, LoginRefused
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.system import system
from dr_ctl.engine.debts import Debt
from dr_ctl.jolokia.http import PolicyRefused
from dr_ctl.topologies.brokersync.reading import Observer
from dr_ctl.topologies.brokersync.sync import queue as agent
from dr_ctl.topologies.brokersync.sync.brokers import Primary, Standby
from dr_ctl.topologies.classic.beans import REMOVES, Count
from dr_ctl.topologies.common.calls import debts_of
from dr_ctl.topologies.topology import Progress

RECEIVE_S: Final = 0.05
READ_EVERY_S: Final = 0.4
LOST_S: Final = 8.0
"""After this time without an answer, the serving broker counts as lost."""
RETRY_S: Final = 1.0
COMPARE_RETRY_S: Final = 10.0
"""The pause after a comparison without a result: each takes memory of the serving broker."""
REFUSED_RETRY_S: Final = 10.0
MAX_DELETE_S: Final = 0.5
MAX_COMPARE_S: Final = 0.3
"""After this time the agent receives announcements again before it deletes or compares more."""
LAST_WORK_S: Final = 5.0
"""The time for deleting confirmed copies after the listeners are closed."""
LAST_RECEIVE_S: Final = 2.0
"""The time for receiving announcements from before the listeners were closed."""
RAISE_PAGE_SIZE: Final = "compared again soon; if this lasts, raise maxBrowsePageSize above the queue's depth there"
NOTHING: Final = Count(0, 0)
BOTH_OPEN: Final = "split brain: the standby lets clients in too, so the agent cannot tell which site serves"
Held = Callable[[], str | None]


class Pair:
    """The agent of one pair, for one thread. A failure of a broker ends a step early. A refused login is raised,
    because another attempt may lock the user."""

    def __init__(
        self,
        name: str,
        primary: Primary,
        standby: Standby,
        memory: Mapping[str, Json],
        notes_of_runs: Callable[[str], Mapping[str, Any]] = lambda start: {},  # noqa: ARG005 - no run was ever made
    ) -> None:
        self.name = name
        self.queues: dict[str, agent.Queue] = {}
        self.over: str | None = None
        self.primary_silent: str | None = None
        self.standby_silent: str | None = None
        self.refused: str | None = None
        self._primary, self._standby = primary, standby
        self._memory: Mapping[str, Any] = memory
        self._same_start_memory: Mapping[str, Any] = {}  # the memory if it is of this start of the broker
        self._notes_of_runs = notes_of_runs
        self._counted_of_runs: dict[str, Any] = {}
        self._start: str | None = None
        self._answered_at_s = system().monotonic()
        self._read_next_at = self._delete_at = 0.0
        self._is_subscribed = self._was_held = self._is_accepted = self._restarted = False
        self._standby_closed = False
        self._queue_order: deque[str] = deque()
        self._last_reading: agent.ServingReading | None = None

    def step(self, held: Held) -> None:
        try:
            self._receive()
            if system().monotonic() >= self._read_next_at:
                reading = self._read_serving()
                for name in self._primary.subscribe(list(reading.queues)):
                    # Clients may have consumed messages without an announcement.
                    self.queues[name].forget()
                    self.queues[name].announcements.restart()
                self._is_subscribed = True
                if not reading.is_open:
                    self.over = "its clients' connectors are closed: it no longer serves"
                    until = system().monotonic() + LAST_RECEIVE_S
                    while self._receive() and system().monotonic() < until:
                        pass
                    self._read_serving()
                    self._work(held, LAST_WORK_S)
        except BrokerError as error:
            self._primary_failed(error)
            return
        self._work(held)

    def go_on(self) -> None:
        """Accept the messages that vanished. The next reading follows at once, and the counters count from there."""
        self._is_accepted, self._read_next_at = True, 0.0
        for queue in self.queues.values():
            queue.vanished = queue.excess = 0
            queue.forget()

    def remembers(self) -> dict[str, Json]:
        if self._start is None:
            return dict(self._memory)
        accounts = {name: queue.account for name, queue in self.queues.items()}
        known: dict[str, Json] = {name: account.known for name, account in accounts.items()}
        shown: dict[str, Json] = {name: account.shown for name, account in accounts.items()}
        counted = {name: queue.waiting.counted for name, queue in self.queues.items()}
        deleted: dict[str, Json] = {name: account.accounted - counted[name] for name, account in accounts.items()}
        handed: Json = {kind: dict(counts) for kind, counts in self._counted_of_runs.items()}
        return {"start": self._start, "known": known, agent.SHOWN: shown, agent.DELETED: deleted, agent.HANDED: handed}

    def close(self) -> None:
        self._primary.close()
        self._standby.close()

    def _receive(self) -> bool:
        if not self._is_subscribed:
            system().sleep(RECEIVE_S)
            return False
        announced = self._primary.receive(RECEIVE_S)
        for name, id_ in announced:
            self.queues[name].add_announced(id_)
        return bool(announced)

    def _read_serving(self) -> agent.ServingReading:
        """Read the serving broker, and confirm the ids announced before, unless its counters contradict them."""
        announced = {name: len(queue.announced) for name, queue in self.queues.items()}
        reading = self._primary.read()
        self._answered_at_s = system().monotonic()
        self._read_next_at = self._answered_at_s + READ_EVERY_S
        self.primary_silent = None
        self._read_standby()
        if self._start not in (None, reading.start):
            self._unsubscribe()  # the broker was restarted, so announcements may be missing
            # Counters have confirmed the earlier ids, so these stay consumed.
            self.queues = {
                name: agent.Queue(self.name, name, waiting=queue.waiting) for name, queue in self.queues.items()
            }
            for queue in self.queues.values():
                queue.waiting.mark_earlier_start()
            self._restarted = True
        if self._start != reading.start:
            self._same_start_memory = self._memory if self._memory.get("start") == reading.start else {}
            handed = self._same_start_memory.get(agent.HANDED, {})
            self._counted_of_runs = {kind: dict(counts) for kind, counts in handed.items()}
        self._start = reading.start
        if new := self._add_queues(reading):
            reading = self._start_counting(new, reading)
        elif self._has_vanished(reading):
            reading = self._read_in_full(reading)
        self._add_runs(reading.start)
        for name, queue in self.queues.items():
            if (counters := reading.queues.get(name)) is None:
                continue
            queue.add_counters(self._answered_at_s, counters)
            if queue.has_vanished(counters):
                queue.doubt(counters)
            else:
                queue.confirm(counters, announced.get(name, 0), reading.start)
        self._judge(reading)
        self._last_reading = reading
        return reading

    def _add_runs(self, start: str) -> None:
        """Add the numbers that runs have recorded. They are read after the counters, because a run records first."""
        notes = self._notes_of_runs(start)
        if notes.get(agent.OPENED, {}) != self._counted_of_runs.get(agent.OPENED, {}):
            return  # a run has opened the site since, and a later agent counts from there
        shown, deleted = (self._counted_of_runs.setdefault(kind, {}) for kind in (agent.SHOWN, agent.DELETED))
        for name, queue in self.queues.items():
            counts = [notes.get(kind, {}).get(name, 0) for kind in (agent.SHOWN, agent.DELETED)]
            queue.account.shown += counts[0] - shown.get(name, 0)
            queue.account.accounted += counts[1] - deleted.get(name, 0)
            shown[name], deleted[name] = counts

    def _read_standby(self) -> None:
        """Read whether the standby keeps clients out; if not, it may be the serving site."""
        self._standby_closed = False
        if system().monotonic() < self._delete_at:
            return
        try:
            self._standby_closed = not self._standby.is_open()
            if not self._standby_closed:
                self.over = BOTH_OPEN
        except BrokerError as error:
            self._standby_failed(error)

    def _standby_failed(self, error: BrokerError) -> None:
        if isinstance(error, LoginRefused):
            raise error
        self.standby_silent = str(error)
        self._standby_closed = False
        self._delete_at = system().monotonic() + RETRY_S
        for queue in self.queues.values():
            queue.to_compare, queue.compared = True, None

    def _has_vanished(self, reading: agent.ServingReading) -> bool:
        return any(
            not queue.vanished and queue.has_vanished(reading.queues[name])
            for name, queue in self.queues.items()
            if name in reading.queues
        )

    def _read_in_full(self, least: agent.ServingReading) -> agent.ServingReading:
        """Read several times, and keep for each queue the counters by which the fewest messages vanished."""
        for _ in range(agent.FRESH_READINGS - 1):
            system().sleep(RECEIVE_S)
            reading = self._primary.read()
            queues = {
                name: min(counters, reading.queues.get(name, counters), key=lambda known: known.unacknowledged)
                for name, counters in least.queues.items()
            }
            least = replace(reading, queues=queues)
            if not self._has_vanished(least):
                break
        return least

    def _add_queues(self, reading: agent.ServingReading) -> list[str]:
        """Add new queues, and return those whose counters cannot be used yet, because these include copies that were
        deleted while the site was the standby. Counters are used at once with an earlier agent's numbers of this start,
        and after a restart of the broker, which counts from zero."""
        known, shown, deleted = (self._same_start_memory.get(key, {}) for key in ("known", agent.SHOWN, agent.DELETED))
        new = [name for name in reading.queues if name not in self.queues]
        for name in new:
            account = agent.Account(known.get(name, 0), shown.get(name, 0), deleted.get(name, 0))
            self.queues[name] = agent.Queue(self.name, name, account)
        self._queue_order = deque(self.queues)
        if self._is_accepted:
            self._is_accepted = False
            for queue in self.queues.values():
                queue.is_accepted = True
            return list(reading.queues)
        return [] if self._restarted else [name for name in new if name not in known]

    def _start_counting(self, names: Sequence[str], first: agent.ServingReading) -> agent.ServingReading:
        readings = [first]
        for _ in range(agent.FRESH_READINGS - 1):
            system().sleep(RECEIVE_S)
            readings.append(self._primary.read())
        for name in names:
            self.queues[name].go_on([reading.queues[name] for reading in readings if name in reading.queues])
        return readings[-1]

    def _unsubscribe(self) -> None:
        self._primary.unsubscribe()
        self._is_subscribed = False

    def _primary_failed(self, error: BrokerError) -> None:
        if isinstance(error, LoginRefused):
            raise error
        self.primary_silent = str(error)
        self._read_next_at = system().monotonic() + RETRY_S
        self._unsubscribe()
        if system().monotonic() - self._answered_at_s > LOST_S:
            self.over = f"it has not answered for {LOST_S:g} s: {error}"
        else:
            system().sleep(RECEIVE_S)

    def _work(self, held: Held, within_s: float = MAX_DELETE_S) -> None:
        """Delete and compare for a short time, so that announcements are received soon after."""
        if held() is not None:
            self._was_held = True
            return
        if self._was_held:
            # A run that held the agent may have deleted copies too.
            for queue in self.queues.values():
                queue.forget()
            self._was_held = False
            return
        if not self._standby_closed:
            return
        try:
            self._delete(held, within_s)
            self._compare()
            self.standby_silent = None
        except PolicyRefused as error:
            self.refused = str(error)
            self._delete_at = system().monotonic() + REFUSED_RETRY_S
        except agent.IsOpen:
            self._standby_closed, self.over = False, BOTH_OPEN
        except BrokerError as error:
            self._standby_failed(error)

    def _compare(self) -> None:
        """List queues at both sites for up to `MAX_COMPARE_S`; the next reading judges the comparisons."""
        now_s, deadline = system().monotonic(), system().monotonic() + MAX_COMPARE_S
        queues = [
            queue
            for queue in self.queues.values()
            if queue.to_compare and queue.compared is None and not queue.vanished and queue.compare_not_before <= now_s
        ]
        if not queues or not self._is_subscribed or self._last_reading is None:
            return
        counts = self._standby.read_counts()
        for queue in queues:
            if (before := self._last_reading.queues.get(queue.name)) is None:
                continue
            queue.set_comparison(self._compare_queue(queue, before, self._last_reading.to_ship, counts))
            if system().monotonic() >= deadline:
                return

    def _compare_queue(
        self, queue: agent.Queue, before: agent.Counters, to_ship: Mapping[str, Count], at_standby: agent.StandbyReading
    ) -> agent.Comparison:
        """Compare a queue after a reading of both sites. A copy waits to be shipped, then is at the standby, and its
        message leaves the serving site last: so the copy of a message that was consumed before is listed in one of the
        first two places. Messages that the standby has never shipped are no copies. A count of zero replaces a
        listing."""
        name, consumed, tried = queue.name, before.consumed(queue.account.shown), queue.waiting.tried
        unshipped = self._primary.unshipped(name, to_ship.get(name, NOTHING))
        never_shipped = self._standby.unshipped(name, at_standby.unshipped.get(name, NOTHING))
        count = at_standby.copies.get(name, NOTHING) if not unshipped.ids else None
        copied = self._standby.list_queue(name, count, grows=not at_standby.prepared)
        copies = (unshipped.ids | copied.ids) - never_shipped.ids
        local = self._primary.list_queue(name, None) if copies else None
        listings = (unshipped, never_shipped, copied, *((local,) if local is not None else ()))
        reasons = [listing.why_not for listing in listings if listing.complete is None]
        why_not = f"{'; '.join(reasons)}; {RAISE_PAGE_SIZE}" if reasons else ""
        return agent.Comparison(system().now(), copies, local, consumed, tried, why_not)

    def _judge(self, reading: agent.ServingReading) -> None:
        for queue in self.queues.values():
            counters = reading.queues.get(queue.name)
            if queue.compared is None or queue.vanished:
                queue.compared = None
            elif counters is not None and self._standby_closed and (not queue.judge(counters) or queue.unannounced):
                queue.compare_not_before = system().monotonic() + COMPARE_RETRY_S

    def _delete(self, held: Held, within_s: float) -> None:
        deadline, idle = system().monotonic() + within_s, 0
        while idle < len(self._queue_order) and system().monotonic() < deadline:
            name = self._queue_order.popleft()
            self._queue_order.append(name)
            queue = self.queues[name]
            batch = queue.waiting.due(system().monotonic()) if not queue.vanished else None
            if batch is None:
                idle += 1
                continue
            idle = 0
            if held() is not None:
                return
            removed = self._standby.remove(name, batch.consumed)
            self.refused = None
            queue.waiting.note_removed(batch, removed, system().monotonic())


@dataclass(frozen=True, slots=True)
class PairsCleaner:
    """Implements `Cleaner` with one agent for each pair, in turn."""

    pairs: Sequence[Pair]
    primary: str
    standby: str
    debts: Callable[[], Sequence[Debt]] = list

    def step(self, held: Callable[[], str | None]) -> Progress:
        for pair in self.pairs:
            pair.step(lambda: held() or self._why_lost())
        return self._progress()

    def _why_lost(self) -> str | None:
        """Name the lost sites that are not reinstated: only a reinstatement can tell their messages apart. If the
        followed site was lost, the other has served since, and messages that only it has may be new."""
        lost = {debt.lost_site for debt in self.debts()}
        sites = [site for site in (self.primary, self.standby) if site in lost]
        verbs = ("was", "is") if len(sites) == 1 else ("were", "are")
        return f"{' and '.join(sites)} {verbs[0]} lost, and {verbs[1]} not reinstated" if sites else None

    def go_on(self) -> None:
        for pair in self.pairs:
            pair.go_on()

    def close(self) -> None:
        for pair in self.pairs:
            pair.close()

    def _progress(self) -> Progress:
        over_reasons = [f"{self.primary}, {pair.name}: {pair.over}" for pair in self.pairs if pair.over is not None]
        reasons = {
            self.primary: [pair.primary_silent for pair in self.pairs if pair.primary_silent],
            self.standby: [pair.standby_silent for pair in self.pairs if pair.standby_silent],
        }
        # A queue whose copies the agent may not delete is not complete.
        queues = [
            replace(queue.snapshot, complete=False) if pair.refused is not None else queue.snapshot
            for pair in self.pairs
            for queue in pair.queues.values()
        ]
        return Progress(
            queues,
            over="; ".join(over_reasons) or None,
            silent={site: "; ".join(why) for site, why in reasons.items() if why},
            findings=[*self._findings()],
            remembers={pair.name: pair.remembers() for pair in self.pairs},
        )

    def _findings(self) -> Iterator[Finding]:
        primary, standby = self.primary, self.standby
        for pair in self.pairs:
            for queue in pair.queues.values():
                name, progress = queue.name, queue.snapshot
                if queue.excess:
                    yield found("DR-AGENT-001.beyond", count=queue.excess, queue=name, standby=standby, primary=primary)
                elif progress.vanished:
                    yield found("DR-AGENT-001.vanished", count=progress.vanished, queue=name, site=primary)
                if progress.why_not:
                    yield found("DR-AGENT-002", why=progress.why_not)
                if progress.unheard:
                    yield found("DR-AGENT-006", unheard=progress.unheard, name=name, site=primary)
                if progress.unproven:
                    yield found("DR-AGENT-007", unproven=progress.unproven, name=name, site=standby)
            if pair.refused is not None:
                yield found("DR-AGENT-003", site=standby, why=pair.refused, permit=REMOVES)
        if (why := self._why_lost()) is not None:
            yield found("DR-AGENT-005", why=why, lost=why.split(" ")[0])


def cleaner(observer: Observer, primary: str, memory: Mapping[str, Any]) -> PairsCleaner:
    standby = observer.installation.other(primary)
    pairs = []
    for session in observer.at(primary):
        primary_broker, standby_broker = Primary(session), Standby(observer.brokers[standby][session.pair])
        known: Mapping[str, Json] = memory.get(session.pair, {})
        pairs.append(Pair(session.pair, primary_broker, standby_broker, known, session.run_notes.read_for))

    def debts() -> list[Debt]:
        return [debt for session in observer.all() for debt in debts_of(session.document_files.texts())]

    return PairsCleaner(pairs, primary, standby, debts)
