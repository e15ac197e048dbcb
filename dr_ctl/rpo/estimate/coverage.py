"""Whether a window is covered well enough for an objective to be met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dr_ctl.rpo.estimate.result import Figures, LossLimit, Verdict
from dr_ctl.rpo.series.columns import NA
from dr_ctl.rpo.series.steps import Steps

LEAST_INTERVALS: Final = 100
"""From fewer nobody can say what holds in 99 of 100 moments."""
MOST_ABOVE: Final = 0.01
MOST_UNSEEN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of the time in which the site served: what looks cover, what they should have covered and came late for, and
    what nobody looked at."""

    intervals: int
    covered_us: int
    late_us: int
    unseen_us: int

    @classmethod
    def of(cls, steps: Steps) -> Self:
        weight = steps.weight
        unseen = ~(steps.covered | steps.idle | steps.missed)
        covered, late, away = (int(weight[each].sum()) for each in (steps.covered, steps.missed, unseen))
        return cls(int(steps.covered.sum()), covered, late, away)

    @property
    def uncovered(self) -> float:
        """The share of the time that is not covered."""
        whole = self.covered_us + self.late_us + self.unseen_us
        return (self.late_us + self.unseen_us) / whole if whole else 0.0

    @property
    def is_hardly_any(self) -> bool:
        unseen = self.unseen_us / max(1, self.covered_us + self.late_us + self.unseen_us)
        return self.intervals < LEAST_INTERVALS or unseen > MOST_UNSEEN


def judged(figures: Figures, steps: Steps, limit: LossLimit) -> Verdict:
    """Judge by the 99th percentiles. `met` needs enough looks, and to hold too where time for which they came late
    counts as above the limit: a broker that is buried answers late, so that is when most is under way."""
    verdict = figures.verdict(limit)
    if verdict is not Verdict.MET or (limit.messages is None and limit.age_s is None):
        return verdict
    seen = Coverage.of(steps)
    limits = (("loss", limit.messages), ("age_ms", None if limit.age_s is None else limit.age_s * 1000))
    above = max(_above_us(steps, metric, most) for metric, most in limits if most is not None)
    holds = above + seen.late_us <= MOST_ABOVE * (seen.covered_us + seen.late_us)
    return verdict if holds and not seen.is_hardly_any else Verdict.UNKNOWN


def _above_us(steps: Steps, metric: str, most: float) -> int:
    values = steps.bound[metric]
    return int(steps.weight[steps.covered & ((values == NA) | (values > np.ceil(most)))].sum())
