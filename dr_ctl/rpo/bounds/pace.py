"""How fast things came at most: a rate over at least a second, and a burst beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.history.newest import US, WINDOW_US
from dr_ctl.rpo.series.columns import Ints

_LEAST_WINDOWS: Final = 2
_NEARLY: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Pace:
    """An upper line on a counter: between any two looks of the last minutes it grew at most by `rate` per second plus
    `burst`.

    The rate is the highest from a look to the first look at least a second later. The burst is the greatest rise of the
    counter above a straight line at that rate (a token bucket), whatever the looks' spacing: a burst within a second
    raises `burst`, a longer one raises `rate`. With looks a second or more apart `burst` is 0. Later additions keep
    below the line unless clients become faster. A look bears the time of its reply, which is late by a varying delay.
    """

    rate: float
    burst: float

    @classmethod
    def of(cls, us: Ints, counter: Ints, era: Ints, over_us: int = US) -> Self | None:
        """`over_us`: how long a rate is to last at least, where that is not a second.

        The last minutes count, or the last two such windows if those minutes hold fewer. Looks all within one window
        are compared pairwise; returns None from fewer than two looks.
        """
        for least_us in (over_us, 1):
            begin, end = _windows(us, era, least_us)
            if len(begin) >= _LEAST_WINDOWS:
                break
        else:
            return None
        rate = float(((counter[end] - counter[begin]) / (us[end] - us[begin])).max())
        asked = slice(int(begin[0]), None)
        above = (counter[asked] - counter[asked][0]) - rate * (us[asked] - us[asked][0])
        return cls(rate * US, _rise(above, era[asked]))

    def most(self, us: int) -> int:
        """At most so many in so long a time from a look on."""
        return math.ceil(self.rate * us / US + self.burst - _NEARLY) if us > 0 else 0


def burst_between(looks: Ints, us: Ints, counter: Ints, era: Ints) -> int:
    """The greatest rise of a counter above straight lines from each of some looks to the next one, in the last minutes.

    Looks alone give a rate without a burst; a counter keeps below the highest rate and this burst together. Every
    interval has its own line, so a fast interval hides no burst of a slow one.
    """
    if not len(us):
        return 0
    from_us = min([us[-1] - WINDOW_US, *looks[-_LEAST_WINDOWS - 1 :][:1]])
    us, counter, era = (values[us >= from_us] for values in (us, counter, era))
    rises = [0.0]
    for number in np.unique(era):
        own = np.flatnonzero(era == number)
        ends = own[np.isin(us[own], looks) | np.isin(own, own[[0, -1]])]
        above = counter[own] - np.interp(us[own], us[ends], counter[ends])
        rises.append(_rise(above, era[own]))
    return math.ceil(max(rises) - _NEARLY)


def _windows(us: Ints, era: Ints, least_us: int) -> tuple[Ints, Ints]:
    """From each look to the first one so long after it, within one era: the places of both."""
    if not len(us):
        return us, us
    key = era * (int(us[-1] - us[0]) + 2 * least_us) + (us - us[0])
    end = np.searchsorted(key, key + least_us)
    begin = np.flatnonzero(end < len(us))
    begin = begin[era[end[begin]] == era[begin]]
    late = begin[us[end[begin]] > us[-1] - WINDOW_US]
    begin = late if len(late) >= _LEAST_WINDOWS else begin[-_LEAST_WINDOWS:]
    return begin, end[begin]


def _rise(above: np.typing.NDArray[np.float64], era: Ints) -> float:
    return max(
        float((counts - np.minimum.accumulate(counts)).max())
        for counts in (above[era == each] for each in np.unique(era))
    )
