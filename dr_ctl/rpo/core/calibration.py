"""Compares past estimates with the truth, part by part. Plain figures, without Spark.

The window is cut into folds. An estimate for a fold uses earlier data only: the quantiles of all time before
(unconditional), and the quantiles one horizon ahead from the day before, given the state at each moment. Coverage is
the share of the fold's time in which the figure was not above the estimate. The average is judged over the folds,
because moments within a fold are alike.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dr_ctl.core.model import Json
from dr_ctl.rpo.core.changes import Changes
from dr_ctl.rpo.core.columns import Floats, Ints
from dr_ctl.rpo.core.histogram import Histogram, bucket_of, wall_blocks, weighted_quantile
from dr_ctl.rpo.core.hour import SUMS
from dr_ctl.rpo.core.quantities import PROBABILITIES
from dr_ctl.rpo.core.rows import MILLI
from dr_ctl.rpo.core.scope import Ask, Scope
from dr_ctl.rpo.core.verdict import Calibration

LEAST_BEFORE: Final = 2
FOLDS: Final = 24
DAY_S: Final = 86_400.0
UNITS: Final = {"loss": 1.0, "age_ms": 1000.0}
NAMES: Final = {"loss": "loss", "age_ms": "age_s"}


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold's estimate, the share of time covered, and the greatest true quantile."""

    number: int
    said: float
    was: float
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
        coverages, weights = [fold.coverage for fold in self.folds], [fold.weight for fold in self.folds]
        return Calibration.of(coverages, weights, PROBABILITIES[self.quantile])

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


def unconditional(histograms: Mapping[str, Histogram]) -> list[Row]:
    """The quantiles of all time before each fold (a block of the histogram), against the fold; by metric."""
    return _rows(None, lambda metric, probability: _past_folds(histograms[metric], probability, UNITS[metric]))


def _rows(horizon_s: float | None, asked: Callable[[str, float], Iterable[Fold]]) -> list[Row]:
    """A row for each quantile of each metric."""
    return [
        Row(NAMES[metric], horizon_s, name, tuple(asked(metric, probability)))
        for metric in UNITS
        for name, probability in PROBABILITIES.items()
    ]


def _past_folds(histogram: Histogram, probability: float, unit: float) -> Iterable[Fold]:
    times = histogram.weights.sum(axis=0) + histogram.unknown
    folds = np.flatnonzero(times)
    for number in folds[LEAST_BEFORE:]:
        before, fold = histogram.within(slice(0, number)), histogram.within(slice(number, number + 1))
        said, was = before.quantile(probability), fold.quantile(probability)
        if said is None:
            continue
        tops, weights = fold.tops, fold.weights[:, 0]
        # A figure of the same bucket is no larger than what was said.
        inside = int(weights[fold.buckets <= before.buckets[before.place_of(probability) or 0]].sum())
        above = float(((said - tops) * weights).sum()) / int(times[number])
        whole = int(times[number])
        yield Fold(int(number), said / unit, (was or 0) / unit, inside / whole, whole, above / unit)


def ahead(changes_of: Mapping[str, Changes], *, horizon_s: float, span_us: tuple[int, int], folds: int) -> list[Row]:
    """The quantiles one horizon ahead, given the state, from the folds of the day before each fold; by metric."""
    fold_s = max(1, span_us[1] - span_us[0]) / folds / 1e6
    # Of the last moments before a fold nobody knew at its beginning what would be one horizon later.
    reach = max(LEAST_BEFORE, round(DAY_S / fold_s)), math.ceil(horizon_s / fold_s)
    number = {metric: wall_blocks(changes.begin, span_us, folds) for metric, changes in changes_of.items()}
    return _rows(
        horizon_s,
        lambda metric, probability: _ahead_folds(changes_of[metric], number[metric], probability, UNITS[metric], reach),
    )


def _ahead_folds(
    changes: Changes, number: Ints, probability: float, unit: float, reach: tuple[int, int]
) -> Iterable[Fold]:
    back, open_ = reach
    for fold in np.unique(number).tolist():
        last = fold - open_
        known = changes.take(np.flatnonzero((number >= last - back) & (number < last)))
        in_fold = changes.take(np.flatnonzero(number == fold))
        said, is_known = np.zeros(len(in_fold.change)), np.zeros(len(in_fold.change), bool)
        for level, stalled in {*zip(in_fold.level.tolist(), in_fold.stalled.tolist(), strict=True)}:
            similar = known.similar(level, stalled=stalled)
            if similar is not None:
                here = (in_fold.level == level) & (in_fold.stalled == stalled)
                is_known |= here
                said[here] = weighted_quantile(similar.change, similar.weight, probability)
        whole = int(in_fold.weight[is_known].sum())
        if whole:
            yield _fold(fold, said[is_known], in_fold.take(np.flatnonzero(is_known)), whole, unit)


def _fold(number: int, said: Floats, was: Changes, whole: int, unit: float) -> Fold:
    share = was.weight / whole
    # A change of the same bucket is no larger than what was said.
    coverage = float(share[bucket_of(was.change) <= bucket_of(np.ceil(said).astype(np.int64))].sum())
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


@dataclass(frozen=True, slots=True)
class Tested:
    """The bound between looks, and every quantile, unconditional and ahead."""

    bound: BoundRow
    rows: tuple[Row, ...]


def backtested(scope: str, table: pa.Table, ask: Ask) -> Tested:
    """Test the figures of a scope on its own past, over the horizons that are asked for."""
    told = Scope(scope, table, ask)
    rows = unconditional({metric: told.folded(metric, FOLDS) for metric in UNITS})
    for horizon_s in ask.horizons_s:
        changes = {metric: told.changes(metric, int(horizon_s * 1e6), ask.first_us) for metric in UNITS}
        rows += ahead(changes, horizon_s=horizon_s, span_us=ask.span_us, folds=FOLDS)
    return Tested(_bound(told), tuple(rows))


def _bound(told: Scope) -> BoundRow:
    checks = {metric: told.part("check", metric) for metric in SUMS}
    moments = int(checks["covered"].count.sum())
    if not moments:
        return BoundRow(0, 0, None, None)
    covered, was, excess, bias, error = (float(checks[metric].weight.sum()) / MILLI for metric in SUMS)
    return BoundRow(moments, round(covered), *(each / moments for each in (was, excess, bias, error)))
