"""The processor of a site: the program that takes the peer's notifications from their queue and writes the ids into the
site's store. The processor is an ordinary client with a listener of its own, and connects again by itself."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.bridges.layout import AGENT, NOTIFICATIONS, QUEUE_HEADER
from dr_ctl_lab.twin.messages import Message, Queue, Taker
from dr_ctl_lab.twin.parts import Holding

if TYPE_CHECKING:
    from dr_ctl_lab.twin.bridges.broker import BridgesBroker

LISTENER: Final = "agents"
AT_ONCE: Final = 100


class Processor(Taker):
    """A connection with one consumer. `each_s`: seconds per id."""

    acceptor, user, client, selector = LISTENER, AGENT, "processor", ""
    remote = "127.0.0.1:1"

    def __init__(self, broker: BridgesBroker) -> None:
        self._broker = broker
        self.running = True
        self.each_s = 0.0
        self.ident = uuid.uuid4().hex[:8]
        self.local_port = self.number = self.since_ms = self.delivered = self.acknowledged = 0
        self.in_hand: dict[int, Message] = {}
        self._next_s = 0.0
        self.queue = Queue(NOTIFICATIONS, NOTIFICATIONS, 0, {})  # until it is connected

    @property
    def connected(self) -> bool:
        return self.ident in self._broker.sessions

    # a person

    def start(self) -> None:
        self.running = True
        self._broker.changed.notify_all()

    def stop(self) -> None:
        self.running = False
        self._broker.hang_up(self)

    # a session and what it holds

    def holds(self) -> Sequence[Holding]:
        return [self]

    def leave(self) -> None:
        if self in self.queue.takers:
            self.queue.takers.remove(self)
        for message in reversed(list(self.in_hand.values())):
            self.queue.give_back(message)
        self.in_hand.clear()

    def cut(self) -> None:
        self.in_hand.clear()

    def refuse(self, text: str) -> None:
        del text
        self._broker.hang_up(self)

    # a consumer

    @property
    def ready(self) -> bool:
        return len(self.in_hand) < AT_ONCE

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.in_hand[message.number] = message
        self.delivered += 1

    def work(self, now_s: float) -> list[float]:
        """Connect where it can, and write what it was given, in its order; the moment when the next is due."""
        self._connect()
        while self.in_hand and self._next_s <= now_s:
            self._apply(next(iter(self.in_hand.values())))
            self._next_s = now_s + self.each_s
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
            queue.takers.append(self)
            queue.dispatch()

    def _apply(self, message: Message) -> None:
        """Twice is once; written before it is acknowledged, or a break between the two would lose it."""
        self._broker.ids.add(message.headers.get(QUEUE_HEADER, ""), message.body.decode(), local=False)
        del self.in_hand[message.number]
        self.acknowledged += 1
        if message.number in self.queue.messages:
            self._broker.remove(self.queue, message)
