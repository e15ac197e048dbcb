"""How much came at most in a stretch of time: as much as in the busiest stretch of that length of the last minutes.

Nothing is averaged: where a stretch begins and ends between two looks, all that was counted from the look before it to
the look after it counts, so a burst counts whole wherever it fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from dr_ctl.rpo.core.columns import NA, Ints
from dr_ctl.rpo.history.newest import US

LONGEST_US: Final = 60 * US
"""A longer stretch is made of several: few of its length lie in the last minutes."""


@dataclass(frozen=True)
class Seen:
    """What looks counted, as grids by their names: by outflow (`flows`), and by queue at the looks that read queues
    (`whole`: their places). Counters are compared within one era, a start of the broker."""

    us: Ints
    asked: Ints
    era: Ints
    whole: Ints
    flows: Mapping[str, Ints]
    queues: Mapping[str, Ints]

    @cached_property
    def put(self) -> Counters:
        """What was put into each outflow."""
        return Counters.of(self.flows["added"], self.era)

    @cached_property
    def counted(self) -> Mapping[str, Counters]:
        """What each queue counted, at the looks that read queues."""
        return {name: Counters.of(grid, self.era[self.whole]) for name, grid in self.queues.items()}

    @cached_property
    def stretches(self) -> Stretches:
        return Stretches(self.asked, self.us, self.era)

    def at(self, places: Ints) -> Seen:
        """Some of the looks alone."""
        is_kept = np.isin(self.whole, places)
        return Seen(
            self.us[places],
            self.asked[places],
            self.era[places],
            np.searchsorted(places, self.whole[is_kept]),
            {name: grid[:, places] for name, grid in self.flows.items()},
            {name: grid[:, is_kept] for name, grid in self.queues.items()},
        )


@dataclass(frozen=True)
class Stretches:
    """Stretches between looks: `asked`, `us` and `era` by look."""

    asked: Ints
    us: Ints
    era: Ints

    def parts(self, us: int) -> Sequence[tuple[int, int]] | None:
        """Stretches that a time is made of: how many, and how long. None where none of them has looks around it, or
        time ran backwards."""
        if us < 0 or (us and self.longest_us <= 0):
            return None
        times, rest_us = divmod(us, self.longest_us) if us else (0, 0)
        return [(count, length) for count, length in ((times, self.longest_us), (1, rest_us)) if count and length]

    @cached_property
    def longest_us(self) -> int:
        """The longest stretch that has a look before and after it."""
        eras = [np.flatnonzero(self.era == era) for era in np.unique(self.era)]
        spans = [int(self._asked[own[-1]] - self.us[own[1]]) for own in eras if len(own) > 2]  # noqa: PLR2004
        return min(LONGEST_US, max(spans, default=0))

    def around(self, us: int) -> tuple[Ints, Ints]:
        """The looks before and after each stretch so long, by their places. One that begins between a look and the next
        ends before the first look that was asked for so long after that next one."""
        end = np.searchsorted(self._asked, self.us[1:] + us)
        begin = np.flatnonzero(end < len(self.us))
        begin = begin[self.era[begin] == self.era[end[begin]]]
        return begin, end[begin]

    @cached_property
    def _asked(self) -> Ints:
        """When it or any later look was asked for first: looks of two monitors overlap."""
        first: Ints = np.minimum.accumulate(self.asked[::-1])[::-1]
        return first


@dataclass(frozen=True)
class Counters:
    """Counters (rows) by look: no more than they were (`low`), and no less (`high`), where a look missed some."""

    low: Ints
    high: Ints

    @classmethod
    def of(cls, counters: Ints, era: Ints) -> Counters:
        """A counter that first appears within an era is taken to have begun at zero."""
        before = _unwrapped(_carried(counters, era), era)
        known = np.where(counters == NA, NA, before)
        after = _carried(known[:, ::-1], era[::-1])[:, ::-1]
        low = np.where(before == NA, 0, before)
        return cls(low, np.where(after == NA, low, after))

    def together(self, rows: Sequence[int]) -> Counters:
        """Their sum, as one row."""
        return Counters(self.low[rows].sum(0, keepdims=True), self.high[rows].sum(0, keepdims=True))

    def grouped(self, group: Ints, count: int) -> Counters:
        """Their sums by group; a row of group -1 is in none."""
        rows, sums = np.flatnonzero(group >= 0), np.zeros((2, count, self.low.shape[1]), np.int64)
        for total, each in zip(sums, (self.low, self.high), strict=True):
            np.add.at(total, group[rows], each[rows])
        return Counters(*sums)

    def most(self, begin: Ints | int, end: Ints | int) -> Ints:
        """The growth from look to look, at most."""
        most: Ints = self.high[:, end] - self.low[:, begin]
        return most

    def least(self, begin: Ints | int, end: Ints | int) -> Ints:
        least: Ints = np.maximum(0, self.low[:, end] - self.high[:, begin])
        return least


def _carried(counters: Ints, era: Ints) -> Ints:
    """With the last value of the same era where nothing was read."""
    places = np.maximum.accumulate(np.where(counters == NA, -1, np.arange(counters.shape[1])), axis=1)
    values = np.take_along_axis(counters, np.maximum(places, 0), axis=1)
    carried: Ints = np.where((places >= 0) & (era[np.maximum(places, 0)] == era), values, NA)
    return carried


def _unwrapped(counters: Ints, era: Ints) -> Ints:
    """A counter that begins anew within an era, of a queue that was made again, goes on from where it was."""
    fell = (counters[:, 1:] < counters[:, :-1]) & (counters[:, 1:] != NA) & (era[1:] == era[:-1])
    if not fell.any():
        return counters
    lost = np.cumsum(np.where(fell, counters[:, :-1], 0), axis=1, dtype=np.int64)
    ahead = np.concatenate([np.zeros_like(counters[:, :1]), lost], axis=1)
    ahead -= ahead[:, np.searchsorted(era, era)]  # of its own era; eras only grow
    unwrapped: Ints = np.where(counters == NA, NA, counters + ahead)
    return unwrapped
