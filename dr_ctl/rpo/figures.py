"""Quantiles and their intervals from weighted histograms. Plain numbers in and out; no Spark here.

An interval respects autocorrelation: the window is cut into blocks, the share of time below a value is one figure for
each of them, and how much these differ says how well the share is known (batch means). The interval of a quantile holds
those values of which it cannot be said that more, or less, of the time lies below them than the quantile says.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.cells import BOTH, HELD, HERE, LAST, PUT, TOLD, Cell
from dr_ctl.rpo.result import PROBABILITIES, Number, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LEAST_BLOCKS: Final = 24
LEAST_EXCURSIONS: Final = 10


def t_value(freedom: int) -> float:
    """Student's t for a two-sided 95 %, by Cornish and Fisher's expansion: 0.2 % off at 5 degrees, less above."""
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


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
        return self._inverted(probability, times)

    def _inverted(self, probability: float, times: Mapping[int, int]) -> tuple[int, int]:
        whole, count = sum(times.values()), len(times)
        t = t_value(count - 1)
        below: dict[int, int] = dict.fromkeys(times, 0)
        low: int | None = None
        for bucket in sorted(self.weights):
            for block, weight in self.weights[bucket].items():
                if block in below:
                    below[block] += weight
            share = sum(below.values()) / whole
            spread = sum((below[block] - share * times[block]) ** 2 for block in times)
            error = t * math.sqrt(count / (count - 1) * spread) / whole
            if low is None and share + error >= probability:
                low = self.largest[bucket]
            if share - error >= probability:
                return (low if low is not None else self.largest[bucket]), self.largest[bucket]
        most = max(self.largest.values())
        return (low if low is not None else most), most


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
