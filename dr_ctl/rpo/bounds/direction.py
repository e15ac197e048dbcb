"""The most that the outflows of a pair in one direction can take with them: what lay there at a look, and what came
since.

    lost    messages that lay there and in no client's hands, and those that were sent since
    twice   acknowledgements that lay there, and those that clients gave since

There is a sum from the last look that read the queues too, and a sum from the last look at the outflows; the smaller
one holds. At the first, of each queue no more is lost than lies in it, and than was sent to it since the moment up to
which all is shipped (the cut). At the second no more lies there than the outflow holds, and than at the first and was
put in since. What came since is bounded by the busiest stretch so long (`stretch`), gaps between looks evened (`gaps`):
by what was put into the outflows, and by what the queues counted from the look at them before to the look after, with
all that no queue tells of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, Self

import numpy as np

from dr_ctl.core.patterns import matches
from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.stretch import Counters, Stretches
from dr_ctl.rpo.core.columns import NA, SHARED, Flags, Ints
from dr_ctl.rpo.history.newest import US, WINDOW_US

SENDS: Final = ("mirror", "mixed")
ACKS: Final = ("acks", "mixed")
_NO_BOUND: Final = 1 << 60
_PACE: Final = 10
"""So many in the busiest minute are a pace."""


@dataclass(frozen=True, slots=True)
class Part:
    """At most so many: `there` at the look at `us`, and `since` in the `took_us` from its question to the end. It goes
    on by `rate` a second. `apart`: what lay at one site alone beside that."""

    there: int
    since: int
    us: int
    took_us: int
    rate: float
    apart: int = 0

    @property
    def at_most(self) -> int:
        return self.there + self.since + self.apart


@dataclass(frozen=True)
class Queues:
    """Queues in groups: each has the number of its group, -1 is in none."""

    group: Ints
    count: int


@dataclass(frozen=True)
class _Counted:
    """What looks counted: put into the outflows, and by queue of the direction's `own` kind and of the `other`."""

    looks: Looks
    put: Counters
    own: Counters
    other: Counters

    @classmethod
    def of(cls, looks: Looks, counted: str, other: str) -> Self:
        era = looks.era[looks.whole]
        by_queue = (Counters.of(getattr(looks.queues, name), era) for name in (counted, other))
        return cls(looks, Counters.of(looks.outflows.added, looks.era), *by_queue)


@dataclass(frozen=True)
class Direction:
    """The outflows of messages, or of acknowledgements, up to the site's end. `evened`: the looks with their gaps
    evened. `left`: by queue acknowledgements lost earlier, whose messages lie at the other site."""

    looks: Looks
    evened: Looks
    counted: Literal["added", "acked"]
    end_us: int
    left: Mapping[str, int]

    @cached_property
    def rows(self) -> Sequence[int]:
        """Its outflows, by their places."""
        kinds = SENDS if self.counted == "added" else ACKS
        return [row for row, (kind, _) in enumerate(self.looks.outflows.names) if kind in kinds]

    @property
    def read_us(self) -> int | None:
        """The oldest of the last looks at its outflows."""
        return min((int(self.looks.us[self._last[row]]) for row in self.rows), default=None)

    @cached_property
    def whole(self) -> Part | None:
        """The bound of all. None: not known."""
        everything = Queues(np.zeros(len(self.looks.queues.names), np.int64), 1)
        return added([parts[0] for parts in self._by_age(self.rows, everything)])

    @cached_property
    def by_queue(self) -> Mapping[str, int | None]:
        """The bound of each queue that an outflow serves."""
        found: dict[str, int | None] = {}
        for row in self.rows:
            own = self._queues[row]
            group = np.full(len(self.looks.queues.names), -1)
            group[own] = np.arange(len(own))
            [parts] = self._by_age([row], Queues(group, len(own)))
            for place, part in zip(own, parts, strict=True):
                found[self.looks.queues.names[place][1]] = None if part is None else part.at_most
        return found

    def of_class(self, patterns: Sequence[str]) -> int | None:
        """The bound of the queues that the patterns name; without such a queue, of all that came since the last
        look."""
        names = [name for _, name in self.looks.queues.names]
        is_in = np.array([matches(patterns, name) for name in names], bool)
        rows = [row for row in self.rows if is_in[self._queues[row]].any()]
        if not rows:
            place = min((self._last[row] for row in self.rows), default=None)
            nothing = Queues(np.full(len(names), -1), 1)
            return (
                None
                if place is None
                else _figure(self._from(self.rows, place, np.zeros(1, np.int64), nothing, of_all=True)[0])
            )
        return _figure(added([parts[0] for parts in self._by_age(rows, Queues(np.where(is_in, 0, -1), 1))]))

    def unserved(self, names: Sequence[str]) -> Part | None:
        """What came to some queues since, by their own counts: no outflow serves them."""
        looks = self._paced.looks
        whole, place = looks.whole, int(self.looks.whole[-1])
        stretches = Stretches(looks.asked[whole], looks.us[whole], looks.era[whole])
        took_us = self.end_us - int(self.looks.asked[place])
        parts = stretches.parts(took_us)
        if parts is None:
            return None
        own = self._paced.own.together([looks.place[name] for name in names])

        def most(us: int) -> int:
            return int(own.most(*stretches.around(us))[0].max(initial=0))

        longest_us = stretches.longest_us
        rate = most(longest_us) * US / longest_us if longest_us else 0.0
        since = sum(times * most(us) for times, us in parts)
        if not self._is_shown(rate * longest_us / US, took_us):
            return None
        return Part(0, since, int(self.looks.us[place]), took_us, rate)

    def outflow_of(self, name: str) -> int | None:
        """The outflow of a queue: its own, or the one of all queues without."""
        return self._by_name.get(name, self._by_name.get(SHARED))

    def cut(self, row: int, place: int) -> int | None:
        """The last look before which all was put in that is shipped at a look."""
        counts, era = self.looks.outflows, self.looks.era
        own = np.flatnonzero((era[: place + 1] == era[place]) & (counts.added[row, : place + 1] != NA))
        shipped = counts.added[row, place] - counts.depth[row, place]
        done = own[(counts.added[row, own] <= shipped) | (counts.depth[row, own] == 0)]
        return int(done[-1]) if len(done) else None

    @property
    def oldest_us(self) -> int | None:
        """The greatest possible age of what its outflows take with them."""
        cuts = [self.cut(row, self._last[row]) for row in self.rows]
        known = [int(self.looks.asked[each]) for each in cuts if each is not None]
        return self.end_us - min(known) if known and len(known) == len(cuts) else None

    def _by_age(self, rows: Sequence[int], queues: Queues) -> Iterable[Sequence[Part | None]]:
        """The bounds of each group, for outflows that were last read by one look."""
        for place in dict.fromkeys(self._last[row] for row in rows):
            yield self._least([row for row in rows if self._last[row] == place], place, queues)

    def _least(self, rows: Sequence[int], place: int, queues: Queues) -> Sequence[Part | None]:
        looks, counts = self.looks, self.looks.outflows
        read = [at for at in looks.whole[looks.whole <= place] if (counts.depth[rows, at] != NA).all()]
        depths = {row: np.full(queues.count, counts.depth[row, place]) for row in rows}
        parts = []
        if read:
            at = int(read[-1])
            there = {row: self._there(row, at, queues) for row in rows}
            parts.append(self._from(rows, at, self._summed(there), queues))
            if looks.era[at] == looks.era[place]:
                put = counts.added[:, place] - counts.added[:, at]
                depths = {row: np.minimum(depths[row], there[row] + put[row]) for row in rows}
        parts.append(self._from(rows, place, self._summed(depths), queues))
        known = [[each for each in of_group if each is not None] for of_group in zip(*parts, strict=True)]
        return [min(each, key=lambda part: part.at_most, default=None) for each in known]

    def _summed(self, there: Mapping[int, Ints]) -> Ints:
        """Of outflows together. No fewer acknowledgements than were lost before."""
        names, is_acks = self.looks.outflows.names, self.counted == "acked"
        parts = [
            np.maximum(each, self.left.get(names[row][1], 0)) if is_acks and names[row][0] == "acks" else each
            for row, each in there.items()
        ]
        total: Ints = np.sum(parts, axis=0)
        return total

    def _there(self, row: int, place: int, queues: Queues) -> Ints:
        """At a look at the queues: no more than the outflow held, and than was counted since the cut; of messages no
        more than lay in the queues; and all that no queue tells of."""
        looks, counts, own = self.looks, self.looks.outflows, self._queues[row]
        depth = np.full(queues.count, counts.depth[row, place])
        now = int(np.searchsorted(looks.whole, place))
        if counts.names[row][0] == "acks" or not len(own) or (looks.queues.depth[own, now] == NA).any():
            return depth
        in_era = np.flatnonzero(looks.era[looks.whole] == looks.era[place])
        cut = self.cut(row, place)
        begun = in_era[:0] if cut is None else in_era[looks.us[looks.whole[in_era]] <= looks.asked[cut]]
        strange = self._strange(row, int(begun[-1] if len(begun) else in_era[0]), now)
        lying = looks.queues.depth[own, now]
        since = self._read.own.most(int(begun[-1]), now)[own] if len(begun) else lying
        if not len(begun) and (strange or self.counted == "acked" or in_era[0] == now):
            return depth  # what lay there before is anybody's
        since = np.minimum(since, lying) if self.counted == "added" else since
        is_in = queues.group[own] >= 0
        of_groups = np.bincount(queues.group[own][is_in], since[is_in], queues.count).astype(np.int64)
        there: Ints = np.minimum(depth, of_groups + strange)
        return there

    def _strange(self, row: int, then: int, now: int) -> int:
        """How much was put in between two looks at the queues that none of them tells of."""
        added, whole = self.looks.outflows.added[row], self.looks.whole
        return max(
            0, int(added[whole[now]] - added[whole[then]]) - int(self._told(self._read, [row]).least(then, now)[0])
        )

    def _from(
        self, rows: Sequence[int], place: int, there: Ints, queues: Queues, *, of_all: bool = False
    ) -> Sequence[Part | None]:
        """What lay there at a look and what came since, of each group. `of_all`: by what was put in alone."""
        took_us = self.end_us - int(self.looks.asked[place])
        stretches = self._stretches.parts(took_us)
        if stretches is None:
            return [None] * queues.count
        sent = None if of_all else self._paced.own.grouped(queues.group, queues.count)
        zero = np.zeros(queues.count, np.int64)
        since = sum((times * self._most(rows, each_us, sent, queues) for times, each_us in stretches), zero)
        longest_us = self._stretches.longest_us
        rate = self._most(rows, longest_us, sent, queues) * US / longest_us if longest_us else zero
        us = int(self.looks.us[place])
        return [
            Part(int(n), int(m), us, took_us, float(r)) if self._is_shown(r * longest_us / US, took_us) else None
            for n, m, r in zip(there, since, rate, strict=True)
        ]

    def _is_shown(self, most: float, took_us: int) -> bool:
        """Whether the pace of the minutes before, the most in the busiest one, says something of a time in which nobody
        read: of one no longer than they were, or where it was a pace and no single messages."""
        looks = self._paced.looks
        return most >= _PACE or took_us <= max(WINDOW_US, int(looks.us[-1] - looks.us[0]))

    def _most(self, rows: Sequence[int], us: int, sent: Counters | None, queues: Queues) -> Ints:
        """In any stretch so long: no more than was put in, and than the queues tell of and what they do not."""
        begin, end = self._stretches.around(us)
        put, whole = self._paced.put.together(rows), self._paced.looks.whole
        most = np.minimum(put.most(begin, end)[0], self._by_sums(rows, put, begin, end))
        if sent is None:
            return np.full(queues.count, most.max(initial=0))
        before, after, is_told = self._enclosing(whole, begin, end)
        # Stretches between the same looks at queues differ in what was put in alone: the most of it counts.
        pairs, number = np.unique(np.stack([before, after]), axis=1, return_inverse=True)
        of_pairs = np.zeros(pairs.shape[1], np.int64)
        np.maximum.at(of_pairs, number.reshape(-1), most[is_told])
        before, after = pairs
        told = self._told(self._paced, rows)
        strange = np.maximum(0, put.most(whole[before], whole[after])[0] - told.least(before, after)[0])
        told_most = np.minimum(of_pairs, sent.most(before, after) + strange).max(axis=1, initial=0)
        found: Ints = np.maximum(told_most, most[~is_told].max(initial=0))
        return found

    def _by_sums(self, rows: Sequence[int], put: Counters, begin: Ints, end: Ints) -> Ints:
        """By what the queues count together, where all looks that read them wrote it down; else no bound."""
        counts = self._paced.looks.outflows
        own, other = (getattr(counts, f"queues_{name}")[list(rows)] for name in (self.counted, self._other_counted))
        places = np.flatnonzero((own != NA).all(0) & (other != NA).all(0))
        found = np.full(len(begin), _NO_BOUND)
        before, after, is_told = self._enclosing(places, begin, end)
        before, after = places[before], places[after]
        grown, others = (each[:, after].sum(0) - each[:, before].sum(0) for each in (own, other))
        found[is_told] = grown + np.maximum(0, put.most(before, after)[0] - grown - others)
        return found

    def _enclosing(self, places: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Flags]:
        """Of looks at some places the last before and the first after each stretch, and which stretches have both in
        one start of the broker."""
        before, after = np.searchsorted(places, begin, "right") - 1, np.searchsorted(places, end)
        is_told = (before >= 0) & (after < len(places))
        era = self._paced.looks.era[places]
        is_told[is_told] = era[before[is_told]] == era[after[is_told]]
        return before[is_told], after[is_told], is_told

    def _told(self, counted: _Counted, rows: Sequence[int]) -> Counters:
        """What the queues count of what is put into outflows: of a mixed one messages and acknowledgements."""
        own = [each for row in rows for each in self._queues[row]]
        mixed = [each for row in rows if self.looks.outflows.names[row][0] == "mixed" for each in self._queues[row]]
        one, other = counted.own.together(own), counted.other.together(mixed)
        return Counters(one.low + other.low, one.high + other.high)

    @cached_property
    def _by_name(self) -> Mapping[str, int]:
        return {self.looks.outflows.names[row][1]: row for row in self.rows}

    @cached_property
    def _last(self) -> Mapping[int, int]:
        """By outflow the place of the last look that read it."""
        depth = self.looks.outflows.depth
        return {row: int(np.flatnonzero(depth[row] != NA)[-1]) for row in self.rows}

    def queues_of(self, row: int) -> Sequence[int]:
        """The places of the queues that an outflow serves."""
        return self._queues[row]

    @cached_property
    def _queues(self) -> Mapping[int, Sequence[int]]:
        """By outflow the places of the queues that it serves."""
        served: dict[int, list[int]] = {row: [] for row in self.rows}
        for place, (_, name) in enumerate(self.looks.queues.names):
            if (row := self.outflow_of(name)) is not None:
                served[row].append(place)
        return served

    @cached_property
    def _stretches(self) -> Stretches:
        looks = self._paced.looks
        return Stretches(looks.asked, looks.us, looks.era)

    @cached_property
    def _read(self) -> _Counted:
        return _Counted.of(self.looks, self.counted, self._other_counted)

    @cached_property
    def _paced(self) -> _Counted:
        return _Counted.of(self.evened, self.counted, self._other_counted)

    @property
    def _other_counted(self) -> str:
        return "acked" if self.counted == "added" else "added"


def _figure(part: Part | None) -> int | None:
    return None if part is None else part.at_most


def added(parts: Sequence[Part | None]) -> Part | None:
    """The sum of the parts, as of their oldest look; an unknown part makes the sum unknown."""
    known = [each for each in parts if each is not None]
    if not known or len(known) < len(parts):
        return None
    there, since, apart = (sum(getattr(each, name) for each in known) for name in ("there", "since", "apart"))
    us, took_us = min(each.us for each in known), max(each.took_us for each in known)
    return Part(there, since, us, took_us, sum(each.rate for each in known), apart)
