"""The agents of all pairs. An agent follows what is consumed, believes it once counters agree, and deletes copies."""

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

HEAR_S: Final = 0.05
READ_EVERY_S: Final = 0.4
LOST_S: Final = 8.0
"""A serving broker that answers nothing for so long is lost."""
AGAIN_S: Final = 1.0
COMPARE_AGAIN_S: Final = 10.0
"""The agent compares no sooner after a comparison that told nothing, because it takes the serving broker's memory."""
REFUSED_AGAIN_S: Final = 10.0
MAX_DELETE_S: Final = 0.5
MAX_COMPARE_S: Final = 0.3
"""After so long the agent hears announcements before it deletes or compares more."""
LAST_WORK_S: Final = 5.0
"""Copies that are believed may be deleted for so long after the listeners are closed."""
LAST_WORDS_S: Final = 2.0
"""Announcements from before the listeners were closed are heard for so long."""
RAISE: Final = "compared again soon; where it always is so, raise maxBrowsePageSize above its depth there"
NOTHING: Final = Count(0, 0)
BOTH_OPEN: Final = "split brain: the standby lets clients in too, so the agent cannot tell which site serves"
Held = Callable[[], str | None]


class Pair:
    """The agent of one pair, for one thread. A failure of a broker ends a step early. A refused login is raised,
    because another try may lock the user out."""

    def __init__(
        self,
        name: str,
        primary: Primary,
        standby: Standby,
        remembered: Mapping[str, Json],
        by_runs: Callable[[str], Mapping[str, Any]] = lambda start: {},  # noqa: ARG005 - no run was ever made
    ) -> None:
        self.name = name
        self.queues: dict[str, agent.Queue] = {}
        self.over: str | None = None
        self.primary_silent: str | None = None
        self.standby_silent: str | None = None
        self.refused: str | None = None
        self._primary, self._standby = primary, standby
        self._remembered: Mapping[str, Any] = remembered
        self._earlier: Mapping[str, Any] = {}  # the part of the memory that is of this start of the broker
        self._by_runs = by_runs
        self._handed: dict[str, Any] = {}
        self._start: str | None = None
        self._answered = system().monotonic()
        self._read_next_at = self._delete_at = 0.0
        self._listens = self._was_held = self._goes_on = self._restarted = False
        self._standby_closed = False
        self._turns: deque[str] = deque()
        self._glance: agent.ServingReading | None = None

    def step(self, held: Held) -> None:
        try:
            self._hear()
            if system().monotonic() >= self._read_next_at:
                reading = self._read_serving()
                for name in self._primary.listen(list(reading.queues)):
                    # Clients may have consumed unheard.
                    self.queues[name].forget()
                    self.queues[name].heard.begin()
                self._listens = True
                if not reading.is_open:
                    self.over = "its clients' connectors are closed: it serves nobody any more"
                    until = system().monotonic() + LAST_WORDS_S
                    while self._hear() and system().monotonic() < until:
                        pass
                    self._read_serving()
                    self._work(held, LAST_WORK_S)
        except BrokerError as error:
            self._primary_failed(error)
            return
        self._work(held)

    def go_on(self) -> None:
        """Forget the messages that vanished; the next reading follows at once, and forgets what its counters say."""
        self._goes_on, self._read_next_at = True, 0.0
        for queue in self.queues.values():
            queue.vanished = queue.excess = 0
            queue.forget()

    def remembers(self) -> dict[str, Json]:
        if self._start is None:
            return dict(self._remembered)
        accounts = {name: queue.account for name, queue in self.queues.items()}
        known: dict[str, Json] = {name: account.known for name, account in accounts.items()}
        shown: dict[str, Json] = {name: account.shown for name, account in accounts.items()}
        counted = {name: queue.waiting.counted for name, queue in self.queues.items()}
        deleted: dict[str, Json] = {name: account.spent - counted[name] for name, account in accounts.items()}
        handed: Json = {what: dict(counts) for what, counts in self._handed.items()}
        return {"start": self._start, "known": known, agent.SHOWN: shown, agent.DELETED: deleted, agent.HANDED: handed}

    def close(self) -> None:
        self._primary.close()
        self._standby.close()

    def _hear(self) -> bool:
        if not self._listens:
            system().sleep(HEAR_S)
            return False
        heard = self._primary.heard(HEAR_S)
        for name, id_ in heard:
            self.queues[name].hear(id_)
        return bool(heard)

    def _read_serving(self) -> agent.ServingReading:
        """Read the serving broker, and believe the ids that came before, unless its counters contradict them."""
        announced = {name: len(queue.announced) for name, queue in self.queues.items()}
        reading = self._primary.read()
        self._answered = system().monotonic()
        self._read_next_at = self._answered + READ_EVERY_S
        self.primary_silent = None
        self._read_standby()
        if self._start not in (None, reading.start):
            self._deaf()  # the broker was away, so announcements may have been missed
            # Counters confirmed the earlier ids, which stay consumed whatever the broker came back with.
            self.queues = {
                name: agent.Queue(self.name, name, waiting=queue.waiting) for name, queue in self.queues.items()
            }
            for queue in self.queues.values():
                queue.waiting.of_earlier_start()
            self._restarted = True
        if self._start != reading.start:
            self._earlier = self._remembered if self._remembered.get("start") == reading.start else {}
            self._handed = {what: dict(counts) for what, counts in self._earlier.get(agent.HANDED, {}).items()}
        self._start = reading.start
        if fresh := self._taken_up(reading):
            reading = self._begin(fresh, reading)
        elif self._suspects(reading):
            reading = self._read_in_full(reading)
        self._take_in_runs(reading.start)
        for name, queue in self.queues.items():
            if (counters := reading.queues.get(name)) is None:
                continue
            queue.note_counters(self._answered, counters)
            if queue.suspects(counters):
                queue.doubt(counters)
            else:
                queue.confirm(counters, announced.get(name, 0), reading.start)
        self._judge(reading)
        self._glance = reading
        return reading

    def _take_in_runs(self, start: str) -> None:
        """Count what runs did besides. Their notes are read after the counters, because a run notes first."""
        noted = self._by_runs(start)
        if noted.get(agent.OPENED, {}) != self._handed.get(agent.OPENED, {}):
            return  # the site was opened since, and whoever follows it from then on counts anew
        shown, deleted = (self._handed.setdefault(what, {}) for what in (agent.SHOWN, agent.DELETED))
        for name, queue in self.queues.items():
            now = [noted.get(what, {}).get(name, 0) for what in (agent.SHOWN, agent.DELETED)]
            queue.account.shown += now[0] - shown.get(name, 0)
            queue.account.spent += now[1] - deleted.get(name, 0)
            shown[name], deleted[name] = now

    def _read_standby(self) -> None:
        """Read whether the standby keeps clients out too; a site that lets them in may serve."""
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
        self._delete_at = system().monotonic() + AGAIN_S
        for queue in self.queues.values():
            queue.to_compare, queue.compared = True, None

    def _suspects(self, reading: agent.ServingReading) -> bool:
        return any(
            not queue.vanished and queue.suspects(reading.queues[name])
            for name, queue in self.queues.items()
            if name in reading.queues
        )

    def _read_in_full(self, least: agent.ServingReading) -> agent.ServingReading:
        """Read many times, and keep the counters of each queue by which the fewest messages vanished."""
        for _ in range(agent.SURE - 1):
            system().sleep(HEAR_S)
            more = self._primary.read()
            both = {
                name: min(counters, more.queues.get(name, counters), key=lambda known: known.unacknowledged)
                for name, counters in least.queues.items()
            }
            least = replace(more, queues=both)
            if not self._suspects(least):
                break
        return least

    def _taken_up(self, reading: agent.ServingReading) -> list[str]:
        """Take up new queues, and give those whose counters say nothing yet, because they include copies deleted while
        the site waited. Figures of an earlier agent for this start count on, and a broker that started anew counts from
        zero."""
        earlier, shown, deleted = (self._earlier.get(key, {}) for key in ("known", agent.SHOWN, agent.DELETED))
        fresh = [name for name in reading.queues if name not in self.queues]
        for name in fresh:
            account = agent.Account(earlier.get(name, 0), shown.get(name, 0), deleted.get(name, 0))
            self.queues[name] = agent.Queue(self.name, name, account)
        self._turns = deque(self.queues)
        if self._goes_on:
            self._goes_on = False
            for queue in self.queues.values():
                queue.answered_for = True
            return list(reading.queues)
        return [] if self._restarted else [name for name in fresh if name not in earlier]

    def _begin(self, names: Sequence[str], first: agent.ServingReading) -> agent.ServingReading:
        readings = [first]
        for _ in range(agent.SURE - 1):
            system().sleep(HEAR_S)
            readings.append(self._primary.read())
        for name in names:
            self.queues[name].go_on([reading.queues[name] for reading in readings if name in reading.queues])
        return readings[-1]

    def _deaf(self) -> None:
        self._primary.deaf()
        self._listens = False

    def _primary_failed(self, error: BrokerError) -> None:
        if isinstance(error, LoginRefused):
            raise error
        self.primary_silent = str(error)
        self._read_next_at = system().monotonic() + AGAIN_S
        self._deaf()
        if system().monotonic() - self._answered > LOST_S:
            self.over = f"it has not answered for {LOST_S:g} s: {error}"
        else:
            system().sleep(HEAR_S)

    def _work(self, held: Held, within_s: float = MAX_DELETE_S) -> None:
        """Delete and compare for a moment, so that what is announced meanwhile is heard soon."""
        if held() is not None:
            self._was_held = True
            return
        if self._was_held:
            # Whoever held the agent may have deleted copies too.
            for queue in self.queues.values():
                queue.forget()
            self._was_held = False
            return
        if not self._standby_closed:
            return
        try:
            self._clean(held, within_s)
            self._compare()
            self.standby_silent = None
        except PolicyRefused as error:
            self.refused = str(error)
            self._delete_at = system().monotonic() + REFUSED_AGAIN_S
        except agent.Opened:
            self._standby_closed, self.over = False, BOTH_OPEN
        except BrokerError as error:
            self._standby_failed(error)

    def _compare(self) -> None:
        """List as many queues at both sites as one portion allows; the next reading judges what that proves."""
        now, until = system().monotonic(), system().monotonic() + MAX_COMPARE_S
        due = [
            queue
            for queue in self.queues.values()
            if queue.to_compare and queue.compared is None and not queue.vanished and queue.compare_not_before <= now
        ]
        if not due or not self._listens or self._glance is None:
            return
        counts = self._standby.counts()
        for queue in due:
            if (before := self._glance.queues.get(queue.name)) is None:
                continue
            queue.keep(self._compared(queue, before, self._glance.to_ship, counts))
            if system().monotonic() >= until:
                return

    def _compared(
        self, queue: agent.Queue, before: agent.Counters, to_ship: Mapping[str, Count], waiting: agent.StandbyReading
    ) -> agent.Comparison:
        """Compare a queue after a reading of both sites. A copy is on its way, then at the standby, and its
        message leaves the serving site last, so a message consumed before shows in one of the first two places.
        Messages that the standby did not ship when it served are no copies. A count of zero is as good as a
        listing."""
        name, consumed, tried = queue.name, before.consumed(queue.account.shown), queue.waiting.tried
        unshipped = self._primary.unshipped(name, to_ship.get(name, NOTHING))
        own = self._standby.unshipped(name, waiting.unshipped.get(name, NOTHING))
        count = waiting.copies.get(name, NOTHING) if not unshipped.ids else None
        copied = self._standby.listed(name, count, grows=not waiting.prepared)
        copies = (unshipped.ids | copied.ids) - own.ids
        local = self._primary.listed(name, None) if copies else None
        listings = (unshipped, own, copied, *((local,) if local is not None else ()))
        cut = [listing.why_not for listing in listings if listing.complete is None]
        why_not = f"{'; '.join(cut)}; {RAISE}" if cut else ""
        return agent.Comparison(system().now(), copies, local, consumed, tried, why_not)

    def _judge(self, reading: agent.ServingReading) -> None:
        for queue in self.queues.values():
            counters = reading.queues.get(queue.name)
            if queue.compared is None or queue.vanished:
                queue.compared = None
            elif counters is not None and self._standby_closed and (not queue.judge(counters) or queue.unheard):
                queue.compare_not_before = system().monotonic() + COMPARE_AGAIN_S

    def _clean(self, held: Held, within_s: float) -> None:
        until, idle = system().monotonic() + within_s, 0
        while idle < len(self._turns) and system().monotonic() < until:
            name = self._turns.popleft()
            self._turns.append(name)
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
            queue.waiting.answered(batch, removed, system().monotonic())


@dataclass(frozen=True, slots=True)
class PairsCleaner:
    """Implements `Cleaner`: the pairs take turns."""

    pairs: Sequence[Pair]
    primary: str
    standby: str
    debts: Callable[[], Sequence[Debt]] = list

    def step(self, held: Callable[[], str | None]) -> Progress:
        for pair in self.pairs:
            pair.step(lambda: held() or self._owed())
        return self._kept()

    def _owed(self) -> str | None:
        """Say which site was lost and is not taken in, because only its return can sort its messages. If the followed
        site was lost, the other took over, and a message there alone may be new."""
        lost = {debt.lost_site for debt in self.debts()}
        sites = [site for site in (self.primary, self.standby) if site in lost]
        verbs = ("was", "is") if len(sites) == 1 else ("were", "are")
        return f"{' and '.join(sites)} {verbs[0]} lost, and {verbs[1]} not taken in again" if sites else None

    def go_on(self) -> None:
        for pair in self.pairs:
            pair.go_on()

    def close(self) -> None:
        for pair in self.pairs:
            pair.close()

    def _kept(self) -> Progress:
        over = [f"{self.primary}, {pair.name}: {pair.over}" for pair in self.pairs if pair.over is not None]
        reasons = {
            self.primary: [pair.primary_silent for pair in self.pairs if pair.primary_silent],
            self.standby: [pair.standby_silent for pair in self.pairs if pair.standby_silent],
        }
        # The agent keeps no queue clean whose copies it may not delete.
        queues = [
            replace(queue.snapshot, complete=False) if pair.refused is not None else queue.snapshot
            for pair in self.pairs
            for queue in pair.queues.values()
        ]
        return Progress(
            queues,
            over="; ".join(over) or None,
            silent={site: "; ".join(why) for site, why in reasons.items() if why},
            findings=[*self._findings()],
            remembers={pair.name: pair.remembers() for pair in self.pairs},
        )

    def _findings(self) -> Iterator[Finding]:
        primary, standby = self.primary, self.standby
        for pair in self.pairs:
            for queue in pair.queues.values():
                name, kept = queue.name, queue.snapshot
                if queue.excess:
                    yield found("DR-AGENT-001.beyond", count=queue.excess, queue=name, standby=standby, primary=primary)
                elif kept.vanished:
                    yield found("DR-AGENT-001.vanished", count=kept.vanished, queue=name, site=primary)
                if kept.why_not:
                    yield found("DR-AGENT-002", why=kept.why_not)
                if kept.unheard:
                    yield found("DR-AGENT-006", unheard=kept.unheard, name=name, site=primary)
                if kept.unproven:
                    yield found("DR-AGENT-007", unproven=kept.unproven, name=name, site=standby)
            if pair.refused is not None:
                yield found("DR-AGENT-003", site=standby, why=pair.refused, permit=REMOVES)
        if (why := self._owed()) is not None:
            yield found("DR-AGENT-005", why=why, lost=why.split(" ")[0])


def cleaner(observer: Observer, primary: str, remembered: Mapping[str, Any]) -> PairsCleaner:
    standby = observer.installation.other(primary)
    pairs = []
    for session in observer.at(primary):
        serving, waiting = Primary(session), Standby(observer.brokers[standby][session.pair])
        memory: Mapping[str, Json] = remembered.get(session.pair, {})
        pairs.append(Pair(session.pair, serving, waiting, memory, session.noted.of))

    def debts() -> list[Debt]:
        return [debt for session in observer.all() for debt in debts_of(session.document_files.texts())]

    return PairsCleaner(pairs, primary, standby, debts)
