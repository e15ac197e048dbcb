"""A queue that the agent keeps clean: ids announced, ids believed, copies that wait to be deleted. Asks no broker."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dr_ctl.topologies.brokersync.sync.accounts import Account, Announcements, Counters, Verdict
from dr_ctl.topologies.brokersync.sync.readings import Comparison
from dr_ctl.topologies.common.consumed import Announced, Consumed, Covered, Evidence, Word
from dr_ctl.topologies.topology import QueueKept

BATCH_AT_MOST: Final = 500
FIRST_AGAIN_S: Final = 0.25
LAST_AGAIN_S: Final = 4.0
OVERDUE: Final = 7  # tries, some twelve seconds: the agent then compares both sites
AT_MOST: Final = 200_000
"""Ids kept in memory of one queue; beyond them all are let go, and found again by a comparison of both sites."""
UNCOVERED: Final = 25
"""Looks in which counters cover fewer than were announced; then a comparison of both sites says what lacks."""
GO_ON: Final = "dr-ctl sync --go-on"
MEANWHILE: Final = "clients took messages while both sites were compared"


@dataclass(slots=True)
class Batch:
    """Copies that are deleted in one call, and how many of them have not been found yet. `counted` says that the
    counters of this start of the serving broker account for them."""

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
    """Copies of one queue that wait. `absent` ones were never found, at either site, after all tries."""

    deleted: int = 0
    absent: int = 0
    _batches: deque[Batch] = field(default_factory=deque)

    def add(self, ids: frozenset[str], by: Evidence, *, counted: bool = True) -> None:
        """Copies whose messages were consumed. Raises `NoEvidence` where nothing proves that."""
        listed = sorted(ids)
        for at in range(0, len(listed), BATCH_AT_MOST):
            part = Consumed(frozenset(listed[at : at + BATCH_AT_MOST]), by)
            self._batches.append(Batch(part, len(part.ids), counted))

    def due(self, now: float) -> Batch | None:
        """The next batch to delete, taken out: give it back by `answered` or `give_back`."""
        for _ in range(len(self._batches)):
            batch = self._batches.popleft()
            if batch.not_before <= now:
                return batch
            self._batches.append(batch)
        return None

    def answered(self, batch: Batch, removed: int, now: float) -> None:
        """So many of a batch were there. The broker does not say which: every id of the batch is tried again until none
        is missing."""
        removed = min(removed, batch.missing)
        self.deleted += removed
        batch.missing -= removed
        if batch.missing:
            batch.not_before = now + min(FIRST_AGAIN_S * 2**batch.tries, LAST_AGAIN_S)
            batch.tries += 1
            self._batches.append(batch)

    def give_back(self, batch: Batch) -> None:
        """Put a batch back that was not deleted: the next one to try."""
        self._batches.appendleft(batch)

    @property
    def overdue(self) -> bool:
        """Say whether something was tried so often that only a comparison of both sites can tell where it is."""
        return any(batch.tries >= OVERDUE for batch in self._batches)

    @property
    def tried(self) -> frozenset[str]:
        """The ids of batches of which some were not found."""
        return frozenset[str]().union(*(batch.ids for batch in self._batches if batch.tries))

    def nowhere(self, ids: frozenset[str]) -> None:
        """Let go of these: a comparison that showed all has found none of them."""
        left: deque[Batch] = deque()
        for batch in self._batches:
            if not batch.ids & ids:
                left.append(batch)
                continue
            rest = batch.ids - ids
            gone = max(0, batch.missing - len(rest))
            self.absent += gone
            if batch.missing > gone:
                left.append(Batch(Consumed(rest, batch.consumed.by), batch.missing - gone, batch.counted))
        self._batches = left

    def of_earlier_start(self) -> None:
        """Counters begin anew: they account for nothing that waits, and its evidence stays what it is."""
        for batch in self._batches:
            batch.counted = False

    def let_go(self) -> int:
        """Forget what a comparison finds again by this start's counters; returns how many that are."""
        found = sum(batch.missing for batch in self._batches if batch.counted)
        self._batches = deque(batch for batch in self._batches if not batch.counted)
        return found

    @property
    def counted(self) -> int:
        """How many that counters of this start account for still wait."""
        return sum(batch.missing for batch in self._batches if batch.counted)

    @property
    def ids(self) -> frozenset[str]:
        return frozenset[str]().union(*(batch.ids for batch in self._batches))

    def __len__(self) -> int:
        return sum(batch.missing for batch in self._batches)

    @property
    def held(self) -> int:
        """How many ids are kept in memory for it."""
        return sum(len(batch.ids) for batch in self._batches)


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison that the next look judges. `consumed` are the messages that clients had consumed by the look before
    it, `tried` the copies that were not found when they were to be deleted."""

    at: datetime
    found: Comparison
    consumed: int
    tried: frozenset[str]


@dataclass
class Queue:
    """Ids go from `announced` to `waiting`: a look that begins after they came confirms them. Ids that no look could
    confirm are `doubted`: their copies stay. `unproven` copies lay at the waiting site alone at the last comparison,
    and nothing showed that they were consumed."""

    pair: str
    name: str
    account: Account
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
    compared: Compared | None = None
    _judged: tuple[datetime | None, bool | None, str] = (None, None, "")
    _uncovered: int = 0

    def hear(self, id_: str) -> None:
        self.announced.append(id_)
        self.heard.count += 1
        if len(self.announced) + self.waiting.held + len(self.doubted) > AT_MOST:
            self.forget()
            self.doubted.clear()

    def forget(self) -> None:
        """Let go of all ids that a comparison finds again."""
        self.announced.clear()
        self.account.spent -= self.waiting.let_go()
        self.to_compare = True
        self.compared = None

    def suspects(self, counters: Counters) -> bool:
        """Say whether something left otherwise than by a client since the last look."""
        return self.vanished > 0 or self.account.vanished(counters) > 0

    def confirm(self, counters: Counters, announced: int, start: str) -> None:
        """No client's absence explains more: the first so many announced ids came before that look, and are believed
        where its counters cover them."""
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

    def looked_at(self, now: float, counters: Counters) -> None:
        """Take note of announcements that do not come: both sites are compared instead."""
        self.heard.looked(now, counters)
        if (unheard := self.heard.unheard(now)) is not None:
            self.unheard = unheard
            self.to_compare = self.to_compare or unheard > 0

    def doubt(self, counters: Counters) -> None:
        """Believe no announced id before somebody says so, because a message left otherwise than by a client."""
        self.vanished = max(self.vanished, self.account.vanished(counters))
        self.forget()

    def go_on(self, looks: Iterable[Counters]) -> None:
        """Somebody answers for it, or nobody has looked before."""
        self.account.accept(looks)
        self.vanished = self.excess = 0
        self.forget()

    def listed(self, at: datetime, found: Comparison, before: Counters) -> None:
        """Keep a comparison for the next look; `before` are the counters of the look before it."""
        self.compared = Compared(at, found, before.consumed(self.account.shown), self.waiting.tried)
        if found.here is not None:
            self.account.gave_back(found.here.shown)

    def judge(self, counters: Counters) -> bool:
        """Conclude what a comparison proves, now that counters were read after it; says whether it told anything.
        Where more copies lack than these counters cover, none goes, and the agent holds."""
        if (compared := self.compared) is None:
            return True
        self.compared, found = None, compared.found
        lacking = found.lacking - self.waiting.ids
        if not self.answered_for:
            lacking -= self.doubted
        if found.why_not:
            return self._not_told(compared, len(lacking), found.why_not)
        if not self.answered_for:
            if (more := len(lacking) - self.account.covers(counters)) > 0:
                self.vanished = self.excess = more
                self.forget()
                return self._not_told(compared, 0, "")
            counted = compared.consumed - self.account.spent
            if lacking and len(lacking) > counted:
                return self._not_told(compared, len(lacking), f"{self.name}: {MEANWHILE}")
            if lacking and found.here is not None and found.here.whole is not None:
                self.waiting.add(lacking, Covered(lacking, found.here.whole, counted))
        else:
            self.waiting.add(lacking, Word(lacking, GO_ON), counted=False)
            self.doubted.clear()
            self.answered_for = False
        self.account.settle(compared.consumed)
        self.waiting.nowhere(compared.tried - found.copies)
        self.doubted &= found.copies | set(self.announced)
        self.unproven, self.to_compare = 0, False
        if self.unheard:
            self.heard.begin()
        self._judged = (compared.at, True, "")
        return True

    def _not_told(self, compared: Compared, unproven: int, why_not: str) -> bool:
        self.unproven = unproven
        self._judged = (compared.at, False, why_not)
        return False

    @property
    def snapshot(self) -> QueueKept:
        at, whole, why_not = self._judged
        return QueueKept(
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
            whole=whole,
            why_not=why_not,
        )
