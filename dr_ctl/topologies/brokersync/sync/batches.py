"""Ids of copies that wait to be deleted at the waiting site: in batches, tried again until the copy has come. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

AT_MOST: Final = 500
FIRST_AGAIN_S: Final = 0.25
LAST_AGAIN_S: Final = 4.0
OVERDUE: Final = 7  # tries, some twelve seconds: the agent then compares both sites are compared


@dataclass(slots=True)
class Batch:
    """Ids that are deleted in one call, and how many of them have not been found yet."""

    ids: tuple[str, ...]
    missing: int
    tries: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class Waiting:
    """Ids of one queue that wait. `absent` are copies that were never found, at either site, after all tries."""

    deleted: int = 0
    absent: int = 0
    _batches: deque[Batch] = field(default_factory=deque)

    def add(self, ids: Iterable[str]) -> None:
        """Ids whose consumption is believed."""
        waiting = tuple(ids)
        for at in range(0, len(waiting), AT_MOST):
            part = waiting[at : at + AT_MOST]
            self._batches.append(Batch(part, len(part)))

    def add_others(self, ids: frozenset[str]) -> None:
        """Add the ids that do not wait already."""
        self.add(ids.difference(*(batch.ids for batch in self._batches)))

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

    def replace(self, ids: Iterable[str]) -> None:
        """Take the ids that a comparison of both sites found: any other waiting id lies at neither site."""
        found = set(ids)
        gone = sum(max(0, batch.missing - len(found.intersection(batch.ids))) for batch in self._batches if batch.tries)
        self.absent += gone
        self._batches.clear()
        self.add(found)

    def clear(self) -> None:
        """Forget all: a comparison finds it again."""
        self._batches.clear()

    def __len__(self) -> int:
        return sum(batch.missing for batch in self._batches)

    @property
    def held(self) -> int:
        """How many ids are kept in memory for it."""
        return sum(len(batch.ids) for batch in self._batches)
