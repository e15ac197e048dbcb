"""The counters of one queue at both sites, and the moments from which they tell what was consumed. Pure.

No link joins the brokers, so only the counters of both prove anything: as many messages came to both sites, and clients
of the serving one took at least as many as the other still has. Counting begins at a checkpoint, a moment at which each
message that lay at one site alone was known by its id. A message that comes to one site alone later ends the proof
until the next checkpoint. A broker's start is a checkpoint if its counters cover everything that lies in the queue.
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
MAX_ALONE: Final = 20_000  # ids of one queue in that document


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a queue since its broker's start. A `finished` message was dispatched, and no client holds it any
    more; one that was purged or moved was never dispatched."""

    depth: int
    added: int
    removed: int
    expired: int
    finished: int

    @property
    def cover_all(self) -> bool:
        """Say whether every message that lay in the queue since that start came in since."""
        return self.depth == self.added - self.removed


EMPTY: Final = Counters(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """A queue at one site at a checkpoint: its broker's start, how many messages had come in and left by then, and the
    ids of the messages that lay `unmatched` there."""

    start: str
    entered: int = 0
    removed: int = 0
    expired: int = 0
    finished: int = 0
    unmatched: frozenset[str] = field(default=frozenset(), metadata=key("alone"))

    def goes_on(self, now: QueueAtSite) -> bool:
        """Say whether the present counters continue these: a queue that was re-created, or was reset, counts anew."""
        counters = now.counters
        return self.start == now.start and self.removed <= counters.removed and self.expired <= counters.expired


@dataclass(frozen=True, slots=True)
class Checkpoint:
    local: Mark
    remote: Mark

    def ahead(self, here_entered: int, there_entered: int) -> int:
        return (there_entered - self.remote.entered) - (here_entered - self.local.entered)

    def consumed(self, local: Counters, peer: Counters) -> int:
        """Count the messages at least that clients consumed since then, of those that the standby still has."""
        expired = local.expired - self.local.expired
        left = local.removed - self.local.removed - expired
        # Nobody consumed an expired message, and the message expires at both sites.
        gone = peer.removed - self.remote.removed - min(expired, peer.expired - self.remote.expired)
        return max(0, min(left, local.finished - self.local.finished) - gone)


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
        """Read the document; the counters prove less where it cannot be read."""
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

    def noted(self, queues: Mapping[str, Mapping[str, Mark]]) -> Checkpoints:
        """Add newer marks. Marks with too many ids are left out, and the older ones go on."""
        kept = {
            name: marks
            for name, marks in queues.items()
            if sum(len(mark.unmatched) for mark in marks.values()) <= MAX_ALONE
        }
        return Checkpoints({**self.queues, **kept})

    def since(self, queue: str, local: QueueAtSite, peer: QueueAtSite) -> Checkpoint | None:
        """Find the newest moment from which these counters go on, if any."""
        marks = self.queues.get(queue, {})
        first, second = marks.get(local.site), marks.get(peer.site)
        if first is not None and second is not None and first.goes_on(local) and second.goes_on(peer):
            return Checkpoint(first, second)
        if local.counters.cover_all and peer.counters.cover_all:
            return Checkpoint(Mark(local.start), Mark(peer.start))
        return None


@dataclass(frozen=True, slots=True)
class Counted:
    """A queue at both sites, by several readings shortly one after the other. `ahead` says how many more messages have
    come to the second site than to the first, at least and at most. Most readings agree on that number; otherwise the
    middle half of them counts, as the messages on their way to one site differ each time. By site, `taken_per_s`
    messages leave, and `unmatched` ones lie there and not at the other site, where both were listed."""

    first: QueueAtSite
    second: QueueAtSite
    ahead: tuple[int, int]
    taken_per_s: Mapping[str, float]
    unmatched: Mapping[str, int] = field(default_factory=dict)

    def level(self, first: Mark, second: Mark) -> bool:
        """Say whether as many messages may have come to both sites since these marks."""
        least, most = (first.entered - second.entered + count for count in self.ahead)
        return least <= 0 <= most
