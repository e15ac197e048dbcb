"""Figures as plain values: a quantity with its interval, all quantities of one scope, and the verdict of a backtest on
a figure. Imports no NumPy."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dr_ctl.core.document import HIDDEN, derived

Number = int | float
Interval = tuple[Number, Number | None]
"""From, to; None: open, nobody can say how much above."""
PROBABILITIES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
UNITS: Final = {"loss": 1, "age_ms": 1000, "duplicates": 1, "drain": 1000}
"""How many of a metric's own unit make one of the unit that people read: messages, seconds."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A figure at the last reading and over the history; null where it is not known, never zero."""

    now: Number | None = None
    p50: Number | None = None
    p95: Number | None = None
    p99: Number | None = None
    max: Number | None = None


@dataclass(frozen=True, slots=True)
class Quantity(Quantiles):
    """Quantiles of a bound, with what is likely beside it."""

    ci95: Mapping[str, Interval | None] = field(default_factory=lambda: dict.fromkeys(PROBABILITIES))
    likely: Quantiles = field(default_factory=Quantiles)


@dataclass(frozen=True, slots=True)
class Horizon:
    """Quantities within the next minutes, given the state now."""

    seconds: Number
    loss: Quantity = field(default_factory=Quantity)
    age_s: Quantity = field(default_factory=Quantity)


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything estimated of one scope, the total, a flow or a class: bounds, with what is likely beside them. The
    last four are those that `status` shows of each link, under the same names."""

    loss: Quantity
    age_s: Quantity
    duplicates: Quantity
    drain_s: Quantity
    horizon: Horizon
    unexplained: float | None = None

    @derived
    def loss_risk(self) -> Number | None:
        return self.loss.now

    @derived
    def duplicate_risk(self) -> Number | None:
        return self.duplicates.now

    @derived
    def recovery_point_s(self) -> Number | None:
        return self.age_s.now

    @derived
    def recovery_time_s(self) -> Number | None:
        return self.drain_s.now


@dataclass(frozen=True, slots=True)
class Curves:
    """In total, over equal bins of the time between two moments, by metric: the most (None: not covered) and what was
    likely the most."""

    first_us: int
    last_us: int
    most: Mapping[str, Sequence[Number | None]]
    likely: Mapping[str, Sequence[Number | None]] = field(default_factory=dict)


Z: Final = 1.959964


def t_value(freedom: int) -> float:
    """Student's t for a two-sided 95 %, by Cornish and Fisher's expansion: 0.2 % off at 5 degrees, less above."""
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + first / freedom + second / freedom**2


DIGITS: Final = 4
MIN_FOLDS: Final = 8
"""From fewer folds nobody can tell whether a coverage is too low."""


class Calibration(Enum):
    """HOLDS: not shown to cover less than it says. NARROW: shown to. UNKNOWN: too little history to tell."""

    HOLDS = "holds"
    NARROW = "narrow"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, coverages: Sequence[float], weights: Sequence[float], nominal: float) -> "Calibration":
        """NARROW where the coverage of the folds is below `nominal`, beyond the chance that so few folds have."""
        count, whole = len(coverages), sum(weights)
        if count < MIN_FOLDS or not whole:
            return cls.UNKNOWN
        pairs = list(zip(coverages, weights, strict=True))
        mean = sum(coverage * weight for coverage, weight in pairs) / whole
        spread = sum((weight * (coverage - mean)) ** 2 for coverage, weight in pairs)
        error = t_value(count - 1) * math.sqrt(count / (count - 1) * spread) / whole
        return cls.NARROW if mean + error < nominal else cls.HOLDS

    @classmethod
    def worst(cls, verdicts: Iterable["Calibration"]) -> "Calibration":
        """The first of narrow, holds and unknown that occurs: a known answer outweighs an unknown one."""
        occurring = set(verdicts)
        return next((verdict for verdict in (cls.NARROW, cls.HOLDS) if verdict in occurring), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold's estimate, the share of time covered, and how far the estimate lay above."""

    number: int
    said: float
    coverage: float
    weight: float
    above: float


@dataclass(frozen=True, slots=True)
class Row:
    """A quantile of a metric, unconditional (`horizon_s` None) or ahead.

    `width`: how far the estimate lay above the truth, on average over time, in the metric's unit.
    """

    metric: str
    horizon_s: float | None
    quantile: str
    tested: tuple[Fold, ...] = field(metadata=HIDDEN)

    @derived
    def nominal(self) -> float:
        return PROBABILITIES[self.quantile]

    @derived
    def coverage(self) -> float | None:
        return self._mean([fold.coverage for fold in self.tested])

    @derived
    def width(self) -> float | None:
        return self._mean([fold.above for fold in self.tested])

    @derived
    def folds(self) -> int:
        return len(self.tested)

    @derived
    def verdict(self) -> Calibration:
        coverages, weights = [fold.coverage for fold in self.tested], [fold.weight for fold in self.tested]
        return Calibration.of(coverages, weights, self.nominal)

    def _mean(self, values: Sequence[float]) -> float | None:
        weights = [fold.weight for fold in self.tested]
        return round(sum(map(operator.mul, values, weights)) / sum(weights), DIGITS) if sum(weights) else None


@dataclass(frozen=True, slots=True)
class LikelyError:
    """How far what was likely, drawn from one reading to the next, lay above on average, and how far off, above or
    below."""

    bias: float | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True)
class BoundRow:
    """The bound between two readings, made from every second one, against what the readings in between say was under
    way.

    `excess` is how far the bound lay above it on average, in messages.
    """

    moments: int
    covered: int = field(metadata=HIDDEN)
    mean: float | None
    excess: float | None
    likely: LikelyError = LikelyError()

    @derived
    def coverage(self) -> float | None:
        return round(self.covered / self.moments, DIGITS) if self.moments else None

    @derived
    def verdict(self) -> Calibration:
        if not self.moments:
            return Calibration.UNKNOWN
        return Calibration.HOLDS if self.covered / self.moments >= PROBABILITIES["p99"] else Calibration.NARROW
