"""How a figure changes within the next minutes, by what it was at similar moments.

Similar is a moment with the same magnitude of loss (its power of two) and the same answer to whether the outflow
stalls; with too few of them their neighbours count too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, Flags, Ints
from dr_ctl.rpo.core.steps import Steps

LEAST_MOMENTS: Final = 30


def level(loss: int) -> int:
    """The magnitude of a loss: 0 for none, else its number of binary digits."""
    return loss.bit_length()


@dataclass(frozen=True, slots=True)
class Changes:
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
        recent = steps.take(np.flatnonzero(steps.begin >= since_us))
        begin, loss, figure = recent.begin, recent.bound.loss, recent.bound.of(metric)
        if not len(begin):
            return cls(*(np.zeros(0, np.int64),) * 3, np.zeros(0, bool), *(np.zeros(0, np.int64),) * 3)
        # One after the other, so far apart that no horizon reaches the next.
        base = recent.flow * (int(recent.end.max() - begin.min()) + horizon_us + 1) - begin.min()
        then = np.searchsorted(base + begin, base + begin + horizon_us, "right") - 1
        holes = np.cumsum(~recent.covered)
        good = recent.covered & (holes[then] == holes) & (recent.end[then] >= begin + horizon_us)
        good &= (loss != NA) & (figure != NA) & (figure[then] != NA)
        at = np.flatnonzero(good)
        magnitude = np.where(loss <= 0, 0, 1 + np.floor(np.log2(np.maximum(loss, 1)))).astype(np.int64)[at]
        change = (figure[then] - figure)[at]
        return cls(
            recent.flow[at],
            begin[at],
            magnitude,
            recent.stalled[at],
            change,
            recent.weight[at],
            np.ones(len(at), np.int64),
        )

    def similar(self, at: int, *, stalled: bool) -> Changes | None:
        """The changes after moments like this one, or None where even all levels together are too few."""
        alike = self.stalled == stalled
        far = np.abs(self.level - at)
        for reach in np.unique(far[alike]):
            near = alike & (far <= reach)
            if self.count[near].sum() >= LEAST_MOMENTS:
                return self.take(np.flatnonzero(near))
        return None

    def take(self, at: Ints | slice) -> Changes:
        return Changes(*(getattr(self, each.name)[at] for each in fields(Changes)))
