"""Gaps between looks, evened: what was counted over a gap is no burst.

A monitor that was late, or not there, counts at its next look all that came meanwhile. Where that is about what the
readings around show to come in a time so long (a pace wanders: up to half as much again), it is spread evenly over the
gap. Where it is more, what is above the most that they show is a burst that nobody saw, and stays one. Where too few
readings are around to show what a burst is here, all of it stays one."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.stretch import LONGEST_US, Counters, Seen, Stretches
from dr_ctl.rpo.core.columns import NA, Flags, Ints
from dr_ctl.rpo.history.newest import US, gaps, longest_us, usual_us

WANDERS: Final = 1.5
SHOWN_US: Final = 10 * US
"""So much time without gaps shows what a burst is here."""
LEAST_US: Final = 2 * US
"""So much without one shows a pace."""


def evened(seen: Seen) -> Seen:
    """What was seen, with readings added in its gaps, for how much comes in a stretch of time and for nothing else."""
    at_once = np.flatnonzero(seen.us - seen.asked <= longest_us(seen.us))
    if len(seen.us) / 2 < len(at_once) < len(seen.us):
        seen = seen.at(at_once)
    is_one = seen.era[1:] == seen.era[:-1]
    is_gap = is_one & gaps(seen.us)
    if not is_gap.any() or np.diff(seen.us)[is_one & ~is_gap].sum() < SHOWN_US:
        return seen
    return _Evening(seen, is_gap).seen()


@dataclass(frozen=True)
class _Gap:
    """Readings added after the look at a place: when, and which of them read queues. A long gap has some at its begin
    and some at its end, which are `later`: no stretch reaches from those to these."""

    at: int
    us: Ints
    is_whole: Flags
    later: Flags


class _Evening:
    def __init__(self, seen: Seen, is_gap: Flags) -> None:
        self._seen, usual_us_ = seen, max(1, usual_us(seen.us))
        # Readings without a gap between them belong together.
        self._run = seen.era + np.concatenate([[0], np.cumsum(is_gap)])
        whole_us = np.diff(seen.us[seen.whole])
        every = max(1, int(np.median(whole_us)) // usual_us_) if len(whole_us) else 1
        self._gaps = [self._gap(at, usual_us_, every) for at in np.flatnonzero(is_gap).tolist()]
        self._low, self._high = (each.sum(0).astype(float) for each in (seen.put.low, seen.put.high))

    def _gap(self, at: int, usual_us: int, every: int) -> _Gap:
        begin, end = self._seen.us[at : at + 2].tolist()
        places, most = np.arange(1, -(-(end - begin) // usual_us)), LONGEST_US // usual_us + 2
        later = np.zeros(len(places), bool)
        if len(places) > 2 * most:
            places, later = np.concatenate([places[:most], places[-most:]]), np.arange(2 * most) >= most
        return _Gap(at, begin + places * usual_us, places % every == 0, later)

    def seen(self) -> Seen:
        seen, every = self._seen, np.arange(len(self._seen.us))
        us = np.concatenate([seen.us, *(each.us for each in self._gaps)])
        order = np.argsort(us, kind="stable")
        own, eras = seen.era.copy(), []
        for gap in self._gaps:
            eras.append(own[gap.at] + gap.later)
            own[gap.at + 1 :] += gap.later.any()  # anew in the middle of a long gap
        asked, era = np.concatenate([seen.asked, us[len(every) :]]), np.concatenate([own, *eras])
        is_whole = np.concatenate([np.isin(every, seen.whole), *(each.is_whole for each in self._gaps)])
        of_whole = np.argsort(us[is_whole], kind="stable")
        added = [each.us for each in self._gaps], [each.us[each.is_whole] for each in self._gaps]
        flows = {name: self._filled(grid, every, added[0])[:, order] for name, grid in seen.flows.items()}
        queues = {name: self._filled(grid, seen.whole, added[1])[:, of_whole] for name, grid in seen.queues.items()}
        return Seen(us[order], asked[order], era[order], np.flatnonzero(is_whole[order]), flows, queues)

    def _filled(self, grid: Ints, columns: Ints, added: list[Ints]) -> Ints:
        """Counters at looks (`columns`), and then at the readings that are added."""
        counters, is_read = Counters.of(grid, self._seen.era[columns]), grid != NA
        more = (self._spread(counters, is_read, columns, *each) for each in zip(self._gaps, added, strict=True))
        return np.concatenate([np.where(is_read, counters.low, NA), *more], axis=1)

    def _spread(self, counters: Counters, is_read: Flags, columns: Ints, gap: _Gap, us: Ints) -> Ints:
        """What counters were at readings in a gap. Their count is that of the time between the looks around that read
        them; when in that time they grew is told by the outflows, between the looks at these evenly."""
        seen, low, at = self._seen, self._low, gap.at
        era = seen.era[columns] == seen.era[at]
        before, after = int(np.searchsorted(columns, at, "right")) - 1, int(np.searchsorted(columns, at + 1))
        if before < 0 or after == len(columns) or not (era[before] and era[after]):
            return np.full((len(counters.low), len(us)), NA)
        first, last = columns[before], columns[after]
        put, within = low[last] - low[first], (us - seen.us[at]) / (seen.us[at + 1] - seen.us[at])
        share = (us - seen.us[first]) / (seen.us[last] - seen.us[first])
        if put > 0:
            share = (low[at] + (self._high[at + 1] - low[at]) * within - low[first]) / put
        begin = counters.low[:, before]
        grown = np.maximum(0, counters.high[:, after] - begin)
        shown = self._shown(counters, columns, int(seen.us[last] - seen.us[first]))
        ordinary = np.where(grown <= WANDERS * shown, grown, shown)
        burst = (grown - ordinary)[:, None] * (us >= (seen.us[at] + seen.us[at + 1]) // 2)
        spread = begin[:, None] + np.floor(ordinary[:, None] * np.clip(share, 0, 1)).astype(np.int64) + burst
        sides = np.arange(len(columns)) <= before, np.arange(len(columns)) >= after
        is_known = np.logical_and.reduce([(is_read & era & side).any(axis=1) for side in sides])
        return np.where(is_known[:, None], spread, NA)

    def _shown(self, counters: Counters, columns: Ints, us: int) -> Ints:
        """How much came at most in a time so long, by the pace of readings without a gap between them."""
        seen, run = self._seen, self._run[columns]
        shown = np.zeros(len(counters.low), np.int64)
        for number in np.unique(run):
            own = np.flatnonzero(run == number)
            if seen.us[columns[own[-1]]] - seen.us[columns[own[0]]] < LEAST_US:
                continue
            stretches = Stretches(seen.asked[columns[own]], seen.us[columns[own]], run[own])
            came = np.zeros(len(counters.low), np.int64)
            for times, length_us in stretches.parts(us) or ():
                begin, end = stretches.around(length_us)
                came += times * counters.most(own[begin], own[end]).max(axis=1, initial=0)
            shown = np.maximum(shown, came)
        return shown
