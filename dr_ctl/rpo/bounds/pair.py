"""The bounds of a pair: what its outflows take with them, in all and queue by queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from dr_ctl.core.model import Role
from dr_ctl.core.patterns import matches
from dr_ctl.rpo.bounds.apart import NOTHING_COMPARED, Comparison, Selected
from dr_ctl.rpo.bounds.direction import Direction, Part, added
from dr_ctl.rpo.bounds.gaps import evened
from dr_ctl.rpo.bounds.looks import NA, SHARED, Looks
from dr_ctl.rpo.bounds.staged import done_and_there
from dr_ctl.rpo.history.newest import Recent


@dataclass(frozen=True)
class Pair:
    """`left`: by queue what lost acknowledgements have left at the other site (None: not read); `delivering`: by queue
    the most that clients had; `apart`: the queues that the two sites do not hold alike; `unserved`: those that no
    outflow serves. A pair whose outflow was not read has no looks."""

    name: str
    looks: Looks | None
    messages: Direction | None = None
    acknowledgements: Direction | None = None
    left: Mapping[str, int | None] = None  # type: ignore[assignment]
    delivering: Mapping[str, int | None] = None  # type: ignore[assignment]
    apart: Comparison = NOTHING_COMPARED
    unserved: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, seen: Recent, end_us: int, selected: Selected) -> Self:
        looks = Looks.of(name, seen)
        if looks is None:
            return cls(name, None, left={}, delivering={})
        own = [flow for kind, flow in looks.outflows.names if kind == "acks" and flow != SHARED]
        left = {flow: done_and_there(looks, flow, seen.saw(Role.SERVING)) for flow in own}
        known = {flow: count for flow, count in left.items() if count is not None}
        even = evened(looks)
        messages, acknowledgements = (Direction(looks, even, counted, end_us, known) for counted in ("added", "acked"))
        delivering = {queue: _most_delivering(looks, place) for queue, place in looks.place.items()}
        apart = NOTHING_COMPARED
        if (then := seen.compared.get(name)) is not None and (both := Looks.of(name, then)) is not None:
            sent, acked = (Direction(both, both, counted, end_us, known) for counted in ("added", "acked"))
            apart = Comparison.of(sent, acked, selected)
        unserved = [queue for queue in looks.place if queue in selected and messages.outflow_of(queue) is None]
        return cls(name, looks, messages, acknowledgements, left, delivering, apart, unserved)

    def until(self, end_us: int) -> Pair:
        """The same, had the site ended then."""
        if self.messages is None or self.acknowledgements is None:
            return self
        messages, acknowledgements = (replace(each, end_us=end_us) for each in (self.messages, self.acknowledgements))
        return replace(self, messages=messages, acknowledgements=acknowledgements)

    @cached_property
    def lost(self) -> Part | None:
        whole, apart = None if self.messages is None else self.messages.whole, self.apart.lost()
        if self.messages is not None and self.unserved:
            whole = added([whole, self.messages.unserved(self.unserved)])
        return None if whole is None or apart is None else replace(whole, apart=_beside(apart, whole.at_most))

    @cached_property
    def duplicates(self) -> int | None:
        shipping = None if self.acknowledgements is None else self.acknowledgements.whole
        return _with(total([None if shipping is None else shipping.at_most, *self.delivering.values()]),
                     self.apart.duplicates())  # fmt: skip

    @property
    def lost_read_us(self) -> int | None:
        return _read_us(self.messages, self.lost)

    @property
    def duplicates_read_us(self) -> int | None:
        shipping = self.acknowledgements
        return _read_us(shipping, None if shipping is None else shipping.whole)

    @property
    def age_us(self) -> int | None:
        """Of the oldest that its outflows may take with them; of what lay here alone beside that nobody knows it."""
        apart = self.apart.lost()
        is_known = self.messages is not None and apart is not None and not apart[0]
        return self.messages.oldest_us if self.messages is not None and is_known else None

    def queue_lost(self, name: str) -> int | None:
        if self.messages is None:
            return None
        own = self.messages.by_queue.get(name, 0)
        if name in self.unserved:
            since = self.messages.unserved([name])
            own = None if since is None else since.at_most
        return _with(own, self.apart.lost([name]))

    def queue_duplicates(self, name: str) -> int | None:
        """At most what lay in the outflow, what clients acknowledged since and what they had in delivery."""
        if self.acknowledgements is None:
            return None
        apart = self.apart.duplicates([name])
        if name not in self.delivering:
            return _with(0, apart)
        own = _with(total([self.acknowledgements.by_queue.get(name), self.delivering[name]]), apart)
        return None if apart is None else least([own, self.duplicates])

    def class_lost(self, patterns: Sequence[str]) -> int | None:
        if self.messages is None:
            return None
        names = [name for name in {*self.apart.queues, *self.unserved} if matches(patterns, name)]
        own = self.messages.of_class(patterns)
        if unserved := [name for name in names if name in self.unserved]:
            since = self.messages.unserved(unserved)
            own = total([own, None if since is None else since.at_most])
        return _with(own, self.apart.lost(names))


def _beside(apart: tuple[int, int], at_most: int) -> int:
    """What counts beside a bound: what lay at one site alone beyond what was on its way; and the bound is no less than
    all that lay there alone."""
    beyond, alone = apart
    return max(beyond, alone - at_most)


def _with(at_most: int | None, apart: tuple[int, int] | None) -> int | None:
    return None if at_most is None or apart is None else at_most + _beside(apart, at_most)


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
