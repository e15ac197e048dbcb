"""Clients of a lab: producers and consumers that follow the service from site to site and keep a ledger.

Clients behave as well-made ones do: durable messages, a receipt for every send and every acknowledgement, many of
them outstanding at once, one message acknowledged at a time, and after a break a new connection to whichever site
lets them in. No message is sent again: a send without its receipt is in doubt, and the ledger says so.

A client has a connection of its own. A door that opens is found within some ten milliseconds, so that a gap
in the ledger is the brokers' gap and not the clients'. Where each queue has a door of its own, each client serves one
queue: a closed queue then cuts no other, and its clients look for it at both sites.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl.core.clock import growing_s
from dr_ctl.core.system import beside, system
from dr_ctl.stomp_io.connection import Connection, ConnectionLost, SaidError
from dr_ctl.stomp_io.dialect import ARTEMIS, Dialect
from dr_ctl.stomp_io.knock import knock
from dr_ctl_lab.lab.fanout import FanOut, Producing, produce
from dr_ctl_lab.lab.ids import Ids, IdStore
from dr_ctl_lab.lab.ledger import Event, Ledger, Verdict
from dr_ctl_lab.lab.sending import Sending, send
from dr_ctl_lab.lab.working import Store, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from dr_ctl.core.system import Event as Told
    from dr_ctl.core.system import Work as Beside
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.ledger import Counts

RETRY_S = 0.01
AWAY_S = 0.02  # after a site that does not serve what we came for
HEAD_START_S = 0.1  # of the site that served last, before the other is tried too
GREETING_S = 2.0
AGAIN_S, MOST_KNOCKS = 0.1, 4
SILENT_S = 4.0  # a broker that says nothing for so long, heart-beats included, is left
BEAT_S = 4.0
HEART_BEATS = {"heart-beat": "10000,1000"}
TURN_S = 0.05
FINISH_S = 3.0
LOOK_S, QUIET_S = 0.3, 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """Where clients may be served: the sites' names and client addresses, and one login for both.

    `left` counts the messages that still lie in the queues, or says None where it cannot tell. With `ids` consumers are
    idempotent, and each queue is served by itself: a site may let clients in and refuse them one of its queues.
    """

    sites: tuple[tuple[str, Address], ...]
    login: Login
    left: Callable[[Sequence[str]], int | None] = lambda _: None
    ids: Ids | None = None
    dialect: Dialect = ARTEMIS
    fan_out: FanOut | None = None  # producers write to all sites at once

    def store(self, site: str) -> Store | None:
        return None if self.ids is None else Store(IdStore(self.ids.stores[site]), self.ids.address)


class Dialler:
    """Finds the site that lets clients in, the one that served last first, knocking at both side by side."""

    def __init__(self, target: Target, *, headers: dict[str, str] | None = None) -> None:
        self._target = target
        self._headers = {**HEART_BEATS, **(headers or {})}
        self._last = target.sites[0][0]
        self._away_until = 0.0

    def turned_away(self, site: str) -> None:
        """Note that a site let us in and refused what we came for: dial the other one next, and in a moment."""
        self._last = next((name for name, _ in self._target.sites if name != site), site)
        self._away_until = growing_s() + AWAY_S

    def dial(self, stop: Told) -> tuple[str, Connection] | None:
        """Return the site and the connection, or None once `stop` is set."""
        stop.wait(max(0.0, self._away_until - growing_s()))
        began, search = growing_s(), _Search(self._target.login, self._headers)
        in_order = sorted(self._target.sites, key=lambda site: site[0] != self._last)
        while not stop.is_set() and search.found is None:
            for site, address in in_order:
                early = site != self._last and self._last not in search.denied and growing_s() - began < HEAD_START_S
                if not early:
                    search.knock_at(site, address)
            search.over.wait(RETRY_S)
        search.over.set()
        if search.found is not None:
            self._last = search.found[0]
        return search.found


class _Search:
    """Knocks at sites until one lets us in, or it is over."""

    def __init__(self, login: Login, headers: dict[str, str]) -> None:
        self._login, self._headers = login, headers
        self._knocking: dict[str, list[float]] = {}
        self._one = system().mutex()
        self.over = system().event()
        self.denied: set[str] = set()
        self.found: tuple[str, Connection] | None = None

    def knock_at(self, site: str, address: Address) -> None:
        """Knock there from now on. And once more beside it, should that stay without an answer: a knock that is never
        answered would otherwise add its whole time limit to the gap that is measured."""
        since, now = self._knocking.setdefault(site, []), growing_s()
        if len(since) < MOST_KNOCKS and all(now - each > AGAIN_S for each in since):
            number = len(since)
            since.append(now)
            beside(lambda: self._knock(site, address, number), f"knock at {site}")

    def _knock(self, site: str, address: Address, number: int) -> None:
        while not self.over.is_set():
            self._knocking[site][number] = growing_s()
            _, connection = knock(address, self._login, None, timeout_s=GREETING_S, headers=self._headers)
            if connection is not None:
                self._let_in(site, connection)
            else:
                self.denied.add(site)
            self.over.wait(RETRY_S)

    def _let_in(self, site: str, connection: Connection) -> None:
        with self._one:
            if self.found is None and not self.over.is_set():
                self.found = site, connection
                self.over.set()
                return
        connection.close()


class Load:
    """Producers and consumers in the background. One use: start, perhaps pause, stop; the verdict comes with stop."""

    def __init__(
        self,
        target: Target,
        queues: Sequence[str],
        rate: float,
        *,
        beside: Sequence[Target] = (),
        producers: int = 2,
        consumers: int = 2,
        work_ms: float = 0.0,
        body_bytes: int = 200,
        ledger_path: Path | None = None,
    ) -> None:
        """`rate` is messages per second of all producers together; `work_ms` is what a consumer needs for each. The
        clients are dealt out over the target and those `beside` it, and over their queues where each is served by
        itself; a share has at least one of a kind that there is."""
        self._shares = [share for each in (target, *beside) for share in _shares(each, tuple(queues))]
        producers, consumers = (max(each, len(self._shares)) if each else 0 for each in (producers, consumers))
        self.run = uuid.uuid4().hex[:8]
        self.ledger = Ledger(ledger_path)
        self._targets = (target, *beside)
        self._queues = tuple(queues)
        self._interval_s = producers / rate if producers and rate > 0 else 0.0
        self._work_s = work_ms / 1000
        self._body = "x" * body_bytes
        self._producing = system().event()
        self._no_more_sends = system().event()
        self._no_more_work = system().event()
        self._many = producers, consumers
        self._producers: dict[str, Beside[None]] = {}
        self._consumers: dict[str, Beside[None]] = {}

    def start(self) -> Self:
        self._producing.set()
        producers, consumers = self._many
        self._consumers = self._begun(self._consume, "consumer", consumers)
        self._producers = self._begun(self._produce, "producer", producers)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def counts(self) -> Counts:
        """How far it is, now."""
        self._see_them_live()
        return self.ledger.counts()

    def slow_down(self, work_ms: float) -> None:
        """From now on a consumer needs so long for each message."""
        self._work_s = work_ms / 1000

    def _working(self) -> float:
        return self._work_s

    def pause_producing(self) -> None:
        """Send nothing more for now; consumers go on."""
        self._producing.clear()
        self.ledger.rest()

    def resume_producing(self) -> None:
        self.ledger.resume()
        self._producing.set()

    def wait_for(self, sent: int, *, within_s: float = 30.0) -> Counts:
        """Wait until so many sends have their receipts; TimeoutError where they have not in time."""
        return self.wait_until(lambda counts: counts.sent >= sent, within_s=within_s, what=f"{sent} receipts")

    def wait_until(
        self, true: Callable[[Counts], bool], *, within_s: float = 30.0, what: str = "the condition"
    ) -> Counts:
        """Wait until something is true of the counts; TimeoutError where it is not in time."""
        until = growing_s() + within_s
        while not true(counts := self.counts()):
            if growing_s() > until:
                raise TimeoutError(f"{what} not reached within {within_s:g} s: {counts}")
            system().sleep(RETRY_S)
        return counts

    def stop(self, *, drain_s: float = 30.0) -> Verdict:
        """Stop sending, let the consumers finish what lies in the queues, and judge. The wait ends where nothing was
        received or acknowledged for `drain_s`."""
        self.pause_producing()
        self._no_more_sends.set()
        _join(self._producers)
        drained = self._drain(drain_s)
        self.close()
        return self.ledger.verdict(drained=drained)

    def close(self) -> None:
        """End every client where it stands. Twice is once."""
        self._no_more_sends.set()
        self._no_more_work.set()
        _join(self._producers | self._consumers)
        self.ledger.close()

    def _drain(self, drain_s: float) -> bool:
        """Wait until all that has a receipt came and is acknowledged, or until the brokers say nothing is left."""
        until = growing_s() + drain_s
        quiet_since = growing_s()
        before = self.counts()
        while self._consumers and growing_s() < until:
            done = before.awaited == 0 and before.received == before.consumed + before.ack_in_doubt
            if done and before.send_in_doubt == before.ack_in_doubt == 0:
                return True
            # Something is missing or in doubt: only the brokers can say that nothing more will come.
            left = self._left()
            self._no_more_work.wait(LOOK_S)
            after = self.counts()
            if after != before:
                quiet_since = growing_s()
                until = quiet_since + drain_s
            elif left == 0 or (left is None and done and growing_s() - quiet_since > QUIET_S):
                return True
            before = after
        return before.awaited == 0

    def _left(self) -> int | None:
        """Count what lies in the queues of all targets, or None where one cannot tell."""
        total = 0
        for target in self._targets:
            left = target.left(self._queues)
            if left is None:
                return None
            total += left
        return total

    def _begun(
        self, client: Callable[[str, Target, Sequence[str]], None], kind: str, many: int
    ) -> dict[str, Beside[None]]:
        shares = {f"{kind}-{number}": self._shares[number % len(self._shares)] for number in range(many)}
        return {name: beside(partial(client, name, *share), f"{name}-{self.run}") for name, share in shares.items()}

    def _see_them_live(self) -> None:
        """A client that ended by itself is a defect, and must not look like a quiet broker."""
        for clients, told in ((self._producers, self._no_more_sends), (self._consumers, self._no_more_work)):
            for name, client in clients.items():
                if client.wait(0) and not told.is_set():
                    client.result()
                    raise RuntimeError(f"{name} ended by itself")

    def _produce(self, name: str, target: Target, queues: Sequence[str]) -> None:
        if target.fan_out is not None:
            produce(target.fan_out, target.login, self._producing_of(name, target, queues))
            return
        dialler = Dialler(target)
        sent = 0
        while (found := dialler.dial(self._no_more_sends)) is not None:
            sending = Sending(*found, queues, name, sent, let_in=target.ids is None)
            try:
                self._send_all(sending, target)
                sending.connection.close()
            except ConnectionLost as lost:
                sending.connection.close(politely=False)
                if isinstance(lost, SaidError) and not sending.let_in:
                    dialler.turned_away(sending.site)
                    continue  # the message it was tried with is refused, and goes elsewhere
            sent = sending.number
            for ident, queue in sending.outstanding.items():
                self.ledger.attempt(queue, ident)
                self.ledger.record(Event.SEND_IN_DOUBT, queue, ident, sending.site)

    def _producing_of(self, name: str, target: Target, queues: Sequence[str]) -> Producing:
        numbered = ((f"{self.run}-{name}-{number}", queues[number % len(queues)]) for number in itertools.count(1))
        return Producing(
            numbered, self._body, target.dialect, self.ledger, self._interval_s, self._producing, self._no_more_sends
        )

    def _send_all(self, sending: Sending, target: Target) -> None:
        """Send at the rate, noting receipts, until told to stop and the last receipt is there."""
        due = growing_s()
        stopped_at: float | None = None
        while True:
            now = growing_s()
            if self._no_more_sends.is_set():
                stopped_at = stopped_at or now
                if not sending.outstanding or now - stopped_at > FINISH_S:
                    return
            elif not self._producing.is_set():
                due = now
            while stopped_at is None and self._producing.is_set() and due <= now and sending.may_send:
                ident, queue = sending.next(self.run)
                if sending.let_in:
                    self.ledger.attempt(queue, ident)
                send(sending.connection, target.dialect, queue, ident, self._body)
                # After a stall the rate goes on; missed sends are not made up for in one burst.
                due = max(due + self._interval_s, now - 1.0)
            for frame in sending.connection.receive(max(0.0005, min(due - growing_s(), TURN_S))):
                ident = frame.headers.get("receipt-id", "")
                if frame.cmd == "RECEIPT" and (done := sending.outstanding.pop(ident, None)) is not None:
                    sending.let_in = True
                    self.ledger.attempt(done, ident)
                    self.ledger.record(Event.SENT, done, ident, sending.site)
            sending.connection.beat(every_s=BEAT_S, silent_s=SILENT_S)

    def _consume(self, name: str, target: Target, queues: Sequence[str]) -> None:
        del name
        dialler = Dialler(target)
        while (found := dialler.dial(self._no_more_work)) is not None:
            site, connection = found
            store = target.store(site)
            work = Work(
                connection, site, queues, self.ledger, work_s=self._working, store=store, dialect=target.dialect
            )
            try:
                self._work_all(connection, work)
                connection.close()
            except ConnectionLost as lost:
                connection.close(politely=False)
                if isinstance(lost, SaidError) and not work.let_in:
                    dialler.turned_away(site)
            work.give_up()
            if store is not None:
                store.close()

    def _work_all(self, connection: Connection, work: Work) -> None:
        work.subscribe()
        stopped_at: float | None = None
        while True:
            if self._no_more_work.is_set():
                stopped_at = stopped_at or growing_s()
                if not work.unconfirmed or growing_s() - stopped_at > FINISH_S:
                    return
            for frame in connection.receive(TURN_S):
                work.take(frame, begin=stopped_at is None)
            connection.beat(every_s=BEAT_S, silent_s=SILENT_S)


def _shares(target: Target, queues: tuple[str, ...]) -> list[tuple[Target, tuple[str, ...]]]:
    """Shares that one client takes on there: the whole, or one queue where each is served by itself."""
    return [(target, queues)] if target.ids is None else [(target, (queue,)) for queue in queues]


def _join(clients: Mapping[str, Beside[None]]) -> None:
    for client in clients.values():
        client.wait(GREETING_S + FINISH_S + SILENT_S)
