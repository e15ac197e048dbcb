"""Messages and queues: order, delivery, and counters since the broker's start."""

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
# Bytes that the broker counts per message beside the body, against a consumer's window.
OVERHEAD: Final = 250

Origin = tuple[str, int]


class Reason(Enum):
    """Why a message left a queue; an acknowledgement carries it to the peer."""

    NORMAL = 0
    KILLED = 1
    EXPIRED = 2


@dataclass(eq=False, slots=True)
class Message:
    """A message at one broker. `origin`: birth broker and number there, if born elsewhere."""

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
    not_before_ms: int | None = None  # delivered at this time of the broker's clock, not before
    failed: int = 0  # deliveries that were not acknowledged

    @property
    def size(self) -> int:
        return len(self.body) + OVERHEAD


class Taker(Protocol):
    """Somebody who takes messages from a queue: any at any time, unless it says otherwise."""

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
    """One queue. Messages in delivery, and those that wait for their time, count, and are out of `waiting`."""

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
    delivering: dict[int, Taker] = field(default_factory=dict)
    takers: list[Taker] = field(default_factory=list)
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

    def let_due_in(self, now_ms: int) -> int | None:
        """Let in whose time has come; the time of the next, None where none waits for it."""
        for number in [value for value, at_ms in self.scheduled.items() if at_ms <= now_ms]:
            del self.scheduled[number]
            message = self.messages[number]
            self.waiting[message.priority].append(message)
        return min(self.scheduled.values(), default=None)

    def live(self) -> Iterator[Message]:
        """The messages that nobody holds, in the order in which they would be delivered."""
        for level in reversed(self.waiting):
            for message in level:
                if message.number in self.messages and message.number not in self.delivering:
                    yield message

    def dispatch(self) -> None:
        """Hand over what can be handed over, to those who have room, in turn."""
        if self.paused or not self.takers:
            return
        for level in reversed(self.waiting):
            skipped: list[Message] = []
            while level and any(taker.ready for taker in self.takers):
                message = level.popleft()
                if message.number not in self.messages:
                    continue
                taker = next((taker for taker in self.takers if taker.ready and taker.wants(message)), None)
                if taker is None:
                    skipped.append(message)
                    continue
                self.takers.remove(taker)
                self.takers.append(taker)
                self.delivering[message.number] = taker
                taker.take(self, message)
            level.extendleft(reversed(skipped))

    def give_back(self, message: Message) -> None:
        """A message that was in delivery stands at its head again."""
        if self.delivering.pop(message.number, None) is not None and message.number in self.messages:
            self.waiting[message.priority].appendleft(message)

    def remove(self, message: Message, reason: Reason) -> None:
        """Take a message out for good; its entry in `waiting` is skipped later."""
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
        """Keep what survives a death: durable messages in order and lasting pauses; counters count from the rest."""
        kept = [item for level in reversed(self.waiting) for item in level if item.number in self.messages]
        held = [self.messages[number] for number in (*self.delivering, *self.scheduled) if number in self.messages]
        left = sorted((case for case in {*kept, *held} if case.durable), key=lambda options: options.number)
        self.messages, self.delivering, self.by_origin, self.takers = {}, {}, {}, []
        self.scheduled = {}
        self.waiting = [deque() for _ in range(PRIORITIES)]
        self.counters = Counters()
        self.paused = self.lasting
        for message in left:
            message.failed = 0
            self.add(message)


def numbers(first: int) -> Callable[[], int]:
    """A source of growing numbers for a broker."""
    count = itertools.count(first)
    return lambda: next(count)
