"""The processor of a site: a client, with a listener of its own, that consumes the peer's notifications and writes the
ids into the site's store."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.bridges.layout import AGENT, NOTIFICATIONS, QUEUE_HEADER
from dr_ctl_lab.twin.messages import Consumer, Message, Queue
from dr_ctl_lab.twin.parts import Subscription

if TYPE_CHECKING:
    from dr_ctl_lab.twin.bridges.broker import BridgesBroker

LISTENER: Final = "agents"
BATCH: Final = 100


class Processor(Consumer):
    """A connection with one consumer. `id_interval_s`: seconds per id."""

    acceptor, user, client, selector = LISTENER, AGENT, "processor", ""
    remote = "127.0.0.1:1"

    def __init__(self, broker: BridgesBroker) -> None:
        self._broker = broker
        self.running = True
        self.id_interval_s = 0.0
        self.ident = uuid.uuid4().hex[:8]
        self.local_port = self.number = self.since_ms = self.delivered = self.acknowledged = 0
        self.in_hand: dict[int, Message] = {}
        self._next_s = 0.0
        self.queue = Queue(NOTIFICATIONS, NOTIFICATIONS, 0, {})  # until it is connected

    @property
    def connected(self) -> bool:
        return self.ident in self._broker.sessions

    # operations

    def start(self) -> None:
        self.running = True
        self._broker.changed.notify_all()

    def stop(self) -> None:
        self.running = False
        self._broker.disconnect(self)

    # as a session and its subscription

    def subscriptions(self) -> Sequence[Subscription]:
        return [self]

    def leave(self) -> None:
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)
        for message in reversed(list(self.in_hand.values())):
            self.queue.give_back(message)
        self.in_hand.clear()

    def cut(self) -> None:
        self.in_hand.clear()

    def refuse(self, text: str) -> None:
        del text
        self._broker.disconnect(self)

    # as a consumer

    @property
    def ready(self) -> bool:
        return len(self.in_hand) < BATCH

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.in_hand[message.number] = message
        self.delivered += 1

    def work(self, now_s: float) -> list[float]:
        """Connect, and write due ids in order; return the time of the next."""
        self._connect()
        while self.in_hand and self._next_s <= now_s:
            self._apply(next(iter(self.in_hand.values())))
            self._next_s = now_s + self.id_interval_s
            self.queue.dispatch()
        return [self._next_s] if self.in_hand else []

    def _connect(self) -> None:
        broker = self._broker
        queue = broker.queues.get(NOTIFICATIONS)
        if self.connected or not self.running or queue is None or not broker.acceptors[LISTENER].started:
            return
        if broker.security.may(AGENT, "consume", queue.address):
            self.queue, self.number, self.since_ms = queue, broker.next_number(), broker.now_ms()
            self.local_port = broker.acceptors[LISTENER].port
            broker.sessions[self.ident] = self
            queue.consumers.append(self)
            queue.dispatch()

    def _apply(self, message: Message) -> None:
        """Store an id before its message is acknowledged: a break between the two only repeats it."""
        self._broker.ids.add(message.headers.get(QUEUE_HEADER, ""), message.body.decode(), local=False)
        del self.in_hand[message.number]
        self.acknowledged += 1
        if message.number in self.queue.messages:
            self._broker.remove(self.queue, message)
