"""Whether messages left a queue because a client acknowledged them: told from the queue's own counters. Pure.

A broker announces a message that an operator purged, moved or deleted exactly as one that a client consumed. The
counters differ: a message that a client acknowledges was dispatched to it and is in delivery no more. Therefore
`dequeued + in delivery - dispatched - expired` falls when a consumer gives back what it held, and grows only when
messages leave in another way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.jolokia.values import Fields

# In this order: a later count can only make the sum of an account smaller than it is.
COUNTERS: Final = ("Name", "DequeueCount", "InFlightCount", "DispatchCount", "ExpiredCount")

# Counters are read one after the other while clients work: at each look the sum may be a few too low, never too high.
# The highest of many looks is right. The chance that all of SURE fresh ones lie above all of LOOKS earlier ones is one
# in some hundred millions.
LOOKS: Final = 25
SURE: Final = 10
FEW: Final = 5
NOISE: Final = 50
"""More than clients at work make a sum too low: where a few looks agree, a client gave back what it held."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of a queue at the serving site from one look; counted since the broker's start."""

    dequeued: int
    in_delivery: int
    dispatched: int
    expired: int

    @property
    def unacknowledged(self) -> int:
        """Messages that left without being dispatched to a client, less messages that clients gave back."""
        # A client that leaves while it takes is counted twice at times: in delivery is then below zero for a while.
        return self.dequeued + max(0, self.in_delivery) - self.dispatched - self.expired

    def consumed(self, shown: int) -> int:
        """How many messages clients can have consumed at most: as many as have left, or as were dispatched and are not
        in delivery, less those `shown` to browses."""
        return min(self.dequeued, self.dispatched - max(0, self.in_delivery) + self.expired - shown)


def counters(fields: Fields) -> Counters:
    return Counters(
        fields.number("DequeueCount"),
        fields.number("InFlightCount"),
        fields.number("DispatchCount"),
        fields.number("ExpiredCount"),
    )


@dataclass(slots=True)
class Account:
    """Counts of one queue since the start of its broker. `known` messages left by no client, less those given back;
    `shown` ones were shown to browses; `deleted` copies are gone. `allowed` copies may go without a counter, because
    counters of an earlier start or a person answer for them."""

    known: int = 0
    shown: int = 0
    deleted: int = 0
    allowed: int = 0
    _dequeued: int = 0
    _last: deque[int] = field(init=False)

    def __post_init__(self) -> None:
        self._last = deque([self.known], maxlen=LOOKS)

    def vanished(self, counters: Counters) -> int:
        """How many messages left otherwise than by a client since the looks that were taken in."""
        return max(0, counters.unacknowledged - self.known)

    def take_in(self, counters: Counters) -> None:
        """Go on from here: nothing vanished."""
        if counters.dequeued < self._dequeued:  # the queue was made again, or its counters were reset
            self.shown = self.deleted = self.allowed = 0
        self._dequeued = counters.dequeued
        self._last.append(counters.unacknowledged)
        newest = list(self._last)[-FEW:]
        if len(newest) == FEW and self.known - max(newest) > NOISE:
            self._last.clear()
            self._last.extend(newest)
        self.known = max(self._last)

    def accept(self, looks: Iterable[Counters]) -> None:
        """Whatever vanished, somebody answers for it: count from these looks."""
        self._last.clear()
        self._last.extend(each.unacknowledged for each in looks)
        self.known = max(self._last)

    def gave_back(self, shown: int) -> None:
        """A browse was shown so many: messages dispatched to the browse, and not acknowledged."""
        self.shown += shown
        self.known -= shown
        self._last = deque((each - shown for each in self._last), maxlen=LOOKS)

    def covers(self, counters: Counters | None) -> int:
        """How many copies may be deleted beside those that were: a message that was consumed has one copy. None: the
        serving site has no such queue, and no counters."""
        consumed = counters.consumed(self.shown) if counters is not None else 0
        return max(0, consumed + self.allowed - self.deleted)
