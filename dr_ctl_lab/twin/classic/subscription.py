"""Subscriptions at a Classic broker: consumers, browsers, and subscribers of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.classic.composite import selector_value
from dr_ctl_lab.twin.filters import compiled
from dr_ctl_lab.twin.messages import Message, Queue

if TYPE_CHECKING:
    from dr_ctl_lab.twin.classic.broker import ClassicBroker
    from dr_ctl_lab.twin.classic.session import ClassicSession


@dataclass(eq=False)
class QueueSubscription:
    """Consumes one queue, up to `prefetch` unacknowledged messages."""

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
        return self._selects(partial(selector_value, message))

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

    def acknowledged_by(self, message: Message) -> list[Message]:
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
                broker.dead_letter(self.queue, message)
            else:
                broker.remove(self.queue, message)
        self.queue.dispatch()

    def leave(self) -> None:
        """Return unacknowledged messages, in order."""
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)
        for message in reversed(list(self.in_hand.values())):
            if message.number in self.queue.messages:
                self.session.broker.give_back(self.queue, message, failed=True)
        self.in_hand.clear()
        self.queue.dispatch()


@dataclass(eq=False)
class Browser:
    """A browser, which counts as a consumer. Its messages count as in delivery, unless its mode is auto."""

    broker: ClassicBroker
    queue: str
    held: int

    def leave(self) -> None:
        self.broker.browsers.remove(self)


@dataclass(eq=False)
class TopicSubscription:
    """Gets messages of a topic or temporary queue that are published after it subscribed."""

    session: ClassicSession
    ident: str

    def on_message(self, headers: Mapping[str, str], body: bytes) -> None:
        self.session.send_message(self.ident, headers, body)

    def leave(self) -> None:
        self.session.broker.topics.subscribed.pop(self, None)
