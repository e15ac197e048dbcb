"""The bounds of a pair: what its outflows take with them, in all and queue by queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.direction import Direction, Part
from dr_ctl.rpo.bounds.gaps import evened
from dr_ctl.rpo.bounds.looks import NA, SHARED, Looks
from dr_ctl.rpo.bounds.staged import done_and_there
from dr_ctl.rpo.history.newest import Recent


@dataclass(frozen=True)
class Pair:
    """`left`: by queue what lost acknowledgements have left at the other site (None: not read); `delivering`: by queue
    the most that clients had. A pair whose outflow was not read has no looks."""

    name: str
    looks: Looks | None
    messages: Direction | None = None
    acknowledgements: Direction | None = None
    left: Mapping[str, int | None] = None  # type: ignore[assignment]
    delivering: Mapping[str, int | None] = None  # type: ignore[assignment]

    @classmethod
    def of(cls, name: str, seen: Recent, end_us: int) -> Self:
        looks = Looks.of(name, seen)
        if looks is None:
            return cls(name, None, left={}, delivering={})
        own = [flow for kind, flow in looks.outflows.names if kind == "acks" and flow != SHARED]
        left = {flow: done_and_there(looks, flow, seen.saw(Role.SERVING)) for flow in own}
        known = {flow: count for flow, count in left.items() if count is not None}
        even = evened(looks)
        messages, acknowledgements = (Direction(looks, even, counted, end_us, known) for counted in ("added", "acked"))
        delivering = {queue: _most_delivering(looks, place) for queue, place in looks.place.items()}
        return cls(name, looks, messages, acknowledgements, left, delivering)

    @property
    def lost(self) -> Part | None:
        return None if self.messages is None else self.messages.whole

    @property
    def duplicates(self) -> int | None:
        shipping = None if self.acknowledgements is None else self.acknowledgements.whole
        return total([None if shipping is None else shipping.at_most, *self.delivering.values()])

    @property
    def lost_read_us(self) -> int | None:
        return _read_us(self.messages, self.lost)

    @property
    def duplicates_read_us(self) -> int | None:
        shipping = self.acknowledgements
        return _read_us(shipping, None if shipping is None else shipping.whole)

    @property
    def age_us(self) -> int | None:
        """Of the oldest that its outflows may take with them."""
        return None if self.messages is None else self.messages.oldest_us

    def queue_lost(self, name: str) -> int | None:
        if self.messages is None:
            return None
        return self.messages.by_queue.get(name, 0)

    def queue_duplicates(self, name: str) -> int | None:
        """At most what lay in the outflow, what clients acknowledged since and what they had in delivery."""
        if self.acknowledgements is None:
            return None
        if name not in self.delivering:
            return 0
        return least([total([self.acknowledgements.by_queue.get(name), self.delivering[name]]), self.duplicates])

    def class_lost(self, patterns: Sequence[str]) -> int | None:
        return None if self.messages is None else self.messages.of_class(patterns)


def _most_delivering(looks: Looks, place: int) -> int | None:
    counts = looks.queues.delivering[place]
    last = looks.last(looks.queues, place)
    return None if last is None or counts[last] == NA else max(0, int(counts.max()))


def _read_us(direction: Direction | None, part: Part | None) -> int | None:
    """The oldest of the looks that it rests on."""
    if direction is None:
        return None
    return direction.read_us if part is None else part.us


def total(parts: Iterable[int | None]) -> int | None:
    """The sum; an unknown part makes the sum unknown."""
    figures = list(parts)
    return None if None in figures else sum(each or 0 for each in figures)


def least(bounds: Iterable[int | None]) -> int | None:
    """Upper bounds of the same: the smallest one that is known."""
    return min((each for each in bounds if each is not None), default=None)
