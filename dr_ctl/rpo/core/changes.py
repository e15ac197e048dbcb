"""How a figure changes within the next minutes, by what it was at similar moments.

Similar is a moment with the same magnitude of loss (its power of two) and the same answer to whether the outflow
stalls; with too few of them their neighbours count too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, NEVER, Flags, Ints, Rows
from dr_ctl.rpo.core.steps import Steps

LEAST_MOMENTS: Final = 30


def level(loss: int) -> int:
    """The magnitude of a loss: 0 for none, else its number of binary digits."""
    return loss.bit_length()


@dataclass(frozen=True, slots=True)
class Changes(Rows):
    """Changes of a figure one horizon later: by moment its `begin`, the magnitude of the loss and whether it
    stalled, by how much it had changed, and for how long the moment counts; `count` moments that are alike."""

    flow: Ints
    begin: Ints
    level: Ints
    stalled: Flags
    change: Ints
    weight: Ints
    count: Ints

    @classmethod
    def of(cls, steps: Steps, metric: str, *, horizon_us: int, since_us: int) -> Self:
        """Moments whose horizon reaches beyond the history, or over time that is not covered, say nothing."""
        steps = steps.only(steps.begin >= since_us)
        begin, loss, figure = steps.begin, steps.bound.loss, steps.bound.of(metric)
        # One flow after the other, so far apart that no horizon reaches the next.
        first_us = int(begin.min(initial=NEVER))
        at_us = steps.flow * (int(steps.end.max(initial=first_us)) - first_us + horizon_us + 1) + begin - first_us
        then = np.searchsorted(at_us, at_us + horizon_us, "right") - 1
        holes = np.cumsum(~steps.covered)
        good = steps.covered & (holes[then] == holes) & (steps.end[then] >= begin + horizon_us)
        good &= (loss != NA) & (figure != NA) & (figure[then] != NA)
        magnitude = np.where(loss <= 0, 0, 1 + np.floor(np.log2(np.maximum(loss, 1)))).astype(np.int64)
        one = np.ones_like(begin)
        return cls(steps.flow, begin, magnitude, steps.stalled, figure[then] - figure, steps.weight, one).only(good)

    def similar(self, at: int, *, stalled: bool) -> Changes | None:
        """The changes after moments like this one, or None where even all levels together are too few."""
        alike = self.stalled == stalled
        far = np.abs(self.level - at)
        for reach in np.unique(far[alike]):
            near = alike & (far <= reach)
            if self.count[near].sum() >= LEAST_MOMENTS:
                return self.only(near)
        return None
