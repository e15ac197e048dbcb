"""Whether messages left a queue because a client acknowledged them: told from the queue's own counters. Pure.

A broker announces a message that an operator purged, moved or deleted exactly as one that a client consumed. Its
counters differ: what a client acknowledges was dispatched to it and is in delivery no more. So `dequeued + in delivery
- dispatched - expired` falls when a consumer gives back what it held, and never grows but by what left otherwise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

# Counters are read one after the other while messages move: a figure may be one too low for a moment, never too high.
LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class Counters:
    """What one look read of a queue at the serving site; all of it counts since that start of the broker."""

    dequeued: int
    in_delivery: int
    dispatched: int
    expired: int

    @property
    def unacknowledged(self) -> int:
        """What left without having been dispatched to a client, less what clients gave back."""
        # A client that leaves while it takes is counted twice at times: in delivery is then below zero for a while.
        return self.dequeued + max(0, self.in_delivery) - self.dispatched - self.expired


@dataclass(slots=True)
class Account:
    """What is known of one queue."""

    known: int = 0
    _last: deque[int] = field(default_factory=lambda: deque(maxlen=LOOKS))

    def vanished(self, counters: Counters) -> int:
        """How many messages left otherwise than by a client since the last look that was taken in."""
        return max(0, counters.unacknowledged - self.known)

    def take_in(self, counters: Counters) -> None:
        """Go on from here: nothing vanished, or somebody said that it may have."""
        self._last.append(counters.unacknowledged)
        self.known = max(self._last)

    def accept(self, counters: Counters) -> None:
        """Somebody answers for what vanished: count from here."""
        self._last.clear()
        self.take_in(counters)

    def gave_back(self, shown: int) -> None:
        """A browse was shown so many: they were dispatched to it, and none was acknowledged."""
        self.known -= shown
        self._last.clear()
