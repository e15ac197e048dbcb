"""Whether a window is covered well enough for an objective to be met."""

from dataclasses import dataclass
from typing import Final, Self

from dr_ctl.rpo.core.quantities import Number, Quantity
from dr_ctl.rpo.core.scope import OfScope
from dr_ctl.rpo.estimate.result import LossLimit, Verdict, limited, verdict_of

LEAST_US: Final = 3600 * 1_000_000
"""From less covered time nobody can say what holds in 99 of 100 moments, unless independent excursions tell it."""
MOST_ABOVE: Final = 0.01
MOST_UNSEEN: Final = 0.5


@dataclass(frozen=True, slots=True)
class Coverage:
    """Time in which the site served: the part that looks cover, the part for which they came late, and the part that
    nobody looked at."""

    covered_us: int
    late_us: int
    unseen_us: int

    @classmethod
    def of(cls, scope: OfScope, span_us: tuple[int, int]) -> Self:
        unseen = max(0, span_us[1] - span_us[0] - scope.covered_us - scope.late_us - scope.idle_us)
        return cls(scope.covered_us, scope.late_us, unseen)

    @property
    def uncovered(self) -> float:
        """The share of the time that is not covered."""
        whole = self.covered_us + self.late_us + self.unseen_us
        return (self.late_us + self.unseen_us) / whole if whole else 0.0

    @property
    def is_hardly_any(self) -> bool:
        """Whether less than half of the time was looked at."""
        return self.unseen_us > MOST_UNSEEN * (self.covered_us + self.late_us + self.unseen_us)


def judged(scope: OfScope, seen: Coverage, limit: LossLimit) -> Verdict:
    """Judge by the 99th percentiles. `met` needs an hour, or an interval whose upper end keeps the limit, and to hold
    too where time in which the site answered late, in part or not at all counts as above the limit: that is when most
    is under way."""
    verdict = verdict_of(scope.figures, limit)
    if verdict is not Verdict.MET or (limit.messages is None and limit.age_s is None):
        return verdict
    holds = scope.above_us + seen.late_us <= MOST_ABOVE * (seen.covered_us + seen.late_us)
    is_enough = seen.covered_us >= LEAST_US or all(_is_settled(*each) for each in limited(scope.figures, limit))
    return verdict if holds and is_enough and not seen.is_hardly_any else Verdict.UNKNOWN


def _is_settled(told: Quantity, most: Number) -> bool:
    ends = told.ci95.get("p99")
    return ends is not None and ends[1] is not None and ends[1] <= most
