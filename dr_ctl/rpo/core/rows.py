"""The rows that sum up an hour of a history. Rows with equal keys can be added, whichever Spark task wrote them and
whenever. Weighted histograms of these rows (how long a figure stayed where, in which part of the window) give the
quantiles and their intervals.

A row is of one kind. Typed columns hold its keys, and rows with equal keys are put together: weights and counts are
added, of `most` the largest counts, of `least` the smallest.

| kind | of | weight | count | most | least |
| --- | --- | --- | --- | --- | --- |
| figure | scope, metric, likely, cell, bucket; of a drain `flow` and `acks` | time, us | | largest value | |
| change | scope, metric, horizon_us, cell, level, stalled, bucket | time, us | moments | largest change | |
| shipped | scope (a flow), acks, level, bucket | | messages | | slowest, thousandths a second |
| arrivals | scope (a flow), bucket | | intervals | quickest, thousandths a second | |
| time | scope, metric (covered, late, taken over, idle, floor), cell | time, us | intervals | | |
| readings | scope (a flow), cell | | readings | last, us | first, us |
| accounted | scope (a flow) | things put in | of these accounted for by queues | | |
| queues | scope (a class) | | flows that have a queue of it | | |
| curve | scope, metric, likely, cell; of a drain `flow` and `acks` | | | largest value | |
| share | scope (a flow), name (a queue; none: of all others), cell | message-milliseconds | | most at a reading | |
| now | scope, metric, likely; of a drain `flow` and `acks`; stalled | | | value at the last reading | |
| since | scope, metric | | | bound of the last covered time | |
| spacing | scope (a flow) | | | between readings, us | |
| role | name (a role) | | | last seen, us | |
| check | metric, cell | a sum over moments | moments | | |
| reach | | | | | from when on readings of outflows were read for it, us; 0: there are none before |

An interval respects autocorrelation (batch means): the differences between blocks of covered time say as how many
independent answers they count. At every level these give an interval of the share of time above it (Clopper and
Pearson's), and the quantile lies among the levels whose share may be its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.core.arrays import DAY_US, HOUR_US, NA, NEVER, SECOND_US, Floats, Ints
from dr_ctl.rpo.core.cut import LONGEST_GAP_US
from dr_ctl.rpo.core.quantities import PROBABILITIES, Interval, Number, Quantiles, Quantity, Z, t_value


@dataclass(frozen=True, slots=True)
class CellLengths:
    figures_us: int
    curve_us: int


LATELY: Final = CellLengths(300 * SECOND_US, 20 * SECOND_US)
OF_A_DAY: Final = CellLengths(HOUR_US, 600 * SECOND_US)


def over_us(end_us: int) -> int:
    """Return the end of the days that are over in a history that ends then (exclusive), with the readings after them
    that belong to them."""
    return (end_us - LONGEST_GAP_US) // DAY_US * DAY_US


def fineness(us: int, end_us: int) -> CellLengths:
    """Return how finely a moment is told: a day that is over by the hour."""
    return OF_A_DAY if us < over_us(end_us) else LATELY


EXACT_BELOW: Final = 64
GROWTH: Final = 1.02


def bucket_of(values: Ints) -> Ints:
    """Number the bucket of each value: exact below 64, then 2 % wide; below zero as above it, towards zero."""
    size = np.maximum(np.abs(values), 1) / EXACT_BELOW
    up = EXACT_BELOW + np.ceil(np.log(size) / math.log(GROWTH))
    down = -(EXACT_BELOW + np.floor(np.log(size) / math.log(GROWTH)))
    rounded = np.where(values > 0, up, down)
    return np.where(np.abs(values) < EXACT_BELOW, values, rounded).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The time that a figure spent in each bucket (rows, ascending) in each block of the window (columns), the largest
    value seen there, and by block the time in which the figure was not known: unknown time weighs as if above all."""

    buckets: Ints
    weights: Ints
    largest: Ints
    unknown: Ints

    @classmethod
    def of(cls, values: Ints, weights: Ints, block: Ints, blocks: int) -> Self:
        known = values != NA
        unknown = np.bincount(block[~known], weights[~known], blocks).astype(np.int64)
        numbers, row = np.unique(bucket_of(values[known]), return_inverse=True)
        weight, largest = np.zeros((len(numbers), blocks), np.int64), np.full((len(numbers), blocks), NA)
        np.add.at(weight, (row, block[known]), weights[known])
        np.maximum.at(largest, (row, block[known]), values[known])
        return cls(numbers, weight, largest, unknown)

    @property
    def tops(self) -> Ints:
        return self.largest.max(axis=1, initial=NA)

    @property
    def max(self) -> int | None:
        return None if not len(self.buckets) or self.unknown.any() else int(self.tops[-1])

    def index_of(self, probability: float) -> int | None:
        """Return the first bucket up to which at least so much of the time lies, or None if it is not known that
        high."""
        below = np.cumsum(self.weights.sum(axis=1))
        index = int(np.searchsorted(below, probability * int(self.weights.sum() + self.unknown.sum())))
        return index if index < len(below) else None

    def quantile(self, probability: float) -> int | None:
        index = self.index_of(probability)
        return None if index is None else int(self.tops[index])

    def above(self, most: int) -> int:
        return int(self.weights[self.tops > most].sum() + self.unknown.sum())

    def within(self, blocks: slice) -> Histogram:
        weights = self.weights[:, blocks]
        rows = weights.sum(axis=1) > 0
        return Histogram(self.buckets[rows], weights[rows], self.largest[:, blocks][rows], self.unknown[blocks])


def covered_blocks(weight: Ints, count: int) -> Ints:
    """Cut covered time into blocks of equal length: the number of that in which each step begins."""
    before = np.cumsum(weight) - weight
    return np.minimum(before * count // max(1, int(weight.sum())), count - 1)


def wall_blocks(begin: Ints, span: tuple[int, int], count: int) -> Ints:
    first, last = span
    return np.clip((begin - first) * count // max(1, last - first + 1), 0, count - 1)


def weighted_quantile(values: npt.NDArray[np.generic], weights: Ints, probability: float) -> Any:
    """Return the least of the values up to which at least so much of the weight lies, or None without values."""
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return values[order][np.searchsorted(below, probability * below[-1])].item()


MIN_BLOCKS: Final = 8
MIN_EXCURSIONS: Final = 4
"""A 97.5 % limit needs ln 40 = 3.7 of them."""
SMALLEST: Final = 1e-12
"""Equal blocks have no variance; nothing is divided by zero."""


def interval(histogram: Histogram, probability: float) -> tuple[int, int | None] | None:
    """Return the 95 % interval of a quantile, its upper end None where it is open; too few blocks give None."""
    index = histogram.index_of(probability)
    whole = histogram.weights.sum(axis=0) + histogram.unknown
    times = whole[whole > 0].astype(float)
    if index is None or len(times) < MIN_BLOCKS:
        return None
    above = times - np.cumsum(histogram.weights[:, whole > 0], axis=0)
    share = above.sum(axis=1) / times.sum()
    variances = _variance(above - share[:, None] * times) / times.sum() ** 2
    dof_correction = (Z / t_value(len(times) - 1)) ** 2
    low = high = None
    count = 0.0
    for level, (theta, variance) in enumerate(zip(share.tolist(), variances.tolist(), strict=True)):
        if 0 < theta < 1:
            count = theta * (1 - theta) / max(variance, SMALLEST) * dof_correction
        least, most = between(theta, count) if count else (0.0, 1.0)
        low = level if low is None and least <= 1 - probability else low
        high = level if high is None and most <= 1 - probability else high
    is_open = high is None or _excursions(share, variances, index) * dof_correction < MIN_EXCURSIONS
    tops = histogram.tops
    return int(tops[min(low or 0, index)]), None if is_open or high is None else int(tops[max(high, index)])


def _variance(residuals: Floats) -> Floats:
    """Return how much blocks differ. An excursion may last beyond its block: if a block is like the one before it, the
    two tell less than two."""
    alike = 2 * (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)
    return ((residuals**2).sum(axis=1) + np.maximum(0.0, alike)) * residuals.shape[1] / (residuals.shape[1] - 1)


def _excursions(share: Floats, variances: Floats, index: int) -> float:
    """Return how many excursions above a level, independent of each other, would tell as much; take the level below if
    nothing lies above it."""
    above = np.flatnonzero(share[: index + 1] > 0)
    if not len(above):
        return 0.0
    return float(share[above[-1]] ** 2 / variances[above[-1]]) if variances[above[-1]] > 0 else math.inf


def between(share: float, count: float) -> tuple[float, float]:
    """Return the 95 % interval of a share that was told by so many independent answers: Clopper and Pearson's."""
    hits = share * count
    least = 0.0 if hits <= 0 else _beta(hits, count - hits + 1, -Z)
    if hits <= 0:
        return least, 1 - 0.025 ** (1 / count)
    return least, 1.0 if hits >= count else _beta(hits + 1, count - hits, Z)


def _beta(a: float, b: float, z: float) -> float:
    """Return the quantile of a beta distribution, by Paulson's approximation; `z` is that of the normal one."""
    one, other = 1 / (9 * a), 1 / (9 * b)
    root = math.sqrt(max(0.0, (1 - one) ** 2 * other + (1 - other) ** 2 * one - one * other * z**2))
    ratio = max(0.0, ((1 - one) * (1 - other) + z * root) / ((1 - other) ** 2 - other * z**2)) ** 3
    return a * ratio / (b + a * ratio)


def quantity(now: int | None, bound: Histogram, likely_now: int | None, likely: Histogram, per: float) -> Quantity:
    """Put together a figure, in the unit that people read: `per` of the histogram's own make one. The likely figure is
    no more than the bound: a quantile is the largest that was seen in its bucket, and of the two either may be larger.
    """
    at_most, likely_ones = (
        {"now": scaled(last, per), "max": scaled(hist.max, per)}
        | {name: scaled(hist.quantile(p), per) for name, p in PROBABILITIES.items()}
        for last, hist in ((now, bound), (likely_now, likely))
    )
    for name, value in likely_ones.items():
        most = at_most[name]
        likely_ones[name] = value if value is None or most is None else min(value, most)
    ci95 = {name: _interval(interval(bound, p), per) for name, p in PROBABILITIES.items()}
    return Quantity(ci95=ci95, likely=Quantiles(**likely_ones), **at_most)


def scaled(value: Number | None, per: float) -> Number | None:
    return value if value is None or per == 1.0 else round(value / per, 3)


def _interval(ends: tuple[int, int | None] | None, per: float) -> Interval | None:
    if ends is None:
        return None
    low = scaled(ends[0], per)
    assert low is not None
    return low, scaled(ends[1], per)


TOTAL: Final = "total"
UNKNOWN: Final = -(1 << 30)
MILLI: Final = 1000
VALUES: Final = ("weight", "count", "most", "least")
SCHEMA: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("kind", "scope", "metric", "flow", "name")),
        *((name, pa.int64()) for name in ("cell", "level", "horizon_us", "bucket")),
        *((name, pa.bool_()) for name in ("is_total", "likely", "acks", "stalled")),
        *((name, pa.int64()) for name in VALUES),
    ]
)
"""`is_total`: the row tells of the total too, for its flow is the only one."""
REACH: Final = "reach"
OWN: Final = ("shipped", "arrivals", "accounted")
"""Kinds of rows of single flows that the total and the classes are told by too."""
ADDED: Final = (("weight", "sum"), ("count", "sum"), ("most", "max"), ("least", "min"))
_EMPTY: Final = {pa.string(): "", pa.int64(): 0, pa.bool_(): False}
CLASS: Final = "class "


def class_name(number: int) -> str:
    return f"{CLASS}{number}"


def flow_name(pair: str, name: str) -> str:
    return json.dumps([pair, name])


def bucket(values: Ints) -> Ints:
    return np.where(values == NA, UNKNOWN, bucket_of(values))


class Gathered:
    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._single: list[dict[str, Any]] = []

    def add(self, kind: str, words: Sequence[str], scope: Ints | int, **given: Any) -> None:
        """Add rows of keys and `VALUES`: `scope`, like the keys `flow` and `name`, are indices into `words`; `metric`
        is a word."""
        given = {"kind": kind, "scope": scope, **given}
        varied = {name: value for name, value in given.items() if np.ndim(value)}
        if not all(map(len, varied.values())):
            return
        keys, added = [name for name in varied if name not in VALUES], [how for how in ADDED if how[0] in varied]
        rows = pa.table(varied).group_by(keys, use_threads=False).aggregate(added)
        given.update(zip([*keys, *(name for name, _ in added)], rows, strict=True))
        names = pa.array(words, pa.string())
        for name in ("scope", "flow", "name"):
            if name in given:
                given[name] = names.take(given[name]) if name in varied else words[given[name]]
        columns = {
            name: value if name in varied else pa.repeat(pa.scalar(value), rows.num_rows)
            for name, value in given.items()
        }
        fields = pa.schema([SCHEMA.field(name) for name in columns])
        self._tables.append(pa.table(columns).cast(fields))

    def one(self, kind: str, scope: str = "", **more: str | int) -> None:
        self._single.append({"kind": kind, "scope": scope, **more})

    def table(self) -> pa.Table:
        single = pa.Table.from_pylist(self._single, SCHEMA)
        rows = pa.concat_tables([single, *self._tables], promote_options="default")
        empty = {column.name: pa.scalar(_EMPTY[column.type], column.type) for column in SCHEMA} | {"least": NEVER}
        return pa.table([pc.fill_null(rows[name], value) for name, value in empty.items()], schema=SCHEMA)
