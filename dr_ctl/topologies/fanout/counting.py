"""The counters of one queue at both sites, and the checkpoints since which they prove what was consumed.

No link connects the brokers, so only the counters of both prove anything: the same number of messages was added at both
sites, and clients of the serving site took at least as many as the other still has. Counting starts at a checkpoint, a
moment at which each message at one site only was known by its id. A message that is later added at one site only ends
the proof until the next checkpoint. A broker's start is a checkpoint if its counters cover all messages in the queue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dr_ctl.core.document import document, key, read
from dr_ctl.core.errors import UNREADABLE
from dr_ctl.topologies.common.calls import OWN

CHECKPOINTS: Final = f"{OWN}checkpoints"
"""The document of a pair, at the site whose name comes first."""
MAX_UNMATCHED: Final = 20_000  # ids of one queue in that document


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a queue since its broker's start. A `finished` message was dispatched, and no client holds it; a
    purged or moved message was never dispatched."""

    depth: int
    added: int
    removed: int
    expired: int
    finished: int

    @property
    def cover_queue(self) -> bool:
        """Say whether all messages of the queue were added since that start."""
        return self.depth == self.added - self.removed


EMPTY: Final = Counters(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A queue at one site at a checkpoint: its broker's start, the numbers of messages that had entered and left by
    then, and the ids of its `unmatched` messages, which were at this site only."""

    start: str
    entered: int = 0
    removed: int = 0
    expired: int = 0
    finished: int = 0
    unmatched: frozenset[str] = field(default=frozenset(), metadata=key("alone"))

    def is_continued_by(self, queue: QueueAtSite) -> bool:
        """Say whether the present counters continue these: a re-creation or a reset starts them from zero."""
        counters = queue.counters
        return self.start == queue.start and self.removed <= counters.removed and self.expired <= counters.expired


@dataclass(frozen=True, slots=True)
class Checkpoint:
    local: Mark
    remote: Mark

    def ahead(self, local_entered: int, remote_entered: int) -> int:
        return (remote_entered - self.remote.entered) - (local_entered - self.local.entered)

    def consumed(self, local: Counters, peer: Counters) -> int:
        """Return a lower bound of the messages that clients consumed since then and that the standby still has."""
        expired = local.expired - self.local.expired
        removed = local.removed - self.local.removed - expired
        # No client consumed an expired message, and it expires at both sites.
        removed_at_peer = peer.removed - self.remote.removed - min(expired, peer.expired - self.remote.expired)
        return max(0, min(removed, local.finished - self.local.finished) - removed_at_peer)


@dataclass(frozen=True, slots=True)
class QueueAtSite:
    site: str
    start: str
    counters: Counters


@dataclass(frozen=True, slots=True)
class Checkpoints:
    queues: Mapping[str, Mapping[str, Mark]]

    @classmethod
    def read(cls, documents: Mapping[str, str]) -> Checkpoints:
        """Read the document. If it cannot be read, the counters prove less."""
        try:
            return read(cls, {"queues": json.loads(documents.get(CHECKPOINTS, "{}"))})
        except UNREADABLE:
            return cls({})

    @property
    def text(self) -> str:
        rows = {
            queue: {site: {**document(mark), "alone": sorted(mark.unmatched)} for site, mark in marks.items()}
            for queue, marks in self.queues.items()
        }
        return json.dumps(rows, sort_keys=True)

    def with_marks(self, queues: Mapping[str, Mapping[str, Mark]]) -> Checkpoints:
        """Add newer marks. If marks have too many ids, the older ones stay."""
        new = {
            name: marks
            for name, marks in queues.items()
            if sum(len(mark.unmatched) for mark in marks.values()) <= MAX_UNMATCHED
        }
        return Checkpoints({**self.queues, **new})

    def since(self, queue: str, local: QueueAtSite, peer: QueueAtSite) -> Checkpoint | None:
        """Find the newest checkpoint that these counters continue, if any."""
        marks = self.queues.get(queue, {})
        first, second = marks.get(local.site), marks.get(peer.site)
        if first is not None and second is not None and first.is_continued_by(local) and second.is_continued_by(peer):
            return Checkpoint(first, second)
        if local.counters.cover_queue and peer.counters.cover_queue:
            return Checkpoint(Mark(local.start), Mark(peer.start))
        return None


@dataclass(frozen=True, slots=True)
class Counted:
    """A queue at both sites, by several readings in quick succession. `ahead` is the smallest and the largest number of
    messages by which the second site is ahead of the first: the number of most readings, or else the range of their
    middle half, because the messages under way change each time. By site, `taken_per_s` messages leave, and `unmatched`
    ones are at that site only, if both were listed."""

    first: QueueAtSite
    second: QueueAtSite
    ahead: tuple[int, int]
    taken_per_s: Mapping[str, float]
    unmatched: Mapping[str, int] = field(default_factory=dict)

    def level(self, first: Mark, second: Mark) -> bool:
        """Say whether the same number of messages may have been added at both sites since these marks."""
        least, most = (first.entered - second.entered + count for count in self.ahead)
        return least <= 0 <= most
