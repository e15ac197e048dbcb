"""Whether messages left a queue because a client acknowledged them: by its counters, and what was announced. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dr_ctl.jolokia.values import Fields

# In this order: a later count can only make the sum of an account smaller than it is.
COUNTERS: Final = ("Name", "DequeueCount", "InFlightCount", "DispatchCount", "ExpiredCount")
# What an agent remembers, and what runs note: messages shown to browses, copies deleted; `OPENED`, how the counters
# stood when a run opened the site; `HANDED`, how much of the runs' notes an agent's figures hold.
SHOWN: Final = "shown"
DELETED: Final = "deleted"
OPENED: Final = "opened"
HANDED: Final = "handed"
# Counters are read one after the other while clients work: at each look the sum may be a few too low, never too high.
# The highest of many looks is right. The chance that all of SURE fresh ones lie above all of LOOKS earlier ones is one
# in some hundred millions.
LOOKS: Final = 25
SURE: Final = 10
FEW: Final = 5
LEVEL: Final = 4
"""The latest looks, some two seconds: the highest of them is the level. A sum above it twice is no noise."""
ABOVE: Final = 2
NOISE: Final = 50
"""More than clients at work make a sum too low: where a few looks agree, a client gave back what it held."""
LATE_S: Final = 5.0
"""Announcements follow the counters within milliseconds; an agent that was busy takes them in after its work."""


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


class Verdict(Enum):
    """What a look says of the messages that were announced as consumed before it."""

    BELIEVED = "believed"
    LATER = "the next reading decides"
    DOUBTED = "messages may have been taken away while a client gave others back"


@dataclass(slots=True)
class Account:
    """Counts of one queue since the start of its broker. `known` messages left by no client, less those given back;
    `shown` ones were shown to browses. `spent` consumed messages are accounted for: their copies are gone, or wait
    with their evidence, or lie at neither site."""

    known: int = 0
    shown: int = 0
    spent: int = 0
    _dequeued: int = 0
    _last: deque[int] = field(init=False)
    _level: deque[int] = field(init=False)
    _above: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._last = deque([self.known], maxlen=LOOKS)
        self._level = deque([self.known], maxlen=LEVEL)

    def vanished(self, counters: Counters) -> int:
        """How many messages left otherwise than by a client since the looks that were taken in."""
        return max(0, counters.unacknowledged - self.known)

    def fell(self, counters: Counters) -> bool:
        """Say whether the queue was made again, or its counters were reset; count anew then."""
        if counters.dequeued >= self._dequeued:
            return False
        self.shown = self.spent = self._dequeued = 0
        return True

    def take_in(self, counters: Counters) -> Verdict:
        """Go on from here: nothing vanished for certain.

        A client that gives messages back lowers the sum, and as many that somebody takes away raise it again. Within
        the last few looks these two are not told apart by the sum's highest value; by its latest level they are."""
        self._dequeued = counters.dequeued
        now = counters.unacknowledged
        self._last.append(now)
        newest = list(self._last)[-FEW:]
        if len(newest) == FEW and self.known - max(newest) > NOISE:
            self._last.clear()
            self._last.extend(newest)
        self.known = max(self._last)
        if now <= max(self._level):
            self._level.append(now)
            self._above.clear()
            return Verdict.BELIEVED
        self._above.append(now)
        if len(self._above) < ABOVE:
            return Verdict.LATER
        self._level = deque(self._above, maxlen=LEVEL)
        self._above.clear()
        return Verdict.DOUBTED

    def accept(self, looks: Iterable[Counters]) -> None:
        """Whatever vanished, somebody answers for it: count from these looks."""
        self._last.clear()
        self._last.extend(each.unacknowledged for each in looks)
        self.known = max(self._last)
        self._level = deque([self.known], maxlen=LEVEL)
        self._above.clear()

    def gave_back(self, shown: int) -> None:
        """A browse was shown so many: messages dispatched to the browse, and not acknowledged."""
        self.shown += shown
        self.known -= shown
        self._last = deque((each - shown for each in self._last), maxlen=LOOKS)
        self._level = deque((each - shown for each in self._level), maxlen=LEVEL)

    def covers(self, counters: Counters) -> int:
        """How many copies more may go: a message that was consumed has one copy."""
        return max(0, counters.consumed(self.shown) - self.spent)

    def settle(self, consumed: int) -> None:
        """Both sites were compared whole: all of the messages consumed before that are accounted for."""
        self.spent = max(self.spent, consumed)


@dataclass(slots=True)
class Announcements:
    """`count` messages of one queue were announced since the agent follows it."""

    count: int = 0
    _left: deque[tuple[float, int]] = field(default_factory=deque)
    _from: int | None = None

    def begin(self) -> None:
        """The agent follows the queue anew: what left before was announced to nobody."""
        self.count, self._from = 0, None
        self._left.clear()

    def looked(self, now: float, counters: Counters) -> None:
        left = counters.dequeued - counters.expired  # whether an expired message is announced depends on the version
        if self._from is None or left < self._from:
            self.begin()
            self._from = left
        self._left.append((now, left - self._from))
        while len(self._left) > 1 and self._left[1][0] <= now - LATE_S:
            self._left.popleft()

    def unheard(self, now: float) -> int | None:
        """How many messages left long enough ago, and were announced by nobody; returns None where none has left."""
        if not self._left or self._left[0][0] > now - LATE_S or not self._left[0][1]:
            return None
        return max(0, self._left[0][1] - self.count)
