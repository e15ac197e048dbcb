"""A queue that the agent keeps clean: ids announced, ids believed, and copies that wait to be deleted. The queue's
counters and its announcements tell whether clients acknowledged the messages that left. No broker is asked here."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, Self

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.classic.beans import Count
from dr_ctl.topologies.common.calls import batches
from dr_ctl.topologies.common.consumed import Announced, CompleteListing, Consumed, Covered, Evidence, decided
from dr_ctl.topologies.topology import QueueProgress

# The order matters: a count that is read later can only make the sum of an account smaller than it is.
COUNTERS: Final = ("Name", "DequeueCount", "InFlightCount", "DispatchCount", "ExpiredCount")
# Agents and runs note the messages that browses were shown, and the copies that they deleted. Under `OPENED` a run
# notes the counters when it opens the site; under `HANDED` an agent notes how much of the runs' notes it has counted.
SHOWN: Final = "shown"
DELETED: Final = "deleted"
OPENED: Final = "opened"
HANDED: Final = "handed"
# Counters are read one after the other while clients work: at each reading the sum may be a few too low, never too
# high. The highest of many readings is right. By chance SURE fresh readings all lie above MAX_READINGS earlier ones
# once in some hundred million times.
MAX_READINGS: Final = 25
SURE: Final = 10
FEW: Final = 5
LEVEL: Final = 4
"""The highest of the latest readings, those of some two seconds, is the level. A sum above it twice is no noise."""
ABOVE: Final = 2
NOISE: Final = 50
"""Clients at work make a sum too low by less. Where a few readings agree on more, a client gave back what it held."""
LATE_S: Final = 5.0
"""Announcements follow the counters within milliseconds, but a busy agent takes them in only after its work."""


@dataclass(frozen=True, slots=True)
class Counters:
    dequeued: int
    in_delivery: int
    dispatched: int
    expired: int

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(*map(fields.number, COUNTERS[1:]))

    @property
    def unacknowledged(self) -> int:
        """Messages that left without being dispatched to a client, less messages that clients gave back."""
        # A client that leaves while it takes is counted twice at times, and the count in delivery is below zero then.
        return self.dequeued + max(0, self.in_delivery) - self.dispatched - self.expired

    def consumed(self, shown: int) -> int:
        """Count the messages that clients can have consumed at most: those that left, or those that were dispatched
        and not `shown` to browses."""
        return min(self.dequeued, self.dispatched - max(0, self.in_delivery) + self.expired - shown)


class Verdict(Enum):
    BELIEVED = "believed"
    LATER = "the next reading decides"
    DOUBTED = "messages may have been taken away while a client gave others back"


@dataclass(slots=True)
class Account:
    """Counts of one queue since the start of its broker. `known` messages left by no client, less those given back.
    Browses were shown `shown` messages. `spent` consumed messages are accounted for: their copies are gone, or wait
    with their evidence, or lie at neither site."""

    known: int = 0
    shown: int = 0
    spent: int = 0
    _dequeued: int = 0
    _last: deque[int] = field(init=False)
    _level: deque[int] = field(init=False)
    _above: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._last = deque([self.known], maxlen=MAX_READINGS)
        self._level = deque([self.known], maxlen=LEVEL)

    def vanished(self, counters: Counters) -> int:
        return max(0, counters.unacknowledged - self.known)

    def fell(self, counters: Counters) -> bool:
        """Say whether the queue was re-created, or its counters were reset, and then count anew."""
        if counters.dequeued >= self._dequeued:
            return False
        self.shown = self.spent = self._dequeued = 0
        return True

    def take_in(self, counters: Counters) -> Verdict:
        """Take in a reading in which no message vanished for certain. A client that gives messages back lowers the sum,
        and somebody who takes as many away raises it again. The highest sum hides that for a few readings, and the
        latest level does not."""
        self._dequeued = counters.dequeued
        now = counters.unacknowledged
        self._last.append(now)
        newest = list(self._last)[-FEW:]
        if len(newest) == FEW and self.known - max(newest) > NOISE:
            self._last = deque(newest, maxlen=MAX_READINGS)
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

    def accept(self, readings: Iterable[Counters]) -> None:
        """Count from these readings, because somebody answers for whatever vanished."""
        self._last = deque((reading.unacknowledged for reading in readings), maxlen=MAX_READINGS)
        self.known = max(self._last)
        self._level = deque([self.known], maxlen=LEVEL)
        self._above.clear()

    def gave_back(self, shown: int) -> None:
        """Count messages that were dispatched to a browse, and not acknowledged."""
        self.shown += shown
        self.known -= shown
        self._last = deque((count - shown for count in self._last), maxlen=MAX_READINGS)
        self._level = deque((count - shown for count in self._level), maxlen=LEVEL)

    def covers(self, counters: Counters) -> int:
        """Count the copies that may still go: each consumed message has one copy."""
        return max(0, counters.consumed(self.shown) - self.spent)

    def settle(self, consumed: int) -> None:
        """Account for all messages that were consumed before both sites were compared whole."""
        self.spent = max(self.spent, consumed)


@dataclass(slots=True)
class Announcements:
    """`count` messages of one queue were announced since the agent began to follow it."""

    count: int = 0
    _left: deque[tuple[float, int]] = field(default_factory=deque)
    _from: int | None = None

    def begin(self) -> None:
        """Begin to follow the queue anew: messages that left before were announced to nobody."""
        self.count, self._from = 0, None
        self._left.clear()

    def note_counters(self, now: float, counters: Counters) -> None:
        left = counters.dequeued - counters.expired  # whether an expired message is announced depends on the version
        if self._from is None or left < self._from:
            self.begin()
            self._from = left
        self._left.append((now, left - self._from))
        while len(self._left) > 1 and self._left[1][0] <= now - LATE_S:
            self._left.popleft()

    def unheard(self, now: float) -> int | None:
        """Count the messages that left long enough ago and were not announced; None if none has left."""
        if not self._left or self._left[0][0] > now - LATE_S or not self._left[0][1]:
            return None
        return max(0, self._left[0][1] - self.count)


@dataclass(frozen=True, slots=True)
class ServingReading:
    """The counters of each copied queue by name, and the count of its copies that are not shipped yet."""

    start: str
    is_open: bool
    queues: Mapping[str, Counters]
    to_ship: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class StandbyReading:
    """The copies at the standby, and those that it did not ship when it served. A prepared transaction hides
    messages from a browse."""

    copies: Mapping[str, Count]
    unshipped: Mapping[str, Count]
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """The messages that a browse showed; `why_not` says why it may have left some out. Several browses were shown
    `shown` messages together."""

    ids: frozenset[str]
    complete: CompleteListing | None
    shown: int = 0
    why_not: str = ""


class Opened(BrokerError):
    """The standby lets clients in. So nobody can tell which site serves, and no copy is deleted."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of both sites, which the next reading judges. `copies` were shown at the standby, and `local`
    is the listing of the serving site's queue, None where there is no copy. Clients had consumed `consumed` messages by
    the reading before it. The copies `tried` were not found when they were to be deleted. `why_not` says why a listing
    may have left out a message: no conclusion follows then."""

    at: datetime
    copies: frozenset[str]
    local: Listed | None
    consumed: int
    tried: frozenset[str]
    why_not: str

    @property
    def lacking(self) -> frozenset[str]:
        return self.copies - self.local.ids if self.local is not None else self.copies


MAX_BATCH: Final = 500
FIRST_AGAIN_S: Final = 0.25
LAST_AGAIN_S: Final = 4.0
OVERDUE: Final = 7  # after so many tries, which take some twelve seconds, the agent compares both sites
AT_MOST: Final = 200_000
"""Memory holds so many ids of one queue. Beyond them the agent lets all go, and a comparison finds them again."""
UNCOVERED: Final = 25
"""A comparison says what lacks after so many readings whose counters cover fewer messages than were announced."""
GO_ON: Final = "dr-ctl sync --go-on"
MEANWHILE: Final = "clients took messages while both sites were compared"


@dataclass(slots=True, eq=False)
class Batch:
    """Copies that are deleted in one call, of which `missing` were not found yet. Counters of the broker's present
    start cover a batch that is `counted`."""

    consumed: Consumed
    missing: int
    counted: bool = True
    tries: int = 0
    not_before: float = 0.0

    @property
    def ids(self) -> frozenset[str]:
        return self.consumed.ids


@dataclass(slots=True)
class Waiting:
    """Copies of one queue that wait to be deleted. `absent` ones were found at neither site after all tries."""

    deleted: int = 0
    absent: int = 0
    _batches: list[Batch] = field(default_factory=list)

    def add(self, ids: frozenset[str], by: Evidence, *, counted: bool = True) -> None:
        """Add copies whose messages were consumed. Raises `NoEvidence` where nothing proves that."""
        for batch in batches(ids, MAX_BATCH):
            self._batches.append(Batch(Consumed(frozenset(batch), by), len(batch), counted))

    def due(self, now: float) -> Batch | None:
        """Give the next batch to delete, which stays in the row until it is `answered`."""
        return next((batch for batch in self._batches if batch.not_before <= now), None)

    def answered(self, batch: Batch, removed: int, now: float) -> None:
        """Try every id of a batch again until none is missing, as the broker does not say which of them were there."""
        self._batches.remove(batch)
        removed = min(removed, batch.missing)
        self.deleted += removed
        batch.missing -= removed
        if batch.missing:
            batch.not_before = now + min(FIRST_AGAIN_S * 2**batch.tries, LAST_AGAIN_S)
            batch.tries += 1
            self._batches.append(batch)

    @property
    def overdue(self) -> bool:
        """Say whether a batch was tried so often that only a comparison of both sites can tell where its copies are."""
        return any(batch.tries >= OVERDUE for batch in self._batches)

    @property
    def tried(self) -> frozenset[str]:
        return frozenset[str]().union(*(batch.ids for batch in self._batches if batch.tries))

    def nowhere(self, ids: frozenset[str]) -> None:
        """Let go of these copies, of which a comparison that showed all has found none."""
        for batch in [batch for batch in self._batches if batch.ids & ids]:
            self._batches.remove(batch)
            rest = batch.ids - ids
            gone = max(0, batch.missing - len(rest))
            self.absent += gone
            if batch.missing > gone:
                self._batches.append(Batch(Consumed(rest, batch.consumed.by), batch.missing - gone, batch.counted))

    def of_earlier_start(self) -> None:
        """Keep the evidence of waiting copies, for which counters that begin anew do not account."""
        for batch in self._batches:
            batch.counted = False

    def let_go(self) -> int:
        """Forget the copies that a comparison finds again by this start's counters; gives their number."""
        missing = self.counted
        self._batches = [batch for batch in self._batches if not batch.counted]
        return missing

    @property
    def counted(self) -> int:
        return sum(batch.missing for batch in self._batches if batch.counted)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset[str]().union(*(batch.ids for batch in self._batches))

    def __len__(self) -> int:
        return sum(batch.missing for batch in self._batches)

    @property
    def held(self) -> int:
        return sum(len(batch.ids) for batch in self._batches)


@dataclass
class Queue:
    """Ids go from `announced` to `waiting` when a reading that begins after they came confirms them. Ids that no
    reading could confirm are `doubted`, and their copies stay. At the last comparison `unproven` copies lay at the
    standby alone, and nothing showed that they were consumed."""

    pair: str
    name: str
    account: Account = field(default_factory=Account)
    waiting: Waiting = field(default_factory=Waiting)
    announced: list[str] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    heard: Announcements = field(default_factory=Announcements)
    vanished: int = 0
    excess: int = 0
    unproven: int = 0
    unheard: int = 0
    answered_for: bool = False
    to_compare: bool = True
    compare_not_before: float = 0.0
    compared: Comparison | None = None
    _judged: tuple[datetime | None, bool | None, str] = (None, None, "")
    _uncovered: int = 0

    def hear(self, id_: str) -> None:
        self.announced.append(id_)
        self.heard.count += 1
        if len(self.announced) + self.waiting.held + len(self.doubted) > AT_MOST:
            self.forget()
            self.doubted.clear()

    def forget(self) -> None:
        self.announced.clear()
        self.account.spent -= self.waiting.let_go()
        self.to_compare = True
        self.compared = None

    def suspects(self, counters: Counters) -> bool:
        return self.vanished > 0 or self.account.vanished(counters) > 0

    def confirm(self, counters: Counters, announced: int, start: str) -> None:
        """Believe the first `announced` ids, which came before that reading, where its counters cover them."""
        if self.account.fell(counters):
            self.waiting.of_earlier_start()
            self.forget()
            announced = 0
        verdict = self.account.take_in(counters)
        ids = frozenset(self.announced[:announced]) - self.waiting.ids - self.doubted if announced else frozenset()
        counted = self.account.covers(counters)
        if verdict is Verdict.DOUBTED:
            self.doubted |= ids
        elif verdict is Verdict.LATER or len(ids) > counted:
            self._uncovered += 1
            self.to_compare = self.to_compare or self._uncovered >= UNCOVERED
            return
        elif ids:
            self.waiting.add(ids, Announced(ids, start, counted, start))
        self._uncovered = 0
        self.account.spent += len(ids)
        del self.announced[:announced]
        self.to_compare = self.to_compare or self.waiting.overdue

    def note_counters(self, now: float, counters: Counters) -> None:
        self.heard.note_counters(now, counters)
        if (unheard := self.heard.unheard(now)) is not None:
            self.unheard = unheard
            self.to_compare = self.to_compare or unheard > 0

    def doubt(self, counters: Counters) -> None:
        """Believe no announced id until somebody says so, because a message left otherwise than by a client."""
        self.vanished = max(self.vanished, self.account.vanished(counters))
        self.forget()

    def go_on(self, readings: Iterable[Counters]) -> None:
        self.account.accept(readings)
        self.vanished = self.excess = 0
        self.forget()

    def keep(self, comparison: Comparison) -> None:
        self.compared = comparison
        if comparison.local is not None:
            self.account.gave_back(comparison.local.shown)

    def judge(self, counters: Counters) -> bool:
        """Conclude what a comparison proves by counters that were read after it, and say whether it told anything.
        Where more copies lack than these counters cover, none goes, and the agent holds."""
        if (comparison := self.compared) is None:
            return True
        self.compared = None
        lacking = comparison.lacking - self.waiting.ids
        if not self.answered_for:
            lacking -= self.doubted
        if comparison.why_not:
            return self._note_undecided(comparison, len(lacking), comparison.why_not)
        if not self.answered_for:
            if (more := len(lacking) - self.account.covers(counters)) > 0:
                self.vanished = self.excess = more
                self.forget()
                return self._note_undecided(comparison, 0, "")
            counted = comparison.consumed - self.account.spent
            if lacking and len(lacking) > counted:
                return self._note_undecided(comparison, len(lacking), f"{self.name}: {MEANWHILE}")
            if lacking and comparison.local is not None and comparison.local.complete is not None:
                self.waiting.add(lacking, Covered(lacking, comparison.local.complete, counted))
        else:
            self.waiting.add(lacking, decided(lacking, GO_ON), counted=False)
            self.doubted.clear()
            self.answered_for = False
        self.account.settle(comparison.consumed)
        self.waiting.nowhere(comparison.tried - comparison.copies)
        self.doubted &= comparison.copies | set(self.announced)
        self.unproven, self.to_compare = 0, False
        if self.unheard:
            self.heard.begin()
        self._judged = (comparison.at, True, "")
        return True

    def _note_undecided(self, comparison: Comparison, unproven: int, why_not: str) -> bool:
        self.unproven = unproven
        self._judged = (comparison.at, False, why_not)
        return False

    @property
    def snapshot(self) -> QueueProgress:
        at, complete, why_not = self._judged
        return QueueProgress(
            self.pair,
            self.name,
            deleted=self.waiting.deleted,
            waiting=len(self.waiting),
            unconfirmed=len(self.announced),
            absent=self.waiting.absent,
            vanished=self.vanished,
            unproven=self.unproven + len(self.doubted),
            unheard=self.unheard,
            compared=at,
            complete=complete,
            why_not=why_not,
        )
