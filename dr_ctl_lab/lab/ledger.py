"""The ledger of a load: promises to clients, message by message, and the verdict that follows from it.

    SENT            the producer has the broker's receipt: from here on the message must not be lost
    SEND_IN_DOUBT   sent, and the connection broke before the receipt: the message may have arrived or not
    RECEIVED        a consumer has done its work on the message
    CONSUMED        the consumer has the receipt of its acknowledgement: from here on it must not come again
    ACK_IN_DOUBT    acknowledged, and the connection broke before the receipt: the message may rightly come again

The ledger judges, not the tool that moves the service. Events are kept in memory and written as JSON lines
(`id, queue, event, site, ts` and `at_s`, a clock that only grows), from which they can be read again.
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
    """Steps of a message that may stand in a ledger."""

    SENT = "sent"
    SEND_IN_DOUBT = "send-in-doubt"
    RECEIVED = "received"
    CONSUMED = "consumed"
    ACK_IN_DOUBT = "ack-in-doubt"


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without an event, in seconds, and between which moments it lay."""

    seconds: float = 0.0
    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Running totals of events; `attempted` counts sends that went out, whatever became of them."""

    attempted: int = 0
    sent: int = 0
    send_in_doubt: int = 0
    received: int = 0
    consumed: int = 0
    ack_in_doubt: int = 0
    awaited: int = 0  # has a receipt and was not received yet


@dataclass(frozen=True, slots=True)
class Verdict:
    """Fate of every message.

    `lost`: receipt given, never received. `duplicates`: came again, or was acknowledged again, after an
    acknowledgement had been confirmed. `redelivered`: received more than once where no acknowledgement had been
    confirmed in between, which at-least-once delivery allows. `in_doubt`: sends without a receipt, of which
    `in_doubt_arrived` came nevertheless. `unexpected`: received, and never sent by this load. Where `drained` is
    False the consumers were stopped before the queues were known to be empty, and `lost` may count what still lies
    there. `receive_gaps` are those of each queue by itself. A document has
    the number of each list of ids; the ids are in the ledger.
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
        """No message lost, none consumed twice, and the queues were seen empty."""
        return self.drained and not self.lost and not self.duplicates

    @property
    def told(self) -> str:
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
    came_after_consumed: bool = False


@dataclass(slots=True)
class _Pace:
    """Watches the time between events of one kind; stands still while nobody expects any."""

    last: tuple[float, str] | None = None
    longest: Gap = field(default_factory=Gap)
    resting: bool = False
    awaited: int = 0  # of messages with a receipt, those that nobody received yet

    def tick(self, at_s: float, ts: str) -> None:
        if self.resting:
            return
        if self.last is not None and at_s - self.last[0] > self.longest.seconds:
            self.longest = Gap(at_s - self.last[0], self.last[1], ts)
        self.last = (at_s, ts)

    def rest(self, at_s: float, ts: str, *, expected: bool) -> None:
        """Stop watching; the time since the last event counts where one was `expected`."""
        if self.last is not None and expected:
            self.tick(at_s, ts)
        self.last, self.resting = None, True


class Ledger:
    """Takes events from any thread, in the order they are told; their order decides what came after what."""

    def __init__(self, path: Path | None = None) -> None:
        """Write to `path` too, where one is given; the file is the owner's alone."""
        self._lock = threading.Lock()
        self._messages: dict[Key, _Message] = {}
        self._totals: Counter[str] = Counter()
        self._sends, self._receives = _Pace(), _Pace()
        self._by_queue: dict[str, _Pace] = {}  # receives again, each queue by itself
        self._flushed_s = 0.0
        self._file = None if path is None else os.fdopen(_open(path), "a", encoding="utf-8")

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Take up ledgers that were written, of several loads as if of one; a torn last line is left out."""
        ledger = cls()
        events = []
        for path in paths:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            events += [json.loads(line) for line in lines if line.endswith("\n")]
        for row in sorted(events, key=lambda options: str(options["ts"])):
            key, event = (row["queue"], row["id"]), Event(row["event"])
            if event in {Event.SENT, Event.SEND_IN_DOUBT}:
                ledger.attempt(*key)
            ledger._take(event, key, row["at_s"], row["ts"])
        return ledger

    def attempt(self, queue: str, ident: str) -> None:
        """Note that a message is about to be sent: from now on it is ours, whatever happens. Twice is once."""
        with self._lock:
            one = self._message((queue, ident))
            self._totals["attempted"] += not one.attempted
            one.attempted = True

    def record(self, event: Event, queue: str, ident: str, site: str) -> None:
        """Note what happened, now."""
        with self._lock:
            at_s, ts = system().monotonic(), stamp(system().now())
            self._take(event, (queue, ident), at_s, ts)
            if self._file is not None:
                options = {"id": ident, "queue": queue, "event": event.value, "site": site, "ts": ts, "at_s": at_s}
                self._file.write(_to_line(options) + "\n")
                if at_s - self._flushed_s > FLUSH_EVERY_S:
                    self._file.flush()
                    self._flushed_s = at_s

    def rest(self) -> None:
        """Nobody sends from now on: until `resume`, silence is no gap."""
        with self._lock:
            at_s, ts = system().monotonic(), stamp(system().now())
            self._sends.rest(at_s, ts, expected=True)
            for pace in self._paces():
                pace.rest(at_s, ts, expected=pace.awaited > 0)

    def resume(self) -> None:
        with self._lock:
            for pace in (self._sends, *self._paces()):
                pace.resting = False

    def counts(self) -> Counts:
        with self._lock:
            return self._counts()

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def verdict(self, *, drained: bool = True) -> Verdict:
        """Judge all that was told so far."""
        with self._lock:
            every = sorted(self._messages.items())
            duplicates = {key for key, one in every if one.consumed > 1 or one.came_after_consumed}
            in_doubt = [one for _, one in every if one.in_doubt and not one.sent]
            return Verdict(
                counts=self._counts(),
                lost=tuple(key for key, one in every if one.sent and not one.received),
                duplicates=tuple(sorted(duplicates)),
                redelivered=tuple(key for key, one in every if one.received > 1 and key not in duplicates),
                in_doubt=len(in_doubt),
                in_doubt_arrived=sum(one.received > 0 for one in in_doubt),
                unexpected=tuple(key for key, one in every if not one.attempted),
                receive_gap=_rounded(self._receives.longest),
                receive_gaps={queue: _rounded(pace.longest) for queue, pace in sorted(self._by_queue.items())},
                send_gap=_rounded(self._sends.longest),
                drained=drained,
            )

    def _take(self, event: Event, key: Key, at_s: float, ts: str) -> None:
        one = self._message(key)
        self._totals[event.name.lower()] += 1
        waited = one.sent and not one.received
        match event:
            case Event.SENT:
                one.sent = True
                self._sends.tick(at_s, ts)
            case Event.SEND_IN_DOUBT:
                one.in_doubt = True
            case Event.RECEIVED:
                one.received += 1
                one.came_after_consumed |= one.consumed > 0
                self._receives.tick(at_s, ts)
                self._pace(key[0]).tick(at_s, ts)
            case Event.CONSUMED:
                one.consumed += 1
            case Event.ACK_IN_DOUBT:
                pass  # the message may come again: the outcome is seen when it does
        for pace in (self._receives, self._pace(key[0])):
            pace.awaited += (one.sent and not one.received) - waited

    def _pace(self, queue: str) -> _Pace:
        return self._by_queue.setdefault(queue, _Pace(resting=self._receives.resting))

    def _paces(self) -> list[_Pace]:
        return [self._receives, *self._by_queue.values()]

    def _message(self, key: Key) -> _Message:
        if (one := self._messages.get(key)) is None:
            one = self._messages[key] = _Message()
        return one

    def _counts(self) -> Counts:
        return Counts(**self._totals, awaited=self._receives.awaited)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _rounded(gap: Gap) -> Gap:
    return replace(gap, seconds=round(gap.seconds, 4))
