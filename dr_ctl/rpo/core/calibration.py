"""The backtest compares past estimates with the truth, part by part; docs/rpo.md ("Backtest") says how. It works on
plain figures, without Spark. The average is judged over the folds, because moments within a fold are alike."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dr_ctl.rpo.core.arrays import Ints
from dr_ctl.rpo.core.hour import SUMS, Changes
from dr_ctl.rpo.core.quantities import DIGITS, PROBABILITIES, UNITS, BoundRow, Fold, LikelyError, Row
from dr_ctl.rpo.core.rows import MILLI, Histogram, bucket_of, wall_blocks, weighted_quantile
from dr_ctl.rpo.core.scope import Scope, ScopeQuery

MIN_BEFORE: Final = 2
FOLDS: Final = 24
DAY_S: Final = 86_400.0
NAMES: Final = {"loss": "loss", "age_ms": "age_s"}


def unconditional(histograms: Mapping[str, Histogram]) -> list[Row]:
    """Compare the quantiles of all time before each fold (a block of the histogram) with the fold, by metric."""
    return _rows(None, lambda metric, probability: _past_folds(histograms[metric], probability, UNITS[metric]))


def _rows(horizon_s: float | None, folds_of: Callable[[str, float], Iterable[Fold]]) -> list[Row]:
    return [
        Row(NAMES[metric], horizon_s, name, tuple(folds_of(metric, probability)))
        for metric in NAMES
        for name, probability in PROBABILITIES.items()
    ]


def _past_folds(histogram: Histogram, probability: float, unit: float) -> Iterable[Fold]:
    whole = histogram.weights.sum(axis=0) + histogram.unknown
    for number in np.flatnonzero(whole)[MIN_BEFORE:].tolist():
        before, fold = histogram.within(slice(0, number)), histogram.within(slice(number, number + 1))
        if (index := before.index_of(probability)) is None:
            continue
        said, weights, took = int(before.tops[index]), fold.weights[:, 0], int(whole[number])
        # A figure of the same bucket is no larger than the estimate.
        inside = int(weights[fold.buckets <= before.buckets[index]].sum())
        yield Fold(number, said / unit, inside / took, took, float(((said - fold.tops) * weights).sum()) / took / unit)


def ahead(changes_of: Mapping[str, Changes], *, horizon_s: float, span_us: tuple[int, int], folds: int) -> list[Row]:
    """Compare the quantiles one horizon ahead, given the state, of the folds of the day before with each fold, by
    metric."""
    fold_s = max(1, span_us[1] - span_us[0]) / folds / 1e6
    # At the begin of a fold the figures one horizon after the moments just before it were not known.
    reach = max(MIN_BEFORE, round(DAY_S / fold_s)), math.ceil(horizon_s / fold_s)
    number = {metric: wall_blocks(changes.cell, span_us, folds) for metric, changes in changes_of.items()}

    def folds_of(metric: str, probability: float) -> Iterable[Fold]:
        return _ahead_folds(changes_of[metric], number[metric], probability, UNITS[metric], reach)

    return _rows(horizon_s, folds_of)


def _ahead_folds(
    changes: Changes, number: Ints, probability: float, unit: float, reach: tuple[int, int]
) -> Iterable[Fold]:
    back, open_ = reach
    for fold in np.unique(number).tolist():
        known = changes.only((number >= fold - open_ - back) & (number < fold - open_))
        was = changes.only(number == fold)
        said, is_known = np.zeros(len(was.most)), np.zeros(len(was.most), bool)
        for level, stalled in {*zip(was.level.tolist(), was.stalled.tolist(), strict=True)}:
            if (similar := known.similar(level, stalled=stalled)) is not None:
                is_same = (was.level == level) & (was.stalled == stalled)
                is_known |= is_same
                said[is_same] = weighted_quantile(similar.most, similar.weight, probability)
        said, was = said[is_known], was.only(is_known)
        if whole := int(was.weight.sum()):
            share = was.weight / whole
            # A change of the same bucket is no larger than the estimate.
            coverage = float(share[bucket_of(was.most) <= bucket_of(np.ceil(said).astype(np.int64))].sum())
            above = float((share * (said - was.most)).sum())
            yield Fold(fold, float((share * said).sum()) / unit, min(1.0, coverage), whole, above / unit)


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    bound: BoundRow
    rows: tuple[Row, ...]


def backtested(scope: str, table: pa.Table, query: ScopeQuery) -> CalibrationResult:
    past = Scope(scope, table, query)
    rows = unconditional({metric: past.folded(metric, FOLDS) for metric in NAMES})
    for horizon_s in query.horizons_s:
        changes = {metric: past.changes(metric, int(horizon_s * 1e6), query.first_us) for metric in NAMES}
        rows += ahead(changes, horizon_s=horizon_s, span_us=query.span_us, folds=FOLDS)
    return CalibrationResult(_bound(past), tuple(rows))


def _bound(past: Scope) -> BoundRow:
    checks = {metric: past.rows_of("check", metric) for metric in SUMS}
    moments = int(checks["covered"].count.sum())
    if not moments:
        return BoundRow(0, 0, None, None)
    covered, was, excess, bias, error = (float(checks[metric].weight.sum()) / MILLI for metric in SUMS)
    mean, over, above, off = (round(value / moments, DIGITS) for value in (was, excess, bias, error))
    return BoundRow(moments, round(covered), mean, over, LikelyError(above, off))
