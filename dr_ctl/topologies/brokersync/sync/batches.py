"""Copies that wait to be deleted at the waiting site, with the evidence for each: in batches, tried again until the
copy has come. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.topologies.common.consumed import Consumed, Evidence

AT_MOST: Final = 500
FIRST_AGAIN_S: Final = 0.25
LAST_AGAIN_S: Final = 4.0
OVERDUE: Final = 7  # tries, some twelve seconds: the agent then compares both sites


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
        for at in range(0, len(listed), AT_MOST):
            part = Consumed(frozenset(listed[at : at + AT_MOST]), by)
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
