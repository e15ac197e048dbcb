"""Weighted histograms of step functions: how long a figure stayed where, in which part of the window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from dr_ctl.rpo.core.columns import NA, Flags, Ints

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
    """A figure: the time spent in each bucket (rows, ascending) in each block of the window (columns), the largest
    value seen there, and by block the time in which it was not known: unknown time weighs as if above all."""

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
    def whole(self) -> int:
        return int(self.weights.sum() + self.unknown.sum())

    @property
    def tops(self) -> Ints:
        """The largest value of each bucket."""
        found: Ints = self.largest.max(axis=1, initial=NA)
        return found

    @property
    def max(self) -> int | None:
        return None if not len(self.buckets) or self.unknown.any() else int(self.tops[-1])

    def place_of(self, probability: float) -> int | None:
        """The first bucket up to which at least so much of the time lies, or None where it is not known that high."""
        below = np.cumsum(self.weights.sum(axis=1))
        place = int(np.searchsorted(below, probability * self.whole))
        return place if place < len(below) else None

    def quantile(self, probability: float) -> int | None:
        place = self.place_of(probability)
        return None if place is None else int(self.tops[place])

    def above(self, most: int) -> int:
        """How long it was above a value, or not known."""
        return int(self.weights[self.tops > most].sum() + self.unknown.sum())

    def within(self, blocks: slice) -> Histogram:
        """Histogram of some blocks alone."""
        weights = self.weights[:, blocks]
        rows = weights.sum(axis=1) > 0
        return Histogram(self.buckets[rows], weights[rows], self.largest[:, blocks][rows], self.unknown[blocks])

    def shares(self) -> list[tuple[float, int]]:
        """Up to which figure which share of time."""
        below = np.cumsum(self.weights.sum(axis=1)) / max(1, self.whole)
        return [(float(share), int(top)) for share, top in zip(below, self.tops, strict=True)]


def covered_blocks(weight: Ints, covered: Flags, count: int) -> Ints:
    """Cut covered time into blocks of equal length: the number of that in which each step begins."""
    before = np.cumsum(weight * covered) - weight * covered
    found: Ints = np.minimum(before * count // max(1, int((weight * covered).sum())), count - 1).astype(np.int64)
    return found


def wall_blocks(begin: Ints, span: tuple[int, int], count: int) -> Ints:
    """Cut the time of a window into blocks of equal length."""
    first, last = span
    found: Ints = np.clip((begin - first) * count // max(1, last - first + 1), 0, count - 1)
    return found


def weighted_quantile(values: npt.NDArray[np.generic], weights: Ints, probability: float) -> int | None:
    """The least of the values up to which at least so much of the weight lies."""
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return int(values[order][np.searchsorted(below, probability * below[-1])])
