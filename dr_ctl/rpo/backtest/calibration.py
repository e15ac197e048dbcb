"""What an estimate would have said of each part of the past, against what then was. Plain figures; no Spark here.

The window is cut into folds. Of each fold it is asked with what was known before it: the quantiles of all time before
(unconditional), and the quantiles one horizon ahead from the day before, given the state at each moment. Coverage is
the share of the fold's time in which the figure was not above what would have been said; that it holds on average is
judged over the folds, for moments within one are alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import numpy as np

from dr_ctl.rpo.estimate.figures import t_value
from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.result import PROBABILITIES
from dr_ctl.rpo.series.columns import Floats, Ints
from dr_ctl.rpo.series.histogram import Histogram, wall_blocks, weighted_quantile

if TYPE_CHECKING:
    from dr_ctl.core.model import Json

LEAST_FOLDS: Final = 8
"""From fewer folds nobody can tell whether a coverage is too low."""
LEAST_BEFORE: Final = 2
DAY_S: Final = 86_400.0
UNITS: Final = {"loss": 1.0, "age_ms": 1000.0}
NAMES: Final = {"loss": "loss", "age_ms": "age_s"}


class Calibration(Enum):
    """HOLDS: not shown to cover less than it says. NARROW: shown to. UNKNOWN: too little history to tell."""

    HOLDS = "holds"
    NARROW = "narrow"
    UNKNOWN = "unknown"

    @classmethod
    def worst(cls, found: Iterable[Calibration]) -> Calibration:
        """Narrow before holds before unknown: what can be told counts."""
        all_found = set(found)
        return next((each for each in (cls.NARROW, cls.HOLDS) if each in all_found), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold asked: what was said, the share of time covered, the greatest quantile that then was."""

    number: int
    said: float
    was: float
    coverage: float
    weight: float
    above: float


@dataclass(frozen=True, slots=True)
class Row:
    """One quantile of one metric, unconditional (`horizon_s` None) or ahead.

    `width`: how far what was said lay above what then was, on average over time, in the metric's unit.
    """

    metric: str
    horizon_s: float | None
    quantile: str
    folds: tuple[Fold, ...]

    @property
    def coverage(self) -> float | None:
        whole = sum(fold.weight for fold in self.folds)
        return sum(fold.coverage * fold.weight for fold in self.folds) / whole if whole else None

    @property
    def width(self) -> float | None:
        whole = sum(fold.weight for fold in self.folds)
        return sum(fold.above * fold.weight for fold in self.folds) / whole if whole else None

    @property
    def verdict(self) -> Calibration:
        count, mean = len(self.folds), self.coverage
        if count < LEAST_FOLDS or mean is None:
            return Calibration.UNKNOWN
        whole = sum(fold.weight for fold in self.folds)
        spread = sum((fold.weight * (fold.coverage - mean)) ** 2 for fold in self.folds)
        error = t_value(count - 1) * math.sqrt(count / (count - 1) * spread) / whole
        return Calibration.NARROW if mean + error < PROBABILITIES[self.quantile] else Calibration.HOLDS

    def as_json(self) -> dict[str, Json]:
        return {
            "metric": self.metric,
            "horizon_s": self.horizon_s,
            "quantile": self.quantile,
            "nominal": PROBABILITIES[self.quantile],
            "coverage": _rounded(self.coverage),
            "width": _rounded(self.width),
            "folds": len(self.folds),
            "verdict": self.verdict.value,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def unconditional(found: Mapping[str, Histogram]) -> list[Row]:
    """The quantiles of all time before each fold (a block of the histogram), against the fold; by metric."""
    return _rows(None, lambda metric, probability: _past_folds(found[metric], probability, UNITS[metric]))


def _rows(horizon_s: float | None, asked: Callable[[str, float], Iterable[Fold]]) -> list[Row]:
    """A row for each quantile of each metric."""
    return [
        Row(NAMES[metric], horizon_s, name, tuple(asked(metric, probability)))
        for metric in UNITS
        for name, probability in PROBABILITIES.items()
    ]


def _past_folds(found: Histogram, probability: float, unit: float) -> Iterable[Fold]:
    times = found.weights.sum(axis=0) + found.unknown
    folds = np.flatnonzero(times)
    for number in folds[LEAST_BEFORE:]:
        before, fold = found.within(slice(0, number)), found.within(slice(number, number + 1))
        said, was = before.quantile(probability), fold.quantile(probability)
        if said is None:
            continue
        tops, weights = fold.tops, fold.weights[:, 0]
        # A figure of the same bucket is no larger than what was said.
        inside = int(weights[fold.buckets <= before.buckets[before.place_of(probability) or 0]].sum())
        above = float(((said - tops) * weights).sum()) / int(times[number])
        whole = int(times[number])
        yield Fold(int(number), said / unit, (was or 0) / unit, inside / whole, whole, above / unit)


def ahead(found: Mapping[str, Changes], *, horizon_s: float, span_us: tuple[int, int], folds: int) -> list[Row]:
    """The quantiles one horizon ahead, given the state, from the folds of the day before each fold; by metric."""
    fold_s = max(1, span_us[1] - span_us[0]) / folds / 1e6
    # Of the last moments before a fold nobody knew at its beginning what would be one horizon later.
    reach = max(LEAST_BEFORE, round(DAY_S / fold_s)), math.ceil(horizon_s / fold_s)
    number = {metric: wall_blocks(changes.begin, span_us, folds) for metric, changes in found.items()}
    return _rows(
        horizon_s,
        lambda metric, probability: _ahead_folds(found[metric], number[metric], probability, UNITS[metric], reach),
    )


def _ahead_folds(
    found: Changes, number: Ints, probability: float, unit: float, reach: tuple[int, int]
) -> Iterable[Fold]:
    back, open_ = reach
    for fold in np.unique(number).tolist():
        last = fold - open_
        known = found.take(np.flatnonzero((number >= last - back) & (number < last)))
        mine = found.take(np.flatnonzero(number == fold))
        said, told = np.zeros(len(mine.change)), np.zeros(len(mine.change), bool)
        for level, stalled in {*zip(mine.level.tolist(), mine.stalled.tolist(), strict=True)}:
            similar = known.similar(level, stalled=stalled)
            if similar is not None:
                here = (mine.level == level) & (mine.stalled == stalled)
                told |= here
                said[here] = weighted_quantile(similar.change, similar.weight, probability)
        whole = int(mine.weight[told].sum())
        if whole:
            yield _fold(fold, said[told], mine.take(np.flatnonzero(told)), whole, unit)


def _fold(number: int, said: Floats, was: Changes, whole: int, unit: float) -> Fold:
    share = was.weight / whole
    coverage = float(share[was.change <= said].sum())
    above = float((share * (said - was.change)).sum())
    return Fold(number, float((share * said).sum()) / unit, float((share * was.change).sum()) / unit,
                min(1.0, coverage), whole, above / unit)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundRow:
    """The bound between two looks, made from every second look, against what the looks in between say was under way.

    `excess` is how far the bound lay above it on average, in messages; `bias` how far what was likely did, drawn from
    one look to the next, and `error` how far it lay off, above or below.
    """

    moments: int
    covered: int
    mean: float | None
    excess: float | None
    bias: float | None = None
    error: float | None = None

    @property
    def coverage(self) -> float | None:
        return self.covered / self.moments if self.moments else None

    @property
    def verdict(self) -> Calibration:
        if self.coverage is None:
            return Calibration.UNKNOWN
        return Calibration.HOLDS if self.coverage >= PROBABILITIES["p99"] else Calibration.NARROW

    def as_json(self) -> dict[str, Json]:
        return {
            "moments": self.moments,
            "coverage": _rounded(self.coverage),
            "mean": _rounded(self.mean),
            "excess": _rounded(self.excess),
            "likely": {"bias": _rounded(self.bias), "error": _rounded(self.error)},
            "verdict": self.verdict.value,
        }
