"""Clients of a lab: producers and consumers that follow the service from site to site and keep a ledger.

Messages are durable, every send and every acknowledgement gets a receipt, many sends are outstanding at once, messages
are acknowledged one by one, and after a break a client connects to the site that lets it in. No message is sent again:
a send without a receipt is in doubt.

Each client has one connection. With several protocols, clients begin with different ones and change the protocol at
each new connection. Over STOMP a client finds an open listener within some ten milliseconds, so that a gap in the
ledger is the brokers' gap. Where queues are opened and closed one by one, each client serves one queue.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl.core.system import boottime_s, in_background, system
from dr_ctl.stomp_io.client import ConnectionLost, RequestRefused
from dr_ctl_lab.lab.clients.client import LOGIN_S, SILENT_S, Client, Confirmed, Proto, is_subscription
from dr_ctl_lab.lab.clients.dialling import Dialler, Opener
from dr_ctl_lab.lab.clients.traits import PARTS, Variation
from dr_ctl_lab.lab.dialect import ARTEMIS, Dialect
from dr_ctl_lab.lab.fanout import FanOut, Producing, produce
from dr_ctl_lab.lab.ids import Ids, IdStore
from dr_ctl_lab.lab.ledger import Event, Ledger, Verdict
from dr_ctl_lab.lab.sending import Numbered, Sending
from dr_ctl_lab.lab.working import Consumer, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from dr_ctl.core.system import BackgroundTask
    from dr_ctl.stomp_io.address import Address, Login
    from dr_ctl_lab.lab.ledger import Counts

RETRY_S = 0.01
TURN_S = 0.05
FINISH_S = 3.0
POLL_S, QUIET_S = 0.3, 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """The addresses of a pair's client listeners, by site, and one login for both.

    `remaining` counts the messages in the queues; None where that is not known. With `ids` consumers are idempotent,
    and queues are opened and closed one by one. All `protocols` use the same port; `home` has the libraries of Java
    clients. `forwards` are the queues that get messages published with MQTT.
    """

    sites: tuple[tuple[str, Address], ...]
    login: Login
    remaining: Callable[[Sequence[str]], int | None] = lambda _: None
    ids: Ids | None = None
    dialect: Dialect = ARTEMIS
    fan_out: FanOut | None = None  # producers send to all sites
    protocols: tuple[Proto, ...] = (Proto.STOMP,)
    variations: frozenset[Variation] = frozenset()  # of its messages
    home: Path | None = None
    forwards: frozenset[str] = frozenset()

    def store(self, site: str) -> Store | None:
        return None if self.ids is None else Store(IdStore(self.ids.stores[site]), self.ids.address)

    def sendable(self, protocol: Proto, queues: Sequence[str]) -> tuple[str, ...]:
        """The queues that a client of that protocol can send to."""
        if protocol is not Proto.MQTT:
            return tuple(queues)
        return tuple(queue for queue in queues if is_subscription(queue) or queue in self.forwards)

    def consumable(self, protocol: Proto, queues: Sequence[str]) -> tuple[str, ...]:
        """The queues that a client of that protocol can consume."""
        return tuple(queue for queue in queues if protocol is not Proto.MQTT or is_subscription(queue))


class Load:
    """Producers and consumers in the background, for one start and one stop; `stop` returns the verdict."""

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
        protocols: Sequence[Proto] = (Proto.STOMP,),
        variations: Collection[Variation] = (),
        ledger_path: Path | None = None,
    ) -> None:
        """`rate` is messages per second of all producers together; `work_ms` is the time of a consumer for each
        message. Clients are distributed over `target` and `beside`, and over their queues where those are opened one by
        one; each share has at least one producer and consumer, if there are any. With several protocols, the first of
        several consumers of a share has a selector."""
        self._shares = [share for item in (target, *beside) for share in _shares(item, tuple(queues))]
        producers, consumers = (max(count, len(self._shares)) if count else 0 for count in (producers, consumers))
        self.run = uuid.uuid4().hex[:8]
        self.ledger = Ledger(ledger_path)
        self._targets = (target, *beside)
        self._queues = tuple(queues)
        self._interval_s = producers / rate if producers and rate > 0 else 0.0
        self._work_s = work_ms / 1000
        self._body_bytes, self._odd = body_bytes, variations
        # Only STOMP has no special meaning for such names: others read `?` as options, or `>` as a wildcard.
        self._protocols = (Proto.STOMP,) if any({*queue} & {*"?>"} for queue in queues) else tuple(protocols)
        self._opener = Opener(target.dialect, target.home)
        self._producing = system().event()
        self._no_more_sends = system().event()
        self._no_more_work = system().event()
        self._client_counts = producers, consumers
        self._producers: dict[str, BackgroundTask[None]] = {}
        self._consumers: dict[str, BackgroundTask[None]] = {}

    def start(self) -> Self:
        self._producing.set()
        producers, consumers = self._client_counts
        self._consumers = self._start_clients(self._consume, "consumer", consumers)
        self._producers = self._start_clients(self._produce, "producer", producers)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def counts(self) -> Counts:
        """The present counts of the ledger."""
        self._check_clients_run()
        return self.ledger.counts()

    def slow_down(self, work_ms: float) -> None:
        """Change the time of a consumer for each message."""
        self._work_s = work_ms / 1000

    def _current_work_s(self) -> float:
        return self._work_s

    def pause_producing(self) -> None:
        """Pause all producers; consumers continue."""
        self._producing.clear()
        self.ledger.rest()

    def resume_producing(self) -> None:
        self.ledger.resume()
        self._producing.set()

    def wait_for(self, sent: int, *, within_s: float = 30.0) -> Counts:
        """Wait until `sent` sends have receipts; TimeoutError after `within_s`."""
        return self.wait_until(lambda counts: counts.sent >= sent, within_s=within_s, goal=f"{sent} receipts")

    def wait_until(
        self, condition: Callable[[Counts], bool], *, within_s: float = 30.0, goal: str = "the condition"
    ) -> Counts:
        """Wait until a condition of the counts holds; TimeoutError after `within_s`."""
        until = boottime_s() + within_s
        while not condition(counts := self.counts()):
            if boottime_s() > until:
                raise TimeoutError(f"{goal} not reached within {within_s:g} s: {counts}")
            system().sleep(RETRY_S)
        return counts

    def stop(self, *, drain_s: float = 30.0) -> Verdict:
        """Stop sending, let consumers empty the queues, and return the verdict. The wait ends after `drain_s` without
        any event."""
        self.pause_producing()
        self._no_more_sends.set()
        _join(self._producers)
        drained = self._drain(drain_s)
        self.close()
        return self.ledger.verdict(drained=drained)

    def close(self) -> None:
        """End every client at once."""
        self._no_more_sends.set()
        self._no_more_work.set()
        _join(self._producers | self._consumers)
        self._opener.close()
        self.ledger.close()

    def _drain(self, drain_s: float) -> bool:
        """Wait until every message with a receipt is received and acknowledged, or the brokers' queues are empty."""
        until = boottime_s() + drain_s
        quiet_since = boottime_s()
        before = self.counts()
        while self._consumers and boottime_s() < until:
            done = before.awaited == 0 and before.received == before.consumed + before.ack_in_doubt
            if done and before.send_in_doubt == before.ack_in_doubt == 0:
                return True
            # Messages are missing or in doubt: only the brokers know whether more will follow.
            remaining = self._count_remaining()
            self._no_more_work.wait(POLL_S)
            after = self.counts()
            if after != before:
                quiet_since = boottime_s()
                until = quiet_since + drain_s
            elif remaining == 0 or (remaining is None and done and boottime_s() - quiet_since > QUIET_S):
                return True
            before = after
        return before.awaited == 0

    def _count_remaining(self) -> int | None:
        """Count the messages in the queues of all targets; None where one does not know."""
        total = 0
        for target in self._targets:
            remaining = target.remaining(self._queues)
            if remaining is None:
                return None
            total += remaining
        return total

    def _start_clients(
        self, client: Callable[[int, str, Target, Sequence[str]], None], kind: str, count: int
    ) -> dict[str, BackgroundTask[None]]:
        shares = [self._shares[number % len(self._shares)] for number in range(count)]
        names = [f"{kind}-{number}" for number in range(count)]
        return {
            name: in_background(partial(client, number, name, *share), f"{name}-{self.run}")
            for number, (name, share) in enumerate(zip(names, shares, strict=True))
        }

    def _protocols_in_turn(
        self, number: int, queues: Sequence[str], reachable: Callable[[Proto, Sequence[str]], tuple[str, ...]]
    ) -> Iterator[tuple[Proto, tuple[str, ...]]]:
        """The protocol of each connection of a client, with the queues that it reaches. MQTT does not reach all queues:
        a client that begins with it keeps it, and other clients never use it. Where only MQTT is wanted and reaches no
        queue, the client uses STOMP."""
        usable = [(protocol, names) for protocol in self._protocols if (names := reachable(protocol, queues))]
        usable = usable or [(Proto.STOMP, tuple(queues))]
        first = number % len(usable)
        others = [item for item in (*usable[first:], *usable[:first]) if item[0] is not Proto.MQTT]
        return itertools.repeat(usable[first]) if usable[first][0] is Proto.MQTT else itertools.cycle(others)

    def _check_clients_run(self) -> None:
        """Raise the error of a client that has ended by itself: it must not look like a quiet broker."""
        for clients, stop in ((self._producers, self._no_more_sends), (self._consumers, self._no_more_work)):
            for name, client in clients.items():
                if client.wait(0) and not stop.is_set():
                    client.result()
                    raise RuntimeError(f"{name} ended by itself")

    def _produce(self, number: int, name: str, target: Target, queues: Sequence[str]) -> None:
        numbered = Numbered(self.run, name, self._body_bytes, self._odd)
        protocols_in_turn = self._protocols_in_turn(number, queues, target.sendable)
        if target.fan_out is not None:
            produce(target.fan_out, target.login, self._producing_of(numbered, *next(protocols_in_turn)))
            return
        dialler = Dialler(target, self._opener)
        for protocol, reachable in protocols_in_turn:
            if (connection := dialler.dial(self._no_more_sends, protocol)) is None:
                return
            sending = Sending(*connection, reachable, accepted=target.ids is None)
            try:
                self._send_all(sending, numbered)
                sending.client.close()
            except ConnectionLost as lost:
                sending.client.close(politely=False)
                if isinstance(lost, RequestRefused) and not sending.accepted:
                    dialler.refused_by(sending.site)
                    continue  # the queue is closed there: try the other site
            for ident, queue in sending.outstanding.items():
                self.ledger.attempt(queue, ident)
                self.ledger.record(Event.SEND_IN_DOUBT, queue, ident, sending.site)

    def _producing_of(self, numbered: Numbered, protocol: Proto, queues: Sequence[str]) -> Producing:
        return Producing(
            numbered.every(queues),
            protocol,
            self._opener,
            self.ledger,
            self._interval_s,
            self._producing,
            self._no_more_sends,
        )

    def _send_all(self, sending: Sending, numbered: Numbered) -> None:
        """Send at the rate, until sends are stopped and the last receipt has arrived."""
        due = boottime_s()
        stopped_at: float | None = None
        while True:
            now = boottime_s()
            if self._no_more_sends.is_set():
                stopped_at = stopped_at or now
                if not sending.outstanding or now - stopped_at > FINISH_S:
                    return
            elif not self._producing.is_set():
                due = now
            while stopped_at is None and self._producing.is_set() and due <= now and sending.can_send:
                message = numbered.next(sending.queues)
                if sending.accepted:
                    self.ledger.attempt(message.queue, message.ident)
                sending.send(message)
                # After a stall, at most one second of missed sends is made up.
                due = max(due + self._interval_s, now - 1.0)
            # Without permission to send, only a receipt matters, and that ends the wait.
            sends = stopped_at is None and self._producing.is_set() and sending.can_send
            for frame in sending.client.receive(max(0.0005, min(due - boottime_s(), TURN_S)) if sends else TURN_S):
                if isinstance(frame, Confirmed) and (queue := sending.outstanding.pop(frame.name, None)) is not None:
                    sending.accepted = True
                    self.ledger.attempt(queue, frame.name)
                    self.ledger.record(Event.SENT, queue, frame.name, sending.site)
            sending.client.beat()

    def _consume(self, number: int, name: str, target: Target, queues: Sequence[str]) -> None:
        del name
        dialler = Dialler(target, self._opener)
        # Other consumers of the share get messages without properties, such as those of MQTT.
        selects = number < len(self._shares) < self._client_counts[1] - number and len(self._protocols) > 1
        for protocol, reachable in self._protocols_in_turn(number, queues, target.consumable):
            if (connection := dialler.dial(self._no_more_work, protocol)) is None:
                return
            site, client = connection
            store = target.store(site)
            selector = f"part = '{PARTS[0]}'" if selects and protocol is not Proto.MQTT else ""
            work = Consumer(
                client, site, reachable, self.ledger, work_s=self._current_work_s, store=store, selector=selector
            )
            try:
                self._work_all(client, work)
                client.close()
            except ConnectionLost as lost:
                client.close(politely=False)
                if isinstance(lost, RequestRefused) and not work.accepted:
                    dialler.refused_by(site)
            work.give_up()
            if store is not None:
                store.close()

    def _work_all(self, client: Client, work: Consumer) -> None:
        work.subscribe()
        stopped_at: float | None = None
        while True:
            if self._no_more_work.is_set():
                stopped_at = stopped_at or boottime_s()
                if not work.unconfirmed or boottime_s() - stopped_at > FINISH_S:
                    return
            for frame in client.receive(TURN_S):
                work.handle(frame, start_work=stopped_at is None)
            client.beat()


def _shares(target: Target, queues: tuple[str, ...]) -> list[tuple[Target, tuple[str, ...]]]:
    """The shares of clients: all queues, or one queue each where they are opened one by one."""
    return [(target, queues)] if target.ids is None else [(target, (queue,)) for queue in queues]


def _join(clients: Mapping[str, BackgroundTask[None]]) -> None:
    for client in clients.values():
        client.wait(LOGIN_S + FINISH_S + SILENT_S)
