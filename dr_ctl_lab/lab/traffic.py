"""Clients of a lab: producers and consumers that follow the service from site to site and keep a ledger.

Clients behave as well-made ones do: durable messages, a receipt for every send and every acknowledgement, many of
them outstanding at once, one message acknowledged at a time, and after a break a new connection to whichever site
lets them in. No message is sent again: a send without its receipt is in doubt, and the ledger says so.

A client has a connection of its own. Where several protocols are asked for, each client begins with another
one and goes on with the next one at each new connection. Over STOMP a listener that opens is found within some ten
milliseconds, so that a gap in the ledger is the brokers' gap and not the clients'. Where each queue has a listener of
its own, each client serves one queue: a closed queue then cuts no other, and its clients look for it at both sites.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl.core.system import boottime_s, in_background, system
from dr_ctl.stomp_io.client import ConnectionLost, SaidError
from dr_ctl_lab.lab.clients.client import LOGIN_S, SILENT_S, Client, Confirmed, Speaks, is_subscription
from dr_ctl_lab.lab.clients.dialling import Dialler, Opener
from dr_ctl_lab.lab.clients.traits import PARTS, Odd
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
LOOK_S, QUIET_S = 0.3, 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """Where clients may be served: the sites' names and client addresses, and one login for both.

    `left` counts the messages that still lie in the queues, or says None where it cannot tell. With `ids` consumers are
    idempotent, and each queue is served by itself: a site may let clients in and refuse them one of its queues. Clients
    of every protocol that it `speaks` come by the same port; `home` has the libraries of its Java clients. The queues
    that it `forwards` to take what is published with MQTT.
    """

    sites: tuple[tuple[str, Address], ...]
    login: Login
    left: Callable[[Sequence[str]], int | None] = lambda _: None
    ids: Ids | None = None
    dialect: Dialect = ARTEMIS
    fan_out: FanOut | None = None  # producers write to all sites at once
    speaks: tuple[Speaks, ...] = (Speaks.STOMP,)
    odd: frozenset[Odd] = frozenset()  # what may be odd about their messages
    home: Path | None = None
    forwards: frozenset[str] = frozenset()

    def store(self, site: str) -> Store | None:
        return None if self.ids is None else Store(IdStore(self.ids.stores[site]), self.ids.address)

    def sent_to(self, speaks: Speaks, queues: Sequence[str]) -> tuple[str, ...]:
        """The queues that a client of that protocol can send to."""
        if speaks is not Speaks.MQTT:
            return tuple(queues)
        return tuple(queue for queue in queues if is_subscription(queue) or queue in self.forwards)

    def taken_from(self, speaks: Speaks, queues: Sequence[str]) -> tuple[str, ...]:
        """The queues that a client of that protocol can take messages of."""
        return tuple(queue for queue in queues if speaks is not Speaks.MQTT or is_subscription(queue))


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
        protocols: Sequence[Speaks] = (Speaks.STOMP,),
        odd: Collection[Odd] = (),
        ledger_path: Path | None = None,
    ) -> None:
        """`rate` is messages per second of all producers together; `work_ms` is what a consumer needs for each. The
        clients are dealt out over the target and those `beside` it, and over their queues where each is served by
        itself; a share has at least one of a kind that there is. Of several consumers of a share, the first takes a
        part of what comes by a selector, where clients speak several protocols."""
        self._shares = [share for case in (target, *beside) for share in _shares(case, tuple(queues))]
        producers, consumers = (max(case, len(self._shares)) if case else 0 for case in (producers, consumers))
        self.run = uuid.uuid4().hex[:8]
        self.ledger = Ledger(ledger_path)
        self._targets = (target, *beside)
        self._queues = tuple(queues)
        self._interval_s = producers / rate if producers and rate > 0 else 0.0
        self._work_s = work_ms / 1000
        self._body_bytes, self._odd = body_bytes, odd
        # Of such names STOMP alone has no reading of its own: others take `?` for options, or `>` for a wildcard.
        self._protocols = (Speaks.STOMP,) if any({*queue} & {*"?>"} for queue in queues) else tuple(protocols)
        self._opener = Opener(target.dialect, target.home)
        self._producing = system().event()
        self._no_more_sends = system().event()
        self._no_more_work = system().event()
        self._many = producers, consumers
        self._producers: dict[str, BackgroundTask[None]] = {}
        self._consumers: dict[str, BackgroundTask[None]] = {}

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
        until = boottime_s() + within_s
        while not true(counts := self.counts()):
            if boottime_s() > until:
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
        self._opener.close()
        self.ledger.close()

    def _drain(self, drain_s: float) -> bool:
        """Wait until all that has a receipt came and is acknowledged, or until the brokers say nothing is left."""
        until = boottime_s() + drain_s
        quiet_since = boottime_s()
        before = self.counts()
        while self._consumers and boottime_s() < until:
            done = before.awaited == 0 and before.received == before.consumed + before.ack_in_doubt
            if done and before.send_in_doubt == before.ack_in_doubt == 0:
                return True
            # Something is missing or in doubt: only the brokers can say that nothing more will come.
            left = self._left()
            self._no_more_work.wait(LOOK_S)
            after = self.counts()
            if after != before:
                quiet_since = boottime_s()
                until = quiet_since + drain_s
            elif left == 0 or (left is None and done and boottime_s() - quiet_since > QUIET_S):
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
        self, client: Callable[[int, str, Target, Sequence[str]], None], kind: str, many: int
    ) -> dict[str, BackgroundTask[None]]:
        shares = [self._shares[number % len(self._shares)] for number in range(many)]
        names = [f"{kind}-{number}" for number in range(many)]
        return {
            name: in_background(partial(client, number, name, *share), f"{name}-{self.run}")
            for number, (name, share) in enumerate(zip(names, shares, strict=True))
        }

    def _speaking(
        self, number: int, queues: Sequence[str], reached: Callable[[Speaks, Sequence[str]], tuple[str, ...]]
    ) -> Iterator[tuple[Speaks, tuple[str, ...]]]:
        """Which protocol each connection of a client speaks, and the queues that it reaches with it. MQTT does not
        reach all of them: who begins with it stays with it, and no other takes it up. Where only MQTT is asked for and
        reaches none, STOMP does."""
        able = [(protocol, names) for protocol in self._protocols if (names := reached(protocol, queues))]
        able = able or [(Speaks.STOMP, tuple(queues))]
        first = number % len(able)
        others = [case for case in (*able[first:], *able[:first]) if case[0] is not Speaks.MQTT]
        return itertools.repeat(able[first]) if able[first][0] is Speaks.MQTT else itertools.cycle(others)

    def _see_them_live(self) -> None:
        """A client that ended by itself is a defect, and must not look like a quiet broker."""
        for clients, case in ((self._producers, self._no_more_sends), (self._consumers, self._no_more_work)):
            for name, client in clients.items():
                if client.wait(0) and not case.is_set():
                    client.result()
                    raise RuntimeError(f"{name} ended by itself")

    def _produce(self, number: int, name: str, target: Target, queues: Sequence[str]) -> None:
        numbered = Numbered(self.run, name, self._body_bytes, self._odd)
        speaking = self._speaking(number, queues, target.sent_to)
        if target.fan_out is not None:
            produce(target.fan_out, target.login, self._producing_of(numbered, *next(speaking)))
            return
        dialler = Dialler(target, self._opener)
        for speaks, reached in speaking:
            if (connection := dialler.dial(self._no_more_sends, speaks)) is None:
                return
            sending = Sending(*connection, reached, let_in=target.ids is None)
            try:
                self._send_all(sending, numbered)
                sending.client.close()
            except ConnectionLost as lost:
                sending.client.close(politely=False)
                if isinstance(lost, SaidError) and not sending.let_in:
                    dialler.turned_away(sending.site)
                    continue  # the message it was tried with is refused, and goes elsewhere
            for ident, queue in sending.outstanding.items():
                self.ledger.attempt(queue, ident)
                self.ledger.record(Event.SEND_IN_DOUBT, queue, ident, sending.site)

    def _producing_of(self, numbered: Numbered, speaks: Speaks, queues: Sequence[str]) -> Producing:
        return Producing(
            numbered.every(queues),
            speaks,
            self._opener,
            self.ledger,
            self._interval_s,
            self._producing,
            self._no_more_sends,
        )

    def _send_all(self, sending: Sending, numbered: Numbered) -> None:
        """Send at the rate, noting receipts, until told to stop and the last receipt is there."""
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
            while stopped_at is None and self._producing.is_set() and due <= now and sending.may_send:
                message = numbered.next(sending.queues)
                if sending.let_in:
                    self.ledger.attempt(message.queue, message.ident)
                sending.send(message)
                # After a stall the rate goes on; missed sends are not made up for in one burst.
                due = max(due + self._interval_s, now - 1.0)
            # Who may not send has nothing to be in time for, and is woken by what comes.
            sends = stopped_at is None and self._producing.is_set() and sending.may_send
            for frame in sending.client.receive(max(0.0005, min(due - boottime_s(), TURN_S)) if sends else TURN_S):
                if isinstance(frame, Confirmed) and (queue := sending.outstanding.pop(frame.name, None)) is not None:
                    sending.let_in = True
                    self.ledger.attempt(queue, frame.name)
                    self.ledger.record(Event.SENT, queue, frame.name, sending.site)
            sending.client.beat()

    def _consume(self, number: int, name: str, target: Target, queues: Sequence[str]) -> None:
        del name
        dialler = Dialler(target, self._opener)
        # Whatever no selector sees, as what was sent with MQTT, is left to the others of that share.
        selects = number < len(self._shares) < self._many[1] - number and len(self._protocols) > 1
        for speaks, reached in self._speaking(number, queues, target.taken_from):
            if (connection := dialler.dial(self._no_more_work, speaks)) is None:
                return
            site, client = connection
            store = target.store(site)
            selector = f"part = '{PARTS[0]}'" if selects and speaks is not Speaks.MQTT else ""
            work = Consumer(client, site, reached, self.ledger, work_s=self._working, store=store, selector=selector)
            try:
                self._work_all(client, work)
                client.close()
            except ConnectionLost as lost:
                client.close(politely=False)
                if isinstance(lost, SaidError) and not work.let_in:
                    dialler.turned_away(site)
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
                work.take(frame, begin=stopped_at is None)
            client.beat()


def _shares(target: Target, queues: tuple[str, ...]) -> list[tuple[Target, tuple[str, ...]]]:
    """Shares that one client takes on there: the whole, or one queue where each is served by itself."""
    return [(target, queues)] if target.ids is None else [(target, (queue,)) for queue in queues]


def _join(clients: Mapping[str, BackgroundTask[None]]) -> None:
    for client in clients.values():
        client.wait(LOGIN_S + FINISH_S + SILENT_S)
