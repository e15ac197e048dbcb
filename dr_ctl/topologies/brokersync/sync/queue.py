"""A queue whose copies the agent deletes: announced ids, confirmed ids, and copies that wait to be deleted. The queue's
counters and its announcements show whether clients acknowledged the messages that left. No broker is read here."""

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

# The order matters: a count that is read later can only make the sum of an account too small.
COUNTERS: Final = ("Name", "DequeueCount", "InFlightCount", "DispatchCount", "ExpiredCount")
# Agents and runs record the messages that browses were shown, and the copies that they deleted. Under `OPENED` a run
# records the counters when it opens the site; under `HANDED` an agent records the numbers of runs that it has counted.
SHOWN: Final = "shown"
DELETED: Final = "deleted"
OPENED: Final = "opened"
HANDED: Final = "handed"
# Clients work during a reading, and a message is out of delivery before its acknowledgement is written and counted as
# dequeued: the sum may be a few too low, never too high. The highest of many readings is right. By chance,
# FRESH_READINGS new ones are all above MAX_READINGS earlier ones once in some hundred million times.
MAX_READINGS: Final = 25
FRESH_READINGS: Final = 10
RECENT_READINGS: Final = 5
LEVEL_READINGS: Final = 4
"""The level is the highest of these latest readings, of some two seconds. A sum above it MAX_ABOVE times is a removal,
or each reading before met an acknowledgement under way: nothing that is read later tells which."""
MAX_ABOVE: Final = 2
MAX_NOISE: Final = 50
"""Working clients make a sum too low by less. If a few readings agree on more, a client gave back messages."""
ANNOUNCED_WITHIN_S: Final = 5.0
"""Announcements follow the counters within milliseconds, but a busy agent reads them only after its work."""


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
        """Messages that left without a dispatch to a client, less messages that clients gave back."""
        # A client that disconnects during a delivery may be counted twice; the count in delivery is then below zero.
        return self.dequeued + max(0, self.in_delivery) - self.dispatched - self.expired

    def consumed(self, shown: int) -> int:
        """Return an upper bound of the messages that clients consumed: those that left, or those that were dispatched
        and not `shown` to browses."""
        return min(self.dequeued, self.dispatched - max(0, self.in_delivery) + self.expired - shown)


class Verdict(Enum):
    CONFIRMED = "confirmed"
    UNDECIDED = "the next reading decides"
    DOUBTED = "messages may have been removed after a client gave others back"


@dataclass(slots=True)
class Account:
    """Counts of one queue since the start of its broker. `known` messages left without a client, less those given back.
    Browses were shown `shown` messages. `accounted` consumed messages need no further deletion: their copies are
    deleted, or wait with their evidence, or are at neither site."""

    known: int = 0
    shown: int = 0
    accounted: int = 0
    _dequeued: int = 0
    _recent: deque[int] = field(init=False)
    _level: deque[int] = field(init=False)
    _above: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._recent = deque([self.known], maxlen=MAX_READINGS)
        self._level = deque([self.known], maxlen=LEVEL_READINGS)

    def vanished(self, counters: Counters) -> int:
        return max(0, counters.unacknowledged - self.known)

    def reset_if_lower(self, counters: Counters) -> bool:
        """If the queue was re-created, or its counters were reset, count from zero and return True."""
        if counters.dequeued >= self._dequeued:
            return False
        self.shown = self.accounted = self._dequeued = 0
        return True

    def add_reading(self, counters: Counters) -> Verdict:
        """Add a reading that does not prove that a message vanished. A client that gives messages back lowers the sum,
        and an operator who removes as many raises it again. The highest sum hides that for a few readings, and the
        latest level does not."""
        self._dequeued = counters.dequeued
        latest = counters.unacknowledged
        self._recent.append(latest)
        newest = list(self._recent)[-RECENT_READINGS:]
        if len(newest) == RECENT_READINGS and self.known - max(newest) > MAX_NOISE:
            self._recent = deque(newest, maxlen=MAX_READINGS)
        self.known = max(self._recent)
        if latest <= max(self._level):
            self._level.append(latest)
            self._above.clear()
            return Verdict.CONFIRMED
        self._above.append(latest)
        if len(self._above) < MAX_ABOVE:
            return Verdict.UNDECIDED
        self._level = deque(self._above, maxlen=LEVEL_READINGS)
        self._above.clear()
        return Verdict.DOUBTED

    def accept(self, readings: Iterable[Counters]) -> None:
        """Count from these readings, because a person accepts all messages that vanished before."""
        self._recent = deque((reading.unacknowledged for reading in readings), maxlen=MAX_READINGS)
        self.known = max(self._recent)
        self._level = deque([self.known], maxlen=LEVEL_READINGS)
        self._above.clear()

    def add_browse(self, shown: int) -> None:
        """Count messages that were dispatched to a browse, and not acknowledged."""
        self.shown += shown
        self.known -= shown
        self._recent = deque((count - shown for count in self._recent), maxlen=MAX_READINGS)
        self._level = deque((count - shown for count in self._level), maxlen=LEVEL_READINGS)

    def count_covered(self, counters: Counters) -> int:
        """Count the copies that may still be deleted: one for each consumed message."""
        return max(0, counters.consumed(self.shown) - self.accounted)

    def settle(self, consumed: int) -> None:
        """Count no further deletion for messages that were consumed before a complete comparison of both sites."""
        self.accounted = max(self.accounted, consumed)


@dataclass(slots=True)
class Announcements:
    """`count` messages of one queue were announced since the agent subscribed to it."""

    count: int = 0
    _left_counts: deque[tuple[float, int]] = field(default_factory=deque)
    _left_before: int | None = None

    def restart(self) -> None:
        """Start again with a new subscription: messages that left before were not announced to it."""
        self.count, self._left_before = 0, None
        self._left_counts.clear()

    def add_counters(self, now: float, counters: Counters) -> None:
        left = counters.dequeued - counters.expired  # whether an expired message is announced depends on the version
        if self._left_before is None or left < self._left_before:
            self.restart()
            self._left_before = left
        self._left_counts.append((now, left - self._left_before))
        while len(self._left_counts) > 1 and self._left_counts[1][0] <= now - ANNOUNCED_WITHIN_S:
            self._left_counts.popleft()

    def count_unannounced(self, now: float) -> int | None:
        """Count the messages that should have been announced by now and were not; None if none has left."""
        if not self._left_counts or self._left_counts[0][0] > now - ANNOUNCED_WITHIN_S or not self._left_counts[0][1]:
            return None
        return max(0, self._left_counts[0][1] - self.count)


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
class Listing:
    """The messages that a browse showed; `why_not` says why it may have left some out. Several browses were shown
    `shown` messages together."""

    ids: frozenset[str]
    complete: CompleteListing | None
    shown: int = 0
    why_not: str = ""


class IsOpen(BrokerError):
    """The standby lets clients in. So it is unknown which site serves, and no copy is deleted."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of both sites, which the next reading judges. `copies` were listed at the standby, and `local`
    is the listing of the serving site's queue, or None if there is no copy. By the reading before, clients had consumed
    `consumed` messages. The copies `tried` were not found by a deletion. `why_not` is the reason why a listing may lack
    a message: then nothing follows from the comparison."""

    at: datetime
    copies: frozenset[str]
    local: Listing | None
    consumed: int
    tried: frozenset[str]
    why_not: str

    @property
    def missing(self) -> frozenset[str]:
        return self.copies - self.local.ids if self.local is not None else self.copies


MAX_BATCH: Final = 500
FIRST_RETRY_S: Final = 0.25
LAST_RETRY_S: Final = 4.0
MAX_TRIES: Final = 7  # after these deletions of a batch, in some twelve seconds, the agent compares both sites
MAX_IDS: Final = 200_000
"""The most ids of one queue in memory. Above, the agent forgets all, and a comparison finds them again."""
MAX_UNCOVERED: Final = 25
"""After so many readings whose counters cover fewer messages than were announced, both sites are compared."""
GO_ON: Final = "dr-ctl sync --go-on"
CLIENTS_WORKED: Final = "clients took messages while both sites were compared"


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
class PendingDeletions:
    """Copies of one queue that wait to be deleted. `absent` copies were found at neither site after all tries."""

    deleted: int = 0
    absent: int = 0
    _batches: list[Batch] = field(default_factory=list)

    def add(self, ids: frozenset[str], evidence: Evidence, *, counted: bool = True) -> None:
        """Add copies whose messages were consumed. Raises `NoEvidence` where nothing proves that."""
        for batch in batches(ids, MAX_BATCH):
            self._batches.append(Batch(Consumed(frozenset(batch), evidence), len(batch), counted))

    def due(self, now: float) -> Batch | None:
        """Return the next batch to delete, which stays until `note_removed`."""
        return next((batch for batch in self._batches if batch.not_before <= now), None)

    def note_removed(self, batch: Batch, removed: int, now: float) -> None:
        """Repeat a batch until no copy is missing, because the broker does not report which of them were there."""
        self._batches.remove(batch)
        removed = min(removed, batch.missing)
        self.deleted += removed
        batch.missing -= removed
        if batch.missing:
            batch.not_before = now + min(FIRST_RETRY_S * 2**batch.tries, LAST_RETRY_S)
            batch.tries += 1
            self._batches.append(batch)

    @property
    def is_overdue(self) -> bool:
        """Say whether a batch was tried so often that only a comparison of both sites can find its copies."""
        return any(batch.tries >= MAX_TRIES for batch in self._batches)

    @property
    def tried(self) -> frozenset[str]:
        return frozenset[str]().union(*(batch.ids for batch in self._batches if batch.tries))

    def drop_absent(self, ids: frozenset[str]) -> None:
        """Forget these copies, of which a complete comparison has found none."""
        for batch in [batch for batch in self._batches if batch.ids & ids]:
            self._batches.remove(batch)
            left = batch.ids - ids
            absent = max(0, batch.missing - len(left))
            self.absent += absent
            if batch.missing > absent:
                self._batches.append(Batch(Consumed(left, batch.consumed.by), batch.missing - absent, batch.counted))

    def mark_earlier_start(self) -> None:
        """Mark the waiting copies as not counted by the counters, which have started from zero."""
        for batch in self._batches:
            batch.counted = False

    def forget_counted(self) -> int:
        """Forget the copies that a comparison finds again by this start's counters; return their number."""
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
    def id_count(self) -> int:
        return sum(len(batch.ids) for batch in self._batches)


@dataclass
class Queue:
    """Ids go from `announced` to `waiting` when a reading that started after their arrival confirms them. Ids that no
    reading could confirm are `doubted`, and their copies stay. At the last comparison, `unproven` copies were at the
    standby only, and nothing showed that they were consumed."""

    pair: str
    name: str
    account: Account = field(default_factory=Account)
    waiting: PendingDeletions = field(default_factory=PendingDeletions)
    announced: list[str] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    announcements: Announcements = field(default_factory=Announcements)
    vanished: int = 0
    excess: int = 0
    unproven: int = 0
    unannounced: int = 0
    is_accepted: bool = False
    to_compare: bool = True
    compare_not_before: float = 0.0
    compared: Comparison | None = None
    _judged: tuple[datetime | None, bool | None, str] = (None, None, "")
    _uncovered: int = 0

    def add_announced(self, id_: str) -> None:
        self.announced.append(id_)
        self.announcements.count += 1
        if len(self.announced) + self.waiting.id_count + len(self.doubted) > MAX_IDS:
            self.forget()
            self.doubted.clear()

    def forget(self) -> None:
        self.announced.clear()
        self.account.accounted -= self.waiting.forget_counted()
        self.to_compare = True
        self.compared = None

    def has_vanished(self, counters: Counters) -> bool:
        return self.vanished > 0 or self.account.vanished(counters) > 0

    def confirm(self, counters: Counters, announced: int, start: str) -> None:
        """Confirm the first `announced` ids, which arrived before that reading, if its counters cover them."""
        if self.account.reset_if_lower(counters):
            self.waiting.mark_earlier_start()
            self.forget()
            announced = 0
        verdict = self.account.add_reading(counters)
        ids = frozenset(self.announced[:announced]) - self.waiting.ids - self.doubted if announced else frozenset()
        counted = self.account.count_covered(counters)
        if verdict is Verdict.DOUBTED:
            self.doubted |= ids
        elif verdict is Verdict.UNDECIDED or len(ids) > counted:
            self._uncovered += 1
            self.to_compare = self.to_compare or self._uncovered >= MAX_UNCOVERED
            return
        elif ids:
            self.waiting.add(ids, Announced(ids, start, counted, start))
        self._uncovered = 0
        self.account.accounted += len(ids)
        del self.announced[:announced]
        self.to_compare = self.to_compare or self.waiting.is_overdue

    def add_counters(self, now: float, counters: Counters) -> None:
        self.announcements.add_counters(now, counters)
        if (unannounced := self.announcements.count_unannounced(now)) is not None:
            self.unannounced = unannounced
            self.to_compare = self.to_compare or unannounced > 0

    def doubt(self, counters: Counters) -> None:
        """Confirm no announced id until a person continues, because a message left without a client."""
        self.vanished = max(self.vanished, self.account.vanished(counters))
        self.forget()

    def go_on(self, readings: Iterable[Counters]) -> None:
        self.account.accept(readings)
        self.vanished = self.excess = 0
        self.forget()

    def set_comparison(self, comparison: Comparison) -> None:
        self.compared = comparison
        if comparison.local is not None:
            self.account.add_browse(comparison.local.shown)

    def judge(self, counters: Counters) -> bool:
        """Judge a comparison by counters that were read after it, and say whether it had a result. If more copies have
        no message than these counters cover, none is deleted, and the agent stops deleting."""
        if (comparison := self.compared) is None:
            return True
        self.compared = None
        missing = comparison.missing - self.waiting.ids
        if not self.is_accepted:
            missing -= self.doubted
        if comparison.why_not:
            return self._note_undecided(comparison, len(missing), comparison.why_not)
        if not self.is_accepted:
            if (uncovered := len(missing) - self.account.count_covered(counters)) > 0:
                self.vanished = self.excess = uncovered
                self.forget()
                return self._note_undecided(comparison, 0, "")
            counted = comparison.consumed - self.account.accounted
            if missing and len(missing) > counted:
                return self._note_undecided(comparison, len(missing), f"{self.name}: {CLIENTS_WORKED}")
            if missing and comparison.local is not None and comparison.local.complete is not None:
                self.waiting.add(missing, Covered(missing, comparison.local.complete, counted))
        else:
            self.waiting.add(missing, decided(missing, GO_ON), counted=False)
            self.doubted.clear()
            self.is_accepted = False
        self.account.settle(comparison.consumed)
        self.waiting.drop_absent(comparison.tried - comparison.copies)
        self.doubted &= comparison.copies | set(self.announced)
        self.unproven, self.to_compare = 0, False
        if self.unannounced:
            self.announcements.restart()
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
            unheard=self.unannounced,
            compared=at,
            complete=complete,
            why_not=why_not,
        )
