"""The ledger of a load: the events of each message, and a verdict.

    SENT            the producer has the broker's receipt: the message must not be lost
    SEND_IN_DOUBT   sent, and the connection broke before the receipt: the message may have arrived or not
    RECEIVED        a consumer has processed the message
    CONSUMED        the consumer has the receipt of its acknowledgement: a redelivery is a duplicate
    ACK_IN_DOUBT    acknowledged, and the connection broke before the receipt: a redelivery is allowed

The verdict depends on events alone, not on the tool that moves the service. Events are kept in memory and written as
JSON lines (`id, queue, event, site, ts`, and `at_s` of a monotonic clock).
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Self

from dr_ctl.core.document import derived, key
from dr_ctl.core.system import stamp, system

if TYPE_CHECKING:
    from pathlib import Path


FLUSH_EVERY_S = 0.5
_to_line = json.JSONEncoder(ensure_ascii=False).encode
Key = tuple[str, str]  # queue, id


class Event(Enum):
    """Events of a message."""

    SENT = "sent"
    SEND_IN_DOUBT = "send-in-doubt"
    RECEIVED = "received"
    CONSUMED = "consumed"
    ACK_IN_DOUBT = "ack-in-doubt"


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without an event, with its start and end."""

    seconds: float = 0.0
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals of events; `attempted` counts all sends, with any result."""

    attempted: int = 0
    sent: int = 0
    send_in_doubt: int = 0
    received: int = 0
    consumed: int = 0
    ack_in_doubt: int = 0
    awaited: int = 0  # with a receipt, not received yet


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a load.

    `lost`: with a receipt, never received. `duplicates`: received or acknowledged again after a confirmed
    acknowledgement. `redelivered`: received more than once without one, which at-least-once delivery allows.
    `in_doubt`: sends without a receipt, of which `in_doubt_arrived` were received. `unexpected`: received, and not sent
    by this load. Where `drained` is False the queues may not be empty, and `lost` may count messages that are still
    there. `receive_gaps` are by queue. A document has the length of each list; the ids are in the ledger.
    """

    counts: Counts
    lost: tuple[Key, ...] = field(metadata=key(count=True))
    duplicates: tuple[Key, ...] = field(metadata=key(count=True))
    redelivered: tuple[Key, ...] = field(metadata=key(count=True))
    in_doubt: int
    in_doubt_arrived: int
    unexpected: tuple[Key, ...] = field(metadata=key(count=True))
    receive_gap: Gap
    receive_gaps: Mapping[str, Gap]
    send_gap: Gap
    drained: bool

    @derived
    def clean(self) -> bool:
        """No message was lost or consumed twice, and the queues are empty."""
        return self.drained and not self.lost and not self.duplicates

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        lost = f"{len(self.lost)} lost"
        if not self.drained:
            lost = f"{len(self.lost)} not received: lost, or in queues that were not seen empty"
        return (
            f"{self.counts.sent} sent: {lost}, {len(self.duplicates)} duplicates, "
            f"{len(self.redelivered)} redelivered, {self.in_doubt} in doubt; "
            f"longest receive gap {self.receive_gap.seconds:.2f} s"
        )


@dataclass(slots=True)
class _Message:
    attempted: bool = False
    sent: bool = False
    in_doubt: bool = False
    received: int = 0
    consumed: int = 0
    duplicated: bool = False


@dataclass(slots=True)
class _GapWatch:
    """The gaps between events of one kind; while `paused` no time counts."""

    last: tuple[float, str] | None = None
    longest: Gap = field(default_factory=Gap)
    paused: bool = False
    awaited: int = 0  # messages with a receipt, not received yet

    def tick(self, at_s: float, ts: str) -> None:
        if self.paused:
            return
        if self.last is not None and at_s - self.last[0] > self.longest.seconds:
            self.longest = Gap(at_s - self.last[0], self.last[1], ts)
        self.last = (at_s, ts)

    def rest(self, at_s: float, ts: str, *, expected: bool) -> None:
        """Pause; the time since the last event counts where one was `expected`."""
        if self.last is not None and expected:
            self.tick(at_s, ts)
        self.last, self.paused = None, True


class Ledger:
    """Takes events from any thread; their order is the order of calls."""

    def __init__(self, path: Path | None = None) -> None:
        """With `path` events are also written to that file, which only its owner can read."""
        self._lock = threading.Lock()
        self._messages: dict[Key, _Message] = {}
        self._totals: Counter[str] = Counter()
        self._sends, self._receives = _GapWatch(), _GapWatch()
        self._by_queue: dict[str, _GapWatch] = {}  # receives, by queue
        self._flushed_s = 0.0
        self._file = None if path is None else os.fdopen(_open(path), "a", encoding="utf-8")

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Read ledger files, of several loads as one; an incomplete last line is left out."""
        ledger = cls()
        events = []
        for path in paths:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            events += [json.loads(line) for line in lines if line.endswith("\n")]
        for row in sorted(events, key=lambda row: str(row["ts"])):
            key, event = (row["queue"], row["id"]), Event(row["event"])
            if event in {Event.SENT, Event.SEND_IN_DOUBT}:
                ledger.attempt(*key)
            ledger._apply(event, key, row["at_s"], row["ts"])
        return ledger

    def attempt(self, queue: str, ident: str) -> None:
        """Note that a message is about to be sent; further calls change nothing."""
        with self._lock:
            message = self._message((queue, ident))
            self._totals["attempted"] += not message.attempted
            message.attempted = True

    def record(self, event: Event, queue: str, ident: str, site: str) -> None:
        """Record an event at the present time."""
        with self._lock:
            at_s, ts = system().monotonic(), stamp(system().now())
            self._apply(event, (queue, ident), at_s, ts)
            if self._file is not None:
                row = {"id": ident, "queue": queue, "event": event.value, "site": site, "ts": ts, "at_s": at_s}
                self._file.write(_to_line(row) + "\n")
                if at_s - self._flushed_s > FLUSH_EVERY_S:
                    self._file.flush()
                    self._flushed_s = at_s

    def rest(self) -> None:
        """Note that producers pause: until `resume` no time counts as a gap."""
        with self._lock:
            at_s, ts = system().monotonic(), stamp(system().now())
            self._sends.rest(at_s, ts, expected=True)
            for watch in self._watches():
                watch.rest(at_s, ts, expected=watch.awaited > 0)

    def resume(self) -> None:
        with self._lock:
            for watch in (self._sends, *self._watches()):
                watch.paused = False

    def counts(self) -> Counts:
        with self._lock:
            return self._counts()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def verdict(self, *, drained: bool = True) -> Verdict:
        """Return the verdict of all events so far."""
        with self._lock:
            messages = sorted(self._messages.items())
            duplicates = {key for key, message in messages if message.consumed > 1 or message.duplicated}
            in_doubt = [message for _, message in messages if message.in_doubt and not message.sent]
            return Verdict(
                counts=self._counts(),
                lost=tuple(key for key, message in messages if message.sent and not message.received),
                duplicates=tuple(sorted(duplicates)),
                redelivered=tuple(key for key, message in messages if message.received > 1 and key not in duplicates),
                in_doubt=len(in_doubt),
                in_doubt_arrived=sum(message.received > 0 for message in in_doubt),
                unexpected=tuple(key for key, message in messages if not message.attempted),
                receive_gap=_rounded(self._receives.longest),
                receive_gaps={queue: _rounded(watch.longest) for queue, watch in sorted(self._by_queue.items())},
                send_gap=_rounded(self._sends.longest),
                drained=drained,
            )

    def _apply(self, event: Event, key: Key, at_s: float, ts: str) -> None:
        message = self._message(key)
        self._totals[event.name.lower()] += 1
        waited = message.sent and not message.received
        match event:
            case Event.SENT:
                message.sent = True
                self._sends.tick(at_s, ts)
            case Event.SEND_IN_DOUBT:
                message.in_doubt = True
            case Event.RECEIVED:
                message.received += 1
                message.duplicated |= message.consumed > 0
                self._receives.tick(at_s, ts)
                self._watch_of(key[0]).tick(at_s, ts)
            case Event.CONSUMED:
                message.consumed += 1
            case Event.ACK_IN_DOUBT:
                pass  # a redelivery shows the result
        for watch in (self._receives, self._watch_of(key[0])):
            watch.awaited += (message.sent and not message.received) - waited

    def _watch_of(self, queue: str) -> _GapWatch:
        return self._by_queue.setdefault(queue, _GapWatch(paused=self._receives.paused))

    def _watches(self) -> list[_GapWatch]:
        return [self._receives, *self._by_queue.values()]

    def _message(self, key: Key) -> _Message:
        if (message := self._messages.get(key)) is None:
            message = self._messages[key] = _Message()
        return message

    def _counts(self) -> Counts:
        return Counts(**self._totals, awaited=self._receives.awaited)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _rounded(gap: Gap) -> Gap:
    return replace(gap, seconds=round(gap.seconds, 4))
