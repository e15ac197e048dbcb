"""Figures of single queues added up by scope and by reading of the outflow that serves them."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dr_ctl.rpo.core.arrays import NA, Flags, Ints


@dataclass(frozen=True, slots=True)
class OfQueues:
    """Figures of single queues (`row`), NA where not known: at which index they count, in how many indices up to it."""

    index: Ints
    row: Ints
    wide: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    is_floor: Flags


@dataclass(frozen=True, slots=True)
class Sums:
    """The queues of each scope (the first is the total) added up by reading: of the interval that ends with it, or of
    the reading itself. `queues`: how many were counted; `unknown` of a figure: at least one of them does not tell
    it."""

    queues: Ints
    loss: Ints
    age: Ints
    duplicates: Ints
    loss_unknown: Flags
    duplicates_unknown: Flags
    is_floor: Flags

    @classmethod
    def none(cls, scopes: int, readings: int) -> Self:
        nothing: list[Any] = [np.zeros((scopes, readings), kind) for kind in (*(np.int64,) * 4, *(np.bool_,) * 3)]
        return cls(*nothing)

    def add(self, rows: OfQueues, counts: Flags) -> None:
        """Add queues by scope and index. Those that were looked at alike are added up first, and spread over indices
        then: an interval in which the outflow was looked at more often than the queue counts in each of its parts."""
        spread = Spread.of(rows.index, rows.wide, self.queues.shape[1])
        lost, twice = rows.loss != NA, rows.duplicates != NA
        for scope, counted in enumerate(counts):
            inside = counted[rows.row]
            sums = {
                "queues": inside | (scope == 0),  # queues left out count nothing in the total, and were read
                "loss": rows.loss * (inside & lost),
                "duplicates": rows.duplicates * (inside & twice),
                "loss_unknown": inside & ~lost,
                "duplicates_unknown": inside & ~twice,
                "is_floor": inside & rows.is_floor,
            }
            for name, values in sums.items():
                total = getattr(self, name)[scope]
                total += spread.over(np.bincount(spread.at, values, spread.many)).astype(total.dtype)
            some = np.flatnonzero(inside & lost & (rows.age > 0))
            age = np.zeros(spread.many, np.int64)
            np.maximum.at(age, spread.at[some], rows.age[some])
            np.maximum.at(self.age[scope], spread.index, age[spread.again])


@dataclass(frozen=True, slots=True)
class Spread:
    """Windows of indices: which of so `many` each row is of (`at`), how many indices are in each (`wide`), and all
    indices of all (`index`), each of the window `again`; a window is its index where none is wider than one."""

    at: Ints
    many: int
    wide: Ints
    again: Ints
    index: Ints
    readings: int

    @classmethod
    def of(cls, index: Ints, wide: Ints, readings: int) -> Self:
        """Of rows, the last index of each and how many indices up to it; `readings` indices into all."""
        widest = int(wide.max(initial=1))
        every = np.arange(readings)
        if widest <= 1:
            return cls(index, readings, np.ones(readings, np.int64), every, every, readings)
        window, at = np.unique(index * (widest + 1) + wide, return_inverse=True)
        last, wide = window // (widest + 1), window % (widest + 1)
        again = np.repeat(np.arange(len(wide)), wide)
        back = np.arange(len(again)) - np.repeat(np.cumsum(wide) - wide, wide)
        return cls(at, len(window), wide, again, last[again] - back, readings)

    def over(self, values: Any) -> Any:
        """What windows hold, added up by index."""
        return np.bincount(self.index, values[self.again], self.readings)
