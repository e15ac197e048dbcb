"""Figures of single queues, added up by scope and by look at the outflow that serves them."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, Flags, Floats, Ints
from dr_ctl.rpo.core.cut import AWAY_US, Outflows


@dataclass(frozen=True, slots=True)
class OfQueues:
    """Figures of single queues (`row`), NA where not known: at which place they count, in how many places up to it."""

    place: Ints
    row: Ints
    wide: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    is_floor: Flags


@dataclass(frozen=True, slots=True)
class Sums:
    """The queues of each scope (the first is the total) added up by look: of the interval that ends with it, or of the
    look itself. `queues`: how many were counted; `unknown` of a figure: at least one of them does not tell it."""

    queues: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    loss_unknown: Flags
    duplicates_unknown: Flags
    is_floor: Flags

    @classmethod
    def none(cls, scopes: int, looks: int) -> Self:
        nothing: list[Any] = [np.zeros((scopes, looks), kind) for kind in (*(np.int64,) * 4, *(np.bool_,) * 3)]
        return cls(*nothing)

    def add(self, rows: OfQueues, counts: Flags) -> None:
        """Add queues by scope and place. Those that were looked at alike are added up first, and spread over places
        then: an interval in which the outflow was looked at more often than the queue counts in each of its parts."""
        spread = Spread.of(rows.place, rows.wide, self.queues.shape[1])
        lost, twice = rows.loss != NA, rows.duplicates != NA
        for scope, mine in enumerate(counts):
            inside = mine[rows.row]
            sums = {
                "queues": inside | (scope == 0),  # queues left out count nothing in the total, and were read
                "loss": rows.loss * (inside & lost),
                "duplicates": rows.duplicates * (inside & twice),
                "loss_unknown": inside & ~lost,
                "duplicates_unknown": inside & ~twice,
                "is_floor": inside & rows.is_floor,
            }
            for name, values in sums.items():
                total = getattr(self, name)[scope]
                total += spread.over(np.bincount(spread.at, values, spread.many)).astype(total.dtype)
            some = np.flatnonzero(inside & lost & (rows.age > 0))
            age = np.zeros(spread.many, np.int64)
            np.maximum.at(age, spread.at[some], rows.age[some])
            np.maximum.at(self.age[scope], spread.place, age[spread.again])


@dataclass(frozen=True, slots=True)
class Spread:
    """Stretches of places: which of so `many` each row is of (`at`), how many places are in each (`wide`), and all
    places of all (`place`), each of the stretch `again`; a stretch is its place where none is wider than one."""

    at: Ints
    many: int
    wide: Ints
    again: Ints
    place: Ints
    looks: int

    @classmethod
    def of(cls, place: Ints, wide: Ints, looks: int) -> Self:
        """Of rows, the last place of each and how many places up to it; `looks` places in all."""
        widest = int(wide.max(initial=1))
        every = np.arange(looks)
        if widest <= 1:
            return cls(place, looks, np.ones(looks, np.int64), every, every, looks)
        stretch, at = np.unique(place * (widest + 1) + wide, return_inverse=True)
        last, wide = stretch // (widest + 1), stretch % (widest + 1)
        again = np.repeat(np.arange(len(wide)), wide)
        back = np.arange(len(again)) - np.repeat(np.cumsum(wide) - wide, wide)
        return cls(at, len(stretch), wide, again, last[again] - back, looks)

    def over(self, values: Any) -> Any:
        """What stretches hold, added up by place."""
        return np.bincount(self.place, values[self.again], self.looks)


UNEXPLAINED: Final = 0.01
"""Such a share of what went into an outflow may be told by no queue: noise between two counters."""


@dataclass(frozen=True, slots=True)
class Unread:
    """By scope and look (the end of an interval): how many queues lay there unread, for they were read before and
    after, or had something in them when they were read last (`lacking`); and how many were empty then, and may be gone
    (`lately`). `is_any`: the scope has a queue at that outflow at all."""

    lacking: Ints
    lately: Ints
    is_any: Flags

    @classmethod
    def none(cls, scopes: int, looks: int, outflows: int) -> Self:
        lacking, lately = (np.zeros((scopes, looks + 1), np.int64) for _ in range(2))
        return cls(lacking, lately, np.zeros((scopes, outflows), bool))

    def add(self, new: Flags, us: Ints, place: Ints, depth: Ints, counts: Flags, flows: Outflows) -> None:
        """Take the looks at queues, by queue and time."""
        flow = flows.flow[place]
        # Holes: read again after so long that no counter bridges it.
        hole = np.flatnonzero(~new & (us - np.concatenate([us[:1], us[:-1]]) > AWAY_US))
        last = np.flatnonzero(np.append(new[1:], True))
        full, stop = depth[last] > 0, flows.ends[flow[last]] + 1
        within = flows.after(flow[last], us[last] + AWAY_US)
        for scope, mine in enumerate(counts):
            some = hole[mine[hole]]
            _mark(self.lacking[scope], place[some - 1] + 1, place[some])
            some = mine[last]
            _mark(self.lacking[scope], place[last][some & full] + 1, stop[some & full])
            _mark(self.lately[scope], place[last][some & ~full] + 1, within[some & ~full])
            self.is_any[scope, flow[last[mine[last]]]] = True

    def flags(self, scope: int, flows: Outflows, read: Flags, put: Floats, told: Floats) -> Flags:
        """By look: whether some queue lay there unread, so that only the outflow bounds it. That is asked once per
        interval between looks that read queues (`read`); after the last of these nobody has looked. A queue that was
        empty and is read no more is gone where the others tell of all that goes into the outflow. `put`, `told`: by
        look, things that went in since the look before, and those that queues tell of."""
        looks = np.arange(len(flows.us))
        ends = flows.ends[flows.flow]
        # The look that ends the interval between two whole looks.
        whole = np.flatnonzero(read)
        place = np.searchsorted(whole, looks)
        at = np.append(whole, -1)[place]
        is_ended = (at >= 0) & (at <= ends)
        at = np.where(is_ended, at, 0)
        lacking, lately = (np.cumsum(each[scope])[:-1] > 0 for each in (self.lacking, self.lately))
        open_ = ~is_ended & self.is_any[scope][flows.flow]
        found: Flags = open_ | (is_ended & lacking[at])
        doubtful = is_ended & lately[at]
        if doubtful.any():
            run = np.cumsum(np.diff(np.concatenate([[0], doubtful.astype(np.int8)])) > 0)
            went, explained = (np.bincount(run, each * doubtful) for each in (put, told))
            found |= doubtful & (went - explained > UNEXPLAINED * went)[run]
        return found


def _mark(counts: Ints, begin: Ints, end: Ints) -> None:
    """Add one from each beginning to before each end."""
    good = end > begin
    np.add.at(counts, begin[good], 1)
    np.add.at(counts, end[good], -1)
