"""What an estimate would have said of each part of the past, against what then was. Plain figures; no Spark here.

The window is cut into folds. Of each fold it is asked with what was known before it: the quantiles of all time before
(unconditional), and the quantiles one horizon ahead from the day before, given the state at each moment. Coverage is
the share of the fold's time in which the figure was not above what would have been said; that it holds on average is
judged over the folds, for moments within one are alike.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate.cells import HELD, STEP, Cell
from dr_ctl.rpo.estimate.figures import Histogram, t_value, weighted_quantile
from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.result import PROBABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


def unconditional(cells: Iterable[Cell], scope: str) -> list[Row]:
    """The quantiles of all time before each fold, against the fold."""
    folds: dict[str, dict[int, Histogram]] = defaultdict(lambda: defaultdict(Histogram))
    for cell in cells:
        if cell.kind == HELD and cell.scope == scope and cell.metric in UNITS:
            folds[cell.metric][cell.block].add(cell)
    return _rows(None, lambda metric, probability: _past_folds(folds[metric], probability, UNITS[metric]))


def _rows(horizon_s: float | None, asked: Callable[[str, float], Iterable[Fold]]) -> list[Row]:
    """A row for each quantile of each metric."""
    return [
        Row(NAMES[metric], horizon_s, name, tuple(asked(metric, probability)))
        for metric in UNITS
        for name, probability in PROBABILITIES.items()
    ]


def _past_folds(folds: Mapping[int, Histogram], probability: float, unit: float) -> Iterable[Fold]:
    before = Histogram()
    for count, number in enumerate(sorted(folds)):
        fold = folds[number]
        bucket = before.bucket_of(probability) if count >= LEAST_BEFORE else None
        if bucket is not None and fold.whole_us:
            said = before.largest[bucket]
            times = [(each, fold.largest[each], sum(blocks.values())) for each, blocks in fold.weights.items()]
            inside = sum(weight for each, _, weight in times if each <= bucket)
            above = sum((said - value) * weight for _, value, weight in times) / fold.whole_us
            was = fold.quantile(probability) or 0
            yield Fold(number, said / unit, was / unit, inside / fold.whole_us, fold.whole_us, above / unit)
        for each, blocks in fold.weights.items():
            for block, weight in blocks.items():
                before.weights[each][block] += weight
            before.largest[each] = max(before.largest.get(each, 0), fold.largest[each])


def ahead(cells: Iterable[Cell], scope: str, *, horizon_s: float, fold_s: float) -> list[Row]:
    """The quantiles one horizon ahead, given the state, from the folds of the day before each fold."""
    # Of the last moments before a fold nobody knew at its beginning what would be one horizon later.
    open_ = math.ceil(horizon_s / fold_s)
    day = max(LEAST_BEFORE, round(DAY_S / fold_s))
    found: dict[str, dict[int, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.kind == STEP and cell.scope == scope and cell.metric in UNITS:
            found[cell.metric][cell.block].append(cell)
    return _rows(
        horizon_s, lambda metric, probability: _ahead_folds(found[metric], probability, UNITS[metric], day, open_)
    )


def _ahead_folds(
    folds: Mapping[int, Sequence[Cell]], probability: float, unit: float, reach: int, open_: int
) -> Iterable[Fold]:
    for number in sorted(folds):
        last = number - open_
        known = [cell for each in range(last - reach, last) for cell in folds.get(each, ())]
        changes, values = Changes(), dict[int, int]()
        for cell in known:
            changes.add(replace(cell, value=cell.bucket))
            values[cell.bucket] = max(values.get(cell.bucket, cell.value), cell.value)
        whole = inside = above = said_sum = was_sum = 0.0
        for cell in folds[number]:
            similar = changes.similar(cell.level, stalled=cell.stalled)
            bucket = weighted_quantile(similar, probability)
            if bucket is None:
                continue
            whole += cell.weight_us
            inside += cell.weight_us * (cell.bucket <= bucket)
            above += cell.weight_us * (values[bucket] - cell.value)
            said_sum += cell.weight_us * values[bucket]
            was_sum += cell.weight_us * cell.value
        if whole:
            yield Fold(
                number, said_sum / whole / unit, was_sum / whole / unit, inside / whole, whole, above / whole / unit
            )


@dataclass(frozen=True, slots=True)
class BoundRow:
    """The bound between two looks, made from every second look, against what the looks in between say was under way.

    `excess` is how far the bound lay above it on average, in messages.
    """

    moments: int
    covered: int
    mean: float | None
    excess: float | None

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
            "verdict": self.verdict.value,
        }
