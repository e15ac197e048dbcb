"""A site with one outflow per flow, as a small real machine: it knows every message, and so what would be lost.

It is looked at as a broker is, through counters; `truth` is what no reading can see.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from dr_ctl.rpo.history.row import Row

EPOCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
Style = Literal["mixed", "split", "bridges", "plugin"]


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@dataclass
class Counters:
    added: int = 0
    removed: int = 0


@dataclass
class Message:
    number: int
    queue: str
    sent_at: float
    consumed: bool = False
    shipped: bool = False
    ack_shipped: bool = False
    has_copy: bool = True


@dataclass(frozen=True)
class Truth:
    loss: int
    age_s: float
    duplicates: int


@dataclass
class FifoSite:
    """`mixed`: one outflow for everything. `split`: two per queue. `bridges`: one per queue, one for all acks.
    `plugin`: as `split`, and ids are compared; what is sent while `copies` is off gets to no outflow."""

    pair: str
    style: Style
    queues: tuple[str, ...]
    start: int = 1
    copies: bool = True
    messages: list[Message] = field(default_factory=list)
    waiting: dict[str, deque[Message]] = field(default_factory=dict)
    outflows: dict[tuple[str, str], deque[tuple[str, Message]]] = field(default_factory=dict)
    counters: dict[tuple[str, str], Counters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for queue in self.queues:
            self.waiting[queue] = deque()
            for kind in ("send", "ack"):
                self.outflows.setdefault(self._outflow(kind, queue), deque())
        self._zero()

    def _zero(self) -> None:
        self.counters = {key: Counters() for key in (*self.outflows, *(("queue", queue) for queue in self.queues))}

    def _outflow(self, kind: str, queue: str) -> tuple[str, str]:
        if self.style == "mixed":
            return "mixed", "*"
        if kind == "send":
            return "mirror", queue
        return "acks", queue if self.style in ("split", "plugin") else "*"

    def _put(self, kind: str, message: Message) -> None:
        outflow = self._outflow(kind, message.queue)
        self.outflows[outflow].append((kind, message))
        self.counters[outflow].added += 1

    def send(self, queue: str, now: float) -> None:
        message = Message(len(self.messages), queue, now)
        self.messages.append(message)
        self.waiting[queue].append(message)
        self.counters["queue", queue].added += 1
        if self.copies:
            self._put("send", message)
        else:
            message.has_copy = False

    def consume(self, queue: str) -> None:
        if self.waiting[queue]:
            message = self.waiting[queue].popleft()
            message.consumed = True
            self.counters["queue", queue].removed += 1
            self._put("ack", message)

    def ship(self, outflow: tuple[str, str]) -> None:
        if self.outflows[outflow]:
            kind, message = self.outflows[outflow].popleft()
            self.counters[outflow].removed += 1
            if kind == "send":
                message.shipped = True
            else:
                message.ack_shipped = True

    def restart(self) -> None:
        self.start += 1
        self._zero()

    def look(self, now: float, *, compared: Collection[str] = ()) -> list[Row]:
        """`compared`: queues of which a comparison tells how many messages have no copy."""
        asked = Row(site="london", ts=at(now), pair=self.pair, kind="uncopied", name="*", start=str(self.start))
        alone = {name: sum(not message.has_copy for message in self.waiting[name]) for name in compared}
        rows = [replace(asked, name=name, depth=count) for name, count in alone.items()]
        rows += [asked] if self.style == "plugin" else []
        rows += [
            self._row(now, kind, name, depth=len(held), delivering=0) for (kind, name), held in self.outflows.items()
        ]
        return rows + [
            self._row(now, "queue", queue, depth=len(held), delivering=0) for queue, held in self.waiting.items()
        ]

    def _row(self, now: float, kind: str, name: str, *, depth: int, delivering: int) -> Row:
        counted = self.counters[kind, name]
        return Row(
            site="london",
            ts=at(now),
            pair=self.pair,
            kind=kind,
            name=name,
            depth=depth,
            delivering=delivering,
            added=counted.added,
            removed=counted.removed,
            acked=counted.removed if kind == "queue" else None,
            link=None if kind == "queue" else True,
            start=str(self.start),
        )

    def truth(self, now: float) -> Truth:
        lost = [message for message in self.messages if not message.shipped and not message.consumed]
        duplicates = [m for m in self.messages if m.consumed and m.shipped and not m.ack_shipped]
        return Truth(len(lost), max((now - message.sent_at for message in lost), default=0.0), len(duplicates))
