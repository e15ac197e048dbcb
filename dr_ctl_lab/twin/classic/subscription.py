"""Subscriptions of a client of a Classic broker: consuming, browsing, or hearing a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.classic.composite import named
from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.messages import Message, Queue

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.broker import ClassicBroker
    from dr_ctl_lab.twin.classic.session import ClassicSession


@dataclass(eq=False)
class QueueSubscription:
    """Takes from one queue, up to `prefetch` messages that are not acknowledged."""

    session: ClassicSession
    ident: str
    queue: Queue
    mode: str
    prefetch: int
    selector: str
    number: int
    since_ms: int
    in_hand: dict[int, Message] = field(default_factory=dict)
    delivered: int = 0
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self._selects = compiled(self.selector)

    @property
    def ready(self) -> bool:
        return self.prefetch == 0 or len(self.in_hand) < self.prefetch

    def wants(self, message: Message) -> bool:
        return self._selects(partial(named, message))

    def take(self, queue: Queue, message: Message) -> None:
        broker = self.session.broker
        self.delivered += 1
        broker.dispatched[queue.name] += 1
        self.session.deliver(self.ident, message, acks=None if self.mode == "auto" else message.number)
        if self.mode == "auto":
            self.acknowledged += 1
            broker.remove(queue, message)
        else:
            self.in_hand[message.number] = message

    def up_to(self, message: Message) -> list[Message]:
        """The messages that an acknowledgement of this message covers."""
        held = list(self.in_hand.values())
        return held[: held.index(message) + 1] if self.mode == "client" else [message]

    def done(self, message: Message, *, poison: bool = False) -> None:
        broker = self.session.broker
        if self.in_hand.pop(message.number, None) is None:
            return
        self.acknowledged += 1
        # A person may have removed the message meanwhile.
        if self.queue.name in broker.queues and message.number in self.queue.messages:
            if poison:
                broker.bury(self.queue, message)
            else:
                broker.remove(self.queue, message)
        self.queue.dispatch()

    def leave(self) -> None:
        """Give back what is in hand, in its order."""
        if self in self.queue.takers:
            self.queue.takers.remove(self)
        for message in reversed(list(self.in_hand.values())):
            if message.number in self.queue.messages:
                self.session.broker.give_back(self.queue, message, failed=True)
        self.in_hand.clear()
        self.queue.dispatch()


@dataclass(eq=False)
class Browsing:
    """A browser, which counts as a consumer. The messages shown count as held, unless the browser acknowledges by
    itself."""

    broker: ClassicBroker
    queue: str
    holds: int

    def leave(self) -> None:
        self.broker.browsing.remove(self)


@dataclass(eq=False)
class Hearing:
    """Hears messages of a topic or of its temporary queue, from its beginning on."""

    session: ClassicSession
    ident: str

    def hear(self, headers: Mapping[str, str], body: bytes) -> None:
        self.session.tell(self.ident, headers, body)

    def leave(self) -> None:
        self.session.broker.topics.subscribed.pop(self, None)
