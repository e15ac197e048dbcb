"""Quantiles and their intervals from weighted histograms. Plain numbers in and out; no Spark here.

An interval respects autocorrelation: the window is cut into blocks, the share of time below the quantile is one figure
for each of them, and how much these differ says how well that share is known (batch means). As many independent answers
as would know it as well give an interval of shares, and what lies at its ends is the interval of the quantile.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate.cells import BOTH, HELD, HERE, LAST, PUT, TOLD, Cell
from dr_ctl.rpo.estimate.result import PROBABILITIES, Number, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LEAST_BLOCKS: Final = 24
LEAST_EXCURSIONS: Final = 10
Z: Final = 1.959964


def t_value(freedom: int) -> float:
    """Student's t for a two-sided 95 %, by Cornish and Fisher's expansion: 0.2 % off at 5 degrees, less above."""
    first, second = (Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    return Z + first / freedom + second / freedom**2


@dataclass(slots=True)
class Histogram:
    """One figure of one scope: by bucket the time spent there in each block, the largest value, and the states."""

    weights: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    largest: dict[int, int] = field(default_factory=dict)
    states: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    steps: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, cell: Cell) -> None:
        if cell.kind == BOTH:
            self.steps[cell.bucket] += cell.states
            return
        self.weights[cell.bucket][cell.block] += cell.weight_us
        self.largest[cell.bucket] = max(self.largest.get(cell.bucket, cell.value), cell.value)
        self.states[cell.bucket] += cell.states

    @property
    def whole_us(self) -> int:
        return sum(sum(blocks.values()) for blocks in self.weights.values())

    @property
    def max(self) -> int | None:
        return max(self.largest.values(), default=None)

    def bucket_of(self, probability: float) -> int | None:
        """The first bucket up to which at least so much of the time lies."""
        whole = self.whole_us
        below = 0
        for bucket in sorted(self.weights):
            below += sum(self.weights[bucket].values())
            if below >= probability * whole:
                return bucket
        return None

    def quantile(self, probability: float) -> int | None:
        bucket = self.bucket_of(probability)
        return None if bucket is None else self.largest[bucket]

    def excursions(self, bucket: int) -> int:
        """How often it rose above a bucket."""
        states = sum(count for each, count in self.states.items() if each > bucket)
        return states - sum(count for each, count in self.steps.items() if each > bucket)

    def interval(self, probability: float) -> tuple[int, int] | None:
        """The 95 % interval of a quantile; None from too few blocks, or too few separate excursions above it."""
        bucket = self.bucket_of(probability)
        by_block: dict[int, int] = defaultdict(int)
        for blocks in self.weights.values():
            for block, weight in blocks.items():
                by_block[block] += weight
        times = {block: weight for block, weight in by_block.items() if weight > 0}
        if bucket is None or len(times) < LEAST_BLOCKS or self.excursions(bucket) < LEAST_EXCURSIONS:
            return None
        share, error = self._share(bucket, times)
        if error == 0 or share == 1:
            return self.largest[bucket], self.largest[bucket]
        # As many excursions of equal length, one independent of the other, would tell as much.
        if ((1 - share) / error) ** 2 < LEAST_EXCURSIONS:
            return None
        count = share * (1 - share) / error**2 * (Z / t_value(len(times) - 1)) ** 2
        bounds = (self.quantile(each) for each in between(probability, count))
        low, high = (each for each in bounds if each is not None)
        return low, high

    def _share(self, bucket: int, times: Mapping[int, int]) -> tuple[float, float]:
        """The share of the time up to a bucket, and its standard error, from how much it differs between blocks.

        An excursion may last beyond its block: where a block is like the one before it, the two tell less than two.
        """
        below: dict[int, int] = dict.fromkeys(times, 0)
        for each, blocks in self.weights.items():
            for block in below.keys() & blocks.keys() if each <= bucket else ():
                below[block] += blocks[block]
        whole, count = sum(times.values()), len(times)
        share = sum(below.values()) / whole
        off = [below[block] - share * times[block] for block in sorted(times)]
        alike = 2 * sum(one * other for one, other in itertools.pairwise(off))
        spread = sum(each**2 for each in off) + max(0.0, alike)
        return share, math.sqrt(count / (count - 1) * spread) / whole


def between(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share that was told by so many independent answers: Clopper and Pearson's."""
    return (
        _beta(share * count, (1 - share) * count + 1, -Z),
        _beta(share * count + 1, (1 - share) * count, Z),
    )


def _beta(a: float, b: float, z: float) -> float:
    """The quantile of a beta distribution, by Paulson's approximation; `z` is that of the normal one."""
    one, other = 1 / (9 * a), 1 / (9 * b)
    root = math.sqrt((1 - one) ** 2 * other + (1 - other) ** 2 * one - one * other * z**2)
    ratio = (((1 - one) * (1 - other) + z * root) / ((1 - other) ** 2 - other * z**2)) ** 3
    return a * ratio / (b + a * ratio)


@dataclass(slots=True)
class Table:
    """All histograms of an estimate, and the state at the last look."""

    histograms: dict[tuple[str, str], Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    here: dict[tuple[str, str], int | None] = field(default_factory=dict)
    last: dict[tuple[str, str], int | None] = field(default_factory=dict)
    stalled: dict[str, bool] = field(default_factory=dict)
    put: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, cells: Iterable[Cell]) -> Table:
        table = cls()
        for cell in cells:
            match cell.kind:
                case _ if cell.kind in (HELD, BOTH):
                    table.histograms[cell.scope, cell.metric].add(cell)
                case _ if cell.kind == HERE:
                    table.here[cell.scope, cell.metric] = cell.value
                    table.stalled[cell.scope] = cell.stalled
                case _ if cell.kind == LAST:
                    table.last[cell.scope, cell.metric] = cell.value
                case _ if cell.kind == PUT:
                    table.put[cell.scope] = cell.value
                case _ if cell.kind == TOLD:
                    table.told[cell.scope] = cell.value
        return table

    def quantity(self, scope: str, metric: str, *, per: float = 1.0) -> Quantity:
        found = self.histograms.get((scope, metric), Histogram())
        quantiles = {name: scaled(found.quantile(p), per) for name, p in PROBABILITIES.items()}
        intervals = {name: _both(found.interval(p), per) for name, p in PROBABILITIES.items()}
        return Quantity(
            now=scaled(self.here.get((scope, metric)), per), max=scaled(found.max, per), ci95=intervals, **quantiles
        )

    def seconds(self, scope: str, metric: str) -> float:
        found = self.histograms.get((scope, metric))
        return 0.0 if found is None else found.whole_us / 1e6

    def unexplained(self, scope: str) -> float | None:
        """The share of what went into mixed outflows that no queue's counters tell; None where there was none."""
        put = self.put.get(scope)
        return None if not put else round(1 - self.told.get(scope, 0) / put, 6)


def scaled(value: Number | None, per: float) -> Number | None:
    return value if value is None or per == 1.0 else round(value / per, 3)


def _both(interval: tuple[int, int] | None, per: float) -> tuple[Number, Number] | None:
    if interval is None:
        return None
    low, high = (scaled(each, per) for each in interval)
    return (low, high) if low is not None and high is not None else None


def weighted_quantile(values: Iterable[tuple[int, int]], probability: float) -> int | None:
    """The least of the values up to which at least so much of the weight lies: pairs of value and weight."""
    ordered = sorted(values)
    whole = sum(weight for _, weight in ordered)
    for (value, _), below in zip(ordered, itertools.accumulate(weight for _, weight in ordered), strict=True):
        if below >= probability * whole:
            return value
    return None
