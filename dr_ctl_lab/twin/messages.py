"""Messages and queues: order, delivery and counters."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

ORIGIN_NODE: Final = "x-opt-amq-bkr-id"
ORIGIN_NUMBER: Final = "x-opt-amq-mr-id"
PRIORITIES: Final = 10
# Bytes that the broker adds to a body's size, to count a message against a consumer's window.
OVERHEAD: Final = 250

Origin = tuple[str, int]


class Reason(Enum):
    """Why a message left a queue; an acknowledgement carries it to the peer."""

    NORMAL = 0
    KILLED = 1
    EXPIRED = 2


@dataclass(eq=False, slots=True)
class Message:
    """A message at one broker. `origin`: the node id and number at the broker that it came from, if it was shipped."""

    number: int
    address: str
    body: bytes
    text: bool
    headers: Mapping[str, str]
    durable: bool = True
    priority: int = 4
    timestamp_ms: int = 0
    origin: Origin | None = None
    longs: Mapping[str, int] = field(default_factory=dict)
    anycast: bool = True
    not_before_ms: int | None = None  # not delivered before this time of the broker's clock
    failed: int = 0  # deliveries that were not acknowledged

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD


class Consumer(Protocol):
    """A consumer of a queue; by default it takes any message at any time."""

    @property
    def ready(self) -> bool:
        return True

    def wants(self, message: Message) -> bool:
        del message
        return True

    def take(self, queue: Queue, message: Message) -> None: ...


@dataclass
class Counters:
    """Counters since the broker's start."""

    added: int = 0
    acknowledged: int = 0
    killed: int = 0
    expired: int = 0


@dataclass
class Queue:
    """One queue. `messages` also holds messages in delivery and scheduled ones; `waiting` does not."""

    name: str
    address: str
    number: int
    options: dict[str, Any]
    routing: str = "anycast"
    durable: bool = True
    internal: bool = False
    temporary: bool = False
    user: str | None = None
    filter: str | None = None
    paused: bool = False
    lasting: bool = False
    enabled: bool = True
    auto_created: bool = False
    counters: Counters = field(default_factory=Counters)
    messages: dict[int, Message] = field(default_factory=dict)
    delivering: dict[int, Consumer] = field(default_factory=dict)
    consumers: list[Consumer] = field(default_factory=list)
    waiting: list[deque[Message]] = field(default_factory=lambda: [deque() for _ in range(PRIORITIES)])
    by_origin: dict[Origin, Message] = field(default_factory=dict)
    scheduled: dict[int, int] = field(default_factory=dict)

    def add(self, message: Message) -> None:
        if not self.enabled:
            return  # dropped, and confirmed to its sender all the same
        self.messages[message.number] = message
        if message.origin is not None:
            self.by_origin[message.origin] = message
        if message.not_before_ms is not None:
            self.scheduled[message.number] = message.not_before_ms
        else:
            self.waiting[message.priority].append(message)
        self.counters.added += 1

    def release_due(self, now_ms: int) -> int | None:
        """Make due scheduled messages deliverable; return the time of the next, or None."""
        for number in [key for key, at_ms in self.scheduled.items() if at_ms <= now_ms]:
            del self.scheduled[number]
            message = self.messages[number]
            self.waiting[message.priority].append(message)
        return min(self.scheduled.values(), default=None)

    def available(self) -> Iterator[Message]:
        """Messages that are not in delivery and not scheduled, in delivery order."""
        for level in reversed(self.waiting):
            for message in level:
                if message.number in self.messages and message.number not in self.delivering:
                    yield message

    def dispatch(self) -> None:
        """Deliver messages to consumers that are ready, in turn."""
        if self.paused or not self.consumers:
            return
        for level in reversed(self.waiting):
            skipped: list[Message] = []
            while level and any(consumer.ready for consumer in self.consumers):
                message = level.popleft()
                if message.number not in self.messages:
                    continue
                consumer = next(
                    (consumer for consumer in self.consumers if consumer.ready and consumer.wants(message)), None
                )
                if consumer is None:
                    skipped.append(message)
                    continue
                self.consumers.remove(consumer)
                self.consumers.append(consumer)
                self.delivering[message.number] = consumer
                consumer.take(self, message)
            level.extendleft(reversed(skipped))

    def give_back(self, message: Message) -> None:
        """Return a message in delivery to the head of the queue."""
        if self.delivering.pop(message.number, None) is not None and message.number in self.messages:
            self.waiting[message.priority].appendleft(message)

    def remove(self, message: Message, reason: Reason) -> None:
        """Remove a message; its entry in `waiting` is skipped later."""
        del self.messages[message.number]
        self.delivering.pop(message.number, None)
        self.scheduled.pop(message.number, None)
        if message.origin is not None:
            self.by_origin.pop(message.origin, None)
        match reason:
            case Reason.NORMAL:
                self.counters.acknowledged += 1
            case Reason.KILLED:
                self.counters.killed += 1
            case Reason.EXPIRED:
                self.counters.expired += 1

    def restart(self) -> None:
        """Keep durable messages, in order, and a lasting pause; counters start with these messages."""
        kept = [item for level in reversed(self.waiting) for item in level if item.number in self.messages]
        held = [self.messages[number] for number in (*self.delivering, *self.scheduled) if number in self.messages]
        durable = sorted((item for item in {*kept, *held} if item.durable), key=lambda message: message.number)
        self.messages, self.delivering, self.by_origin, self.scheduled = {}, {}, {}, {}
        self.consumers = []
        self.waiting = [deque() for _ in range(PRIORITIES)]
        self.counters = Counters()
        self.paused = self.lasting
        for message in durable:
            message.failed = 0
            self.add(message)


def numbers(first: int) -> Callable[[], int]:
    """A function that returns increasing numbers."""
    count = itertools.count(first)
    return lambda: next(count)
