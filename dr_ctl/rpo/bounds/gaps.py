"""Gaps between looks, evened: what was counted over a gap is no burst.

A monitor that was late, or not there, counts at its next look all that came meanwhile. Where that is about what the
readings around show to come in a time so long (a pace wanders: up to half as much again), it is spread evenly over the
gap. Where it is more, what is above the most that they show is a burst that nobody saw, and stays one. Where too few
readings are around to show what a burst is here, all of it stays one."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from dr_ctl.rpo.bounds.looks import Counts, Looks
from dr_ctl.rpo.bounds.stretch import LONGEST_US, Counters, Stretches
from dr_ctl.rpo.core.columns import NA, Flags, Floats, Ints
from dr_ctl.rpo.history.newest import US, gaps, longest_us, usual_us

WANDERS: Final = 1.5
SHOWN_US: Final = 10 * US
"""So much time without gaps shows what a burst is here."""
LEAST_US: Final = 2 * US
"""So much without one shows a pace."""


def evened(looks: Looks) -> Looks:
    """The looks with readings added in their gaps, for how much comes in a stretch of time and for nothing else."""
    at_once = np.flatnonzero(looks.us - looks.asked <= longest_us(looks.us))
    if len(looks.us) / 2 < len(at_once) < len(looks.us):
        looks = _kept(looks, at_once)
    is_one = looks.era[1:] == looks.era[:-1]
    is_gap = is_one & gaps(looks.us)
    if not is_gap.any() or np.diff(looks.us)[is_one & ~is_gap].sum() < SHOWN_US:
        return looks
    return _Evening(looks, is_gap, max(1, usual_us(looks.us))).looks()


def _kept(looks: Looks, places: Ints) -> Looks:
    """Some of the looks alone."""
    is_kept = np.isin(looks.whole, places)
    return Looks(
        looks.us[places],
        looks.asked[places],
        looks.era[places],
        _columns(looks.outflows, places),
        np.searchsorted(places, looks.whole[is_kept]),
        _columns(looks.queues, np.flatnonzero(is_kept)),
        _columns(looks.staged, np.flatnonzero(is_kept)),
        looks.met,
        looks.back,
    )


def _columns(counts: Counts, places: Ints) -> Counts:
    return Counts(counts.names, **{name: getattr(counts, name)[:, places] for name in _GRIDS})


_GRIDS: Final = tuple(each.name for each in fields(Counts) if each.name != "names")
_COUNTERS: Final = ("added", "acked", "queues_added", "queues_acked")


@dataclass(frozen=True)
class _Added:
    """Readings added in the gaps: when, in which gap, and which of them read queues. A long gap has some at its begin
    and some at its end, which are `later`: no stretch reaches from those to these."""

    us: Ints
    gap: Ints
    later: Flags
    whole: Flags


class _Evening:
    def __init__(self, looks: Looks, is_gap: Flags, usual_us: int) -> None:
        self._looks, self._usual_us = looks, usual_us
        self._gaps = np.flatnonzero(is_gap)
        # Readings without a gap between them belong together.
        self._run = looks.era + np.concatenate([[0], np.cumsum(is_gap)])
        self._added = self._readings()

    def looks(self) -> Looks:
        looks, added = self._looks, self._added
        us = np.concatenate([looks.us, added.us])
        order = np.argsort(us, kind="stable")
        place = np.empty(len(us), np.int64)
        place[order] = np.arange(len(us))
        count, of_whole = len(looks.us), np.flatnonzero(added.whole)
        everything = np.arange(count)
        shape = self._shape()
        asked = np.concatenate([looks.asked, added.us])[order]
        whole = np.concatenate([looks.whole, count + of_whole])
        in_order = np.argsort(place[whole])
        return Looks(
            us[order],
            asked,
            self._eras()[order],
            self._filled(looks.outflows, everything, np.arange(len(added.us)), order, shape),
            place[whole][in_order],
            self._filled(looks.queues, looks.whole, of_whole, in_order, shape),
            looks.staged,
            looks.met,
            looks.back,
        )

    def _readings(self) -> _Added:
        looks = self._looks
        whole_us = np.diff(looks.us[looks.whole])
        every = max(1, int(np.median(whole_us)) // self._usual_us) if len(whole_us) else 1
        parts = []
        for number, gap in enumerate(self._gaps):
            places = np.arange(1, -(-int(looks.us[gap + 1] - looks.us[gap]) // self._usual_us))
            most = LONGEST_US // self._usual_us + 2
            later = np.zeros(len(places), bool)
            if len(places) > 2 * most:
                places = np.concatenate([places[:most], places[-most:]])
                later = np.arange(len(places)) >= most
            us = looks.us[gap] + places * self._usual_us
            parts.append((us, np.full(len(us), number), later, places % every == 0))
        return _Added(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _eras(self) -> Ints:
        """Anew in the middle of a long gap, too."""
        looks, added = self._looks, self._added
        is_long = np.zeros(len(self._gaps), np.int64)
        is_long[added.gap[added.later]] = 1
        before = np.concatenate([[0], np.cumsum(is_long)])
        own = looks.era + before[np.searchsorted(self._gaps, np.arange(len(looks.us)))]
        return np.concatenate([own, looks.era[self._gaps[added.gap]] + before[added.gap] + added.later])

    def _shape(self) -> Floats:
        """How much was put into all outflows by each look and then by each reading that is added, where that was
        read."""
        looks, added = self._looks, self._added
        put = Counters.of(looks.outflows.added, looks.era)
        values = np.zeros(len(added.us))
        for number, gap in enumerate(self._gaps):
            own = added.gap == number
            share = (added.us[own] - looks.us[gap]) / (looks.us[gap + 1] - looks.us[gap])
            begin, end = float(put.low[:, gap].sum()), float(put.high[:, gap + 1].sum())
            values[own] = begin + (end - begin) * share
        return np.concatenate([put.low.sum(0).astype(float), values])

    def _filled(self, counts: Counts, columns: Ints, chosen: Ints, order: Ints, shape: Floats) -> Counts:
        """The counts of looks (`columns`) with those of the chosen readings, all in order of time."""
        grids = {}
        for name in _GRIDS:
            grid = getattr(counts, name)
            more = np.full((len(grid), len(chosen)), NA)
            if name in _COUNTERS and len(grid) and len(columns):
                counters, is_read = Counters.of(grid, self._looks.era[columns]), grid != NA
                grid = np.where(is_read, counters.low, NA)
                for number in range(len(self._gaps)):
                    own = self._added.gap[chosen] == number
                    more[:, own] = self._spread(counters, is_read, columns, number, chosen[own], shape)
            grids[name] = np.concatenate([grid, more], axis=1)[:, order]
        return Counts(counts.names, **grids)

    def _spread(
        self, counters: Counters, is_read: Flags, columns: Ints, number: int, chosen: Ints, shape: Floats
    ) -> Ints:
        """What counters were at readings in a gap. Their count is that of the time between the looks around that read
        them; when in that time they grew is told by the outflows."""
        looks, gap = self._looks, self._gaps[number]
        era = looks.era[columns] == looks.era[gap]
        before = int(np.searchsorted(columns, gap, "right")) - 1
        after = int(np.searchsorted(columns, gap + 1))
        if before < 0 or after == len(columns) or not (era[before] and era[after]):
            return np.full((len(counters.low), len(chosen)), NA)
        us, middle_us = self._added.us[chosen], (looks.us[gap] + looks.us[gap + 1]) // 2
        first, last = columns[before], columns[after]
        put = shape[last] - shape[first]
        share = (
            (shape[len(looks.us) + chosen] - shape[first]) / put
            if put > 0
            else (us - looks.us[first]) / (looks.us[last] - looks.us[first])
        )
        begin = counters.low[:, before]
        grown = np.maximum(0, counters.high[:, after] - begin)
        shown = self._shown(counters, columns, int(looks.us[last] - looks.us[first]))
        ordinary = np.where(grown <= WANDERS * shown, grown, shown)
        burst = (grown - ordinary)[:, None] * (us >= middle_us)
        spread = begin[:, None] + np.floor(ordinary[:, None] * np.clip(share, 0, 1)).astype(np.int64) + burst
        sides = np.arange(len(columns)) <= before, np.arange(len(columns)) >= after
        is_known = np.logical_and.reduce([(is_read & era & side).any(axis=1) for side in sides])
        return np.where(is_known[:, None], spread, NA)

    def _shown(self, counters: Counters, columns: Ints, us: int) -> Ints:
        """How much came at most in a time so long, by the pace of readings without a gap between them."""
        looks, run = self._looks, self._run[columns]
        shown = np.zeros(len(counters.low), np.int64)
        for number in np.unique(run):
            own = np.flatnonzero(run == number)
            if looks.us[columns[own[-1]]] - looks.us[columns[own[0]]] < LEAST_US:
                continue
            seen = Stretches(looks.asked[columns[own]], looks.us[columns[own]], run[own])
            came = np.zeros(len(counters.low), np.int64)
            for times, length_us in seen.parts(us) or ():
                begin, end = seen.around(length_us)
                came += times * counters.most(own[begin], own[end]).max(axis=1, initial=0)
            shown = np.maximum(shown, came)
        return shown
