"""The counters of one queue at both sites, and the moments from which they tell what was consumed. Pure.

Nothing joins the brokers, so counters prove only together: as many messages came to both sites, and clients of the
serving one took at least as many as the other still has. That is counted from a checkpoint: a moment at which each
message that lay at one site alone was known by its id. A message that comes to one site alone after it ends the proof
until the next checkpoint. A broker's start is one, where its counters cover everything that lies in the queue.
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
    """Since its broker's start. `finished`: dispatched and in no hands any more; what was purged or moved never was."""

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
    """Its broker's start, what had come in and left by then, and the ids of the messages that lay `unmatched` there."""

    start: str
    entered: int = 0
    removed: int = 0
    expired: int = 0
    finished: int = 0
    unmatched: frozenset[str] = field(default=frozenset(), metadata=key("alone"))

    def goes_on(self, now: QueueAtSite) -> bool:
        """Say whether these counters can have become those: a queue that was made again, or was reset, counts anew."""
        counters = now.counters
        return self.start == now.start and self.removed <= counters.removed and self.expired <= counters.expired


@dataclass(frozen=True, slots=True)
class Checkpoint:
    local: Mark
    remote: Mark

    def ahead(self, here_entered: int, there_entered: int) -> int:
        return (there_entered - self.remote.entered) - (here_entered - self.local.entered)

    def consumed(self, local: Counters, peer: Counters) -> int:
        """How many messages clients consumed since then at least, of those that the waiting site has still."""
        expired = local.expired - self.local.expired
        left = local.removed - self.local.removed - expired
        # What expired was consumed by nobody, and it expires at both sites.
        gone = peer.removed - self.remote.removed - min(expired, peer.expired - self.remote.expired)
        return max(0, min(left, local.finished - self.local.finished) - gone)


@dataclass(frozen=True, slots=True)
class QueueAtSite:
    site: str
    start: str
    counters: Counters


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Of each queue of one pair, by site."""

    queues: Mapping[str, Mapping[str, Mark]]

    @classmethod
    def read(cls, documents: Mapping[str, str]) -> Checkpoints:
        """A document that cannot be read is none: the counters then prove less."""
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
        """With newer ones; one with too many ids is not kept, and the older one goes on."""
        kept = {
            name: marks
            for name, marks in queues.items()
            if sum(len(mark.unmatched) for mark in marks.values()) <= MAX_ALONE
        }
        return Checkpoints({**self.queues, **kept})

    def since(self, queue: str, local: QueueAtSite, peer: QueueAtSite) -> Checkpoint | None:
        """The newest moment from which these counters go on; None where there is none."""
        marks = self.queues.get(queue, {})
        first, second = marks.get(local.site), marks.get(peer.site)
        if first is not None and second is not None and first.goes_on(local) and second.goes_on(peer):
            return Checkpoint(first, second)
        if local.counters.cover_all and peer.counters.cover_all:
            return Checkpoint(Mark(local.start), Mark(peer.start))
        return None


@dataclass(frozen=True, slots=True)
class Counted:
    """A queue at both sites, by several readings shortly one after the other. `ahead`: how many more messages have come
    to the second site than to the first, at least and at most: as most readings show, or the middle half of them where
    they do not agree, as messages on their way to one of the sites differ each time. `taken_per_s`: how many leave, by
    site. `unmatched`: by site how many messages lie there and not at the other one, where both were listed."""

    first: QueueAtSite
    second: QueueAtSite
    ahead: tuple[int, int]
    taken_per_s: Mapping[str, float]
    unmatched: Mapping[str, int] = field(default_factory=dict)

    def level(self, first: Mark, second: Mark) -> bool:
        """Say whether as many messages may have come to both sites since these marks."""
        least, most = (first.entered - second.entered + count for count in self.ahead)
        return least <= 0 <= most
