"""The looks at outflows, and where each of them cuts history.

An outflow is first in, first out. Things ever put into it number `shipped + depth`, things ever shipped `shipped`; the
newest look at which the first stood no higher than the second stands now *cuts* history: whatever was sent up to that
look is at the other site, whatever was sent later may not be. Between that look and the one after it the cut lies where
what was put in passed what is shipped: the likely cut. A cut lies within one series: a restart counts anew, and so do
looks among which the clock was put back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import (
    ACKS,
    MIRROR,
    MIXED,
    NA,
    QUEUE,
    SITE,
    Columns,
    Flags,
    Ints,
    begins_of,
    last_true,
    place_of,
)

AWAY_US: Final = 600 * 1_000_000
"""What was not read for so long is away; its counters do not bridge that time."""
REACH: Final = 2
"""Counters that fall within one start of a broker tell of a clock that was put back: looks of two times lie among each
other there, and the way up from one to the other is no more an interval than the way down. So many on either side."""
NO_ROLE, SERVING, STANDBY, DOWN = range(4)


@dataclass(frozen=True, slots=True)
class Side:
    """Messages, or acknowledgements, in an outflow at each look; NA where these were not read.

    `cut_us` is the moment of the look that cuts history, `likely_us` that of the likely cut; NA where not known.
    """

    depth: Ints
    added: Ints
    shipped: Ints
    cut_us: Ints
    likely_us: Ints

    @property
    def known(self) -> Flags:
        found: Flags = self.depth != NA
        return found

    def most(self, begin: Ints, end: Ints) -> Ints:
        """At most in it from one look to another of its series: what lay there and what came; and no less than lay
        there in the end, where that is told by comparing both sites, which are never read in the same instant."""
        most: Ints = np.maximum(self.depth[begin] + self.added[end] - self.added[begin], self.depth[end])
        return most


@dataclass(frozen=True, slots=True)
class Outflows:
    """The looks at all outflows, by outflow (`flow`, a place in `keys`: pair and name) and time. `times`: moments at
    which something was looked at; `places`: outflow and moment in one number.

    `goes_on`: the series goes on from the look before; `fresh`: earlier looks do not count. Things in it were sent
    after `oldest_us`; `is_floor` where no cut was known so far, or since the clock was put back: things may be older.
    """

    keys: tuple[tuple[str, str], ...]
    times: Ints
    places: Ints
    flow: Ints
    us: Ints
    role: Ints
    link: Flags
    is_mixed: Flags
    goes_on: Flags
    fresh: Flags
    series: Ints
    sends: Side
    acks: Side
    oldest_us: Ints
    is_floor: Flags

    @classmethod
    def of(cls, rows: Columns) -> Self:
        """Take the rows of outflows and sites; others do not matter."""
        told = rows.take(np.flatnonzero((rows.kind != QUEUE) & (rows.kind != SITE) & (rows.pair >= 0)))
        many = len(rows.words) + 1
        codes, flow_of = np.unique(told.pair * many + told.name, return_inverse=True)
        times, moment = np.unique(told.us, return_inverse=True)
        places, at = np.unique(flow_of * len(times) + moment, return_inverse=True)
        flow, us = places // max(1, len(times)), times[places % max(1, len(times))]
        sides = [_read(told, kinds, at, len(places)) for kinds in ((MIRROR, MIXED), (ACKS, MIXED))]
        link, start = np.ones(len(places), bool), np.full(len(places), -1)
        np.logical_and.at(link, at, told.link)
        np.maximum.at(start, at, told.start)
        is_mixed, is_twice = (np.zeros(len(places), bool) for _ in range(2))
        is_mixed[at[told.kind == MIXED]] = True
        sends = sides[0][1]
        kind = np.where(is_mixed, MIXED, np.where(sends != NA, MIRROR, ACKS))
        first = np.where(sends != NA, sends, sides[1][1])
        is_twice[at[(told.kind == kind[at]) & (told.added != first[at])]] = True
        kept = np.flatnonzero(~(_missed(flow, us, sends != NA) | _missed(flow, us, sides[1][1] != NA)))
        flow, us, sides = flow[kept], us[kept], [side[:, kept] for side in sides]
        fresh, begins, was_put_back = _series(flow, us, start[kept], is_twice[kept], [*sides[0][1:], *sides[1][1:]])
        series: Ints = np.cumsum(begins)
        of_sends = of_acks = side_of(sides[0], us, series, begins)
        if not np.array_equal(sides[0], sides[1]):
            of_acks = side_of(sides[1], us, series, begins)
        known = last_true(of_sends.cut_us != NA, fresh)
        oldest = np.where(known >= 0, of_sends.cut_us[known], us[last_true(fresh, fresh)])
        return cls(
            keys=tuple((rows.words[code // many], rows.words[code % many]) for code in codes),
            times=times,
            places=places[kept],
            flow=flow,
            us=us,
            role=_roles(rows, (codes // many)[flow], us),
            link=link[kept],
            is_mixed=is_mixed[kept],
            goes_on=~begins,
            fresh=fresh,
            series=series,
            sends=of_sends,
            acks=of_acks,
            oldest_us=oldest,
            is_floor=(known < 0) | (known < last_true(was_put_back, fresh)),
        )

    def at(self, flow: Ints, moment: Ints) -> Ints:
        """The places of the looks at these outflows at these moments (places in `times`); -1 where there is none."""
        key = np.where((flow >= 0) & (moment >= 0), flow * len(self.times) + moment, -1)
        return place_of(self.places, key)

    def after(self, flow: Ints, us: Ints) -> Ints:
        """The place behind the last look at these outflows not after these moments."""
        if not len(self.us):
            return np.zeros(len(us), np.int64)
        first = int(self.us.min())
        span = int(max(self.us.max(), us.max(initial=first))) - first + 1
        return np.searchsorted(self.flow * span + self.us - first, flow * span + us - first, "right")

    @property
    def ends(self) -> Ints:
        """The place of the last look at each outflow."""
        return np.searchsorted(self.flow, np.arange(len(self.keys)), "right") - 1


def _read(told: Columns, kinds: tuple[int, ...], at: Ints, count: int) -> Ints:
    """Depth, added and shipped of one direction; NA where it was not read."""
    mine = np.flatnonzero(np.isin(told.kind, kinds))[::-1]  # of two rows of one look the first counts
    found = np.full((3, count), NA)
    found[:, at[mine]] = [column[mine] for column in (told.depth, told.added, told.removed)]
    return found


def _missed(flow: Ints, us: Ints, known: Flags) -> Flags:
    """Looks that did not get at a side which was read not long before or after: the side is not an empty one there."""
    new = begins_of(flow)
    ends = np.append(new[1:], True)[: len(flow)]
    before, after = last_true(known, new), len(flow) - 1 - last_true(known[::-1], ends[::-1])[::-1]
    near = (before >= 0) & (us - us[before] <= AWAY_US)
    return ~known & (near | ((after < len(flow)) & (us[np.minimum(after, len(flow) - 1)] - us <= AWAY_US)))


def _roles(rows: Columns, pair: Ints, us: Ints) -> Ints:
    """The role of the site at each look: told of the pair, or of all pairs where the row names none."""
    of_site = rows.take(np.flatnonzero(rows.kind == SITE))
    role = roles_of(rows.words)[of_site.name]
    times = np.unique(of_site.us)
    found = np.full(len(us), -1)
    for wanted in (pair, np.full(len(pair), -1)):
        key = (of_site.pair + 1) * len(times) + np.searchsorted(times, of_site.us)
        order = np.argsort(key, kind="stable")
        moment = place_of(times, us)
        at = place_of(key[order], np.where(moment >= 0, (wanted + 1) * len(times) + moment, -1))
        if len(order):
            found = np.where((found < 0) & (at >= 0), role[order][np.maximum(at, 0)], found)
    roles: Ints = np.maximum(found, NO_ROLE)
    return roles


def roles_of(words: Sequence[str]) -> Ints:
    """The role that each word names; -1, the last, names none."""
    known = {"serving": SERVING, "standby": STANDBY, "down": DOWN}
    return np.array([known.get(word, NO_ROLE) for word in words] + [NO_ROLE])


def _series(flow: Ints, us: Ints, start: Ints, is_twice: Flags, counters: list[Ints]) -> tuple[Flags, Flags, Flags]:
    """Where another outflow begins, or one that was away; where another series does; where a clock was put back."""
    count = len(flow)
    fell, comes = np.zeros(count, bool), np.zeros(count, bool)
    fresh = begins_of(flow)
    fresh[1:] |= us[1:] - us[:-1] > AWAY_US
    for counter in counters:
        fell[1:] |= (counter[1:] < counter[:-1]) & (counter[1:] != NA)
        comes[1:] |= (counter[1:] == NA) != (counter[:-1] == NA)
    is_new = fresh.copy()
    is_new[1:] |= start[1:] != start[:-1]
    back = (fell | is_twice) & ~is_new & (start >= 0)
    begins = is_new | fell | comes | back
    for place in np.flatnonzero(back).tolist():  # rare
        near = np.arange(max(0, place - REACH), min(count, place + REACH + 1))
        begins[near[flow[near] == flow[place]]] = True
    return fresh, begins, back


def side_of(told: Ints, us: Ints, series: Ints, begins: Flags) -> Side:
    """Of looks by series and time, with depth, added and shipped; `begins`: where another series does."""
    depth, added, shipped = told
    known = depth != NA
    put, out = np.where(known, shipped + depth, 0), np.where(known, shipped, 0)
    # Put each series on a height of its own: a single running maximum and a single search serve all of them.
    base = series * (int(put.max(initial=0)) + int(out.max(initial=0)) + 1)
    top = np.maximum.accumulate(base + put)
    here = np.arange(len(us))
    cut = np.minimum(np.searchsorted(top, base + out, "right") - 1, here)
    is_cut = known & (cut >= np.maximum.accumulate(np.where(begins, here, 0)))
    cut = np.maximum(cut, 0)
    after = np.minimum(cut + 1, here)
    past = (base + out - top[cut]) / np.maximum(1, top[after] - top[cut])
    likely_us = us[cut] + (np.clip(past, 0, 1) * (us[after] - us[cut])).astype(np.int64)
    return Side(depth, added, shipped, np.where(is_cut, us[cut], NA), np.where(is_cut, likely_us, NA))
