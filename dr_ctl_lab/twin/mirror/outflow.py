"""A mirror's link, its outflow of events, and pending acknowledgements."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dr_ctl_lab.twin.messages import Counters, Message, Origin, Reason


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of an outflow: a message for its queues, an acknowledgement by origin, or a change of topology."""

    kind: str  # message, postAck, addAddress, createQueue, deleteQueue
    number: int
    queue: str = ""
    address: str = ""
    message: Message | None = None
    queues: tuple[str, ...] = ()
    origin: Origin | None = None
    reason: Reason = Reason.NORMAL
    options: Mapping[str, Any] = field(default_factory=dict)
    durable: bool = True


@dataclass
class Outflow:
    """The unshipped events, in order; the first `under_way` of them are sent and not confirmed."""

    name: str
    number: int
    events: deque[Event] = field(default_factory=deque)
    under_way: int = 0
    paused: bool = False
    lasting: bool = False
    counters: Counters = field(default_factory=Counters)

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.counters.added += 1

    def next(self) -> Event | None:
        """The next event to ship, which stays until `done` confirms it."""
        if self.paused or self.under_way >= len(self.events):
            return None
        self.under_way += 1
        return self.events[self.under_way - 1]

    def done(self) -> None:
        self.events.popleft()
        self.under_way -= 1
        self.counters.acknowledged += 1

    def restart(self) -> None:
        self.events = deque(event for event in self.events if event.durable)
        self.counters = Counters(added=len(self.events))
        self.under_way = 0
        self.paused = self.lasting


@dataclass
class Link:
    """The broker connection to the peer. Events are recorded from the link's first start on, connected or not."""

    name: str
    port: int
    configured: bool = True  # False: the broker has no broker connection at all
    auto_start: bool = True
    started: bool = False
    connected: bool = False
    attached: bool = False
    records_events: bool = False
    knows_peer: bool = False  # attached since the broker's start
    breaks: int = 0  # how often the link was taken down
    alternates: tuple[int, ...] = ()  # ports of other nodes of the peer
    peer_node: str = ""  # the peer's node id


@dataclass
class Pending:
    """An acknowledgement whose message was not found: it is retried a few times."""

    event: Event
    tries: int
    next_s: float
