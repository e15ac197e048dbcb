"""One scope among the rows (the total, a class, a flow): how long which figure was where, how well that is covered, how
it changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from dr_ctl.rpo.core.calendar import HOUR
from dr_ctl.rpo.core.changes import Changes
from dr_ctl.rpo.core.columns import NA, Floats, Ints
from dr_ctl.rpo.core.histogram import Histogram, covered_blocks, weighted_quantile
from dr_ctl.rpo.core.rates import drain_ms, rates
from dr_ctl.rpo.core.rows import MILLI, TOTAL, Part, Rows, class_name

RATES: Final = (0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Scope:
    """`flows` are those within it; `away`: hours in which some pair that had been looked at was not."""

    rows: Rows
    name: str
    flows: Sequence[str]
    away: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def total(cls, rows: Rows) -> Scope:
        return cls(rows, TOTAL, rows.flows, _away(rows))

    @classmethod
    def of_class(cls, rows: Rows, number: int) -> Scope:
        return cls(rows, class_name(number), rows.flows, _away(rows))

    @classmethod
    def of_flow(cls, rows: Rows, flow: str) -> Scope:
        return cls(rows, flow, [flow])

    @property
    def has_queues(self) -> bool:
        """Whether a queue of it was ever read."""
        return bool(self.rows.part("read", self.name).count.any())

    def part(self, kind: str, metric: str, *, likely: bool = False) -> Part:
        """Without time in which a pair was not looked at."""
        told = self.rows.part(kind, self.name, metric, likely=likely)
        return told.take(~np.isin(told.cell - told.cell % HOUR, self.away)) if len(self.away) else told

    def weight(self, metric: str) -> int:
        told = self.part("time", metric) if metric == "covered" else self.rows.part("time", self.name, metric)
        return int(told.weight.sum())

    def histogram(self, metric: str, blocks: int, *, likely: bool = False) -> Histogram:
        told = self.part("figure", metric, likely=likely)
        values = self.took(told) if metric == "drain" else told.values
        return Histogram.of(values, told.weight, self._block(told.cell, blocks), blocks)

    def took(self, told: Part) -> Ints:
        """How long what waits takes to drain, by all that is known."""
        found = np.full(len(told.bucket), NA)
        for flow in np.unique(told.flow).tolist():
            for acks in (False, True):
                mine = np.flatnonzero((told.flow == flow) & (told.acks == acks))
                if len(mine):
                    found[mine] = drain_ms(told.values[mine], self.rates(self.rows.words[flow], acks=acks))
        return found

    def rates(self, flow: str, *, acks: bool) -> Floats:
        told = self.rows.part("drained", flow)
        mine = told.take(told.acks == acks)
        return rates(mine.slowest, mine.count, mine.level)

    def _block(self, cell: Ints, blocks: int) -> Ints:
        """Covered time in blocks of about equal length, each of whole cells."""
        cells, weight = self._covered
        block = covered_blocks(weight, np.ones(len(cells), bool), blocks)
        return block[np.searchsorted(cells, cell)] if len(cell) else cell

    @cached_property
    def _covered(self) -> tuple[Ints, Ints]:
        covered = self.part("time", "covered")
        cells, at = np.unique(covered.cell, return_inverse=True)
        return cells, np.bincount(at, covered.weight, len(cells)).astype(np.int64)

    def changes(self, metric: str, horizon_us: int, since_us: int) -> Changes:
        told = self.rows.part("change", self.name, metric)
        told = told.take((told.cell >= since_us - since_us % HOUR) & (told.horizon_us == horizon_us))
        return Changes(told.flow, told.cell, told.level, told.stalled, told.most, told.weight, told.count)

    def now(self, metric: str, *, likely: bool) -> tuple[int | None, bool] | None:
        """The figure at the last look, and whether it stalls; None where it was last read long ago."""
        told = self._last("now", metric, likely=likely)
        if told is None:
            return None
        values = self.took(told) if metric == "drain" else told.values
        value = int(values[0])
        return (None if value == NA else value), bool(told.stalled[0])

    def since(self, metric: str) -> int | None:
        """The bound of the last covered time."""
        told = self._last("since", metric)
        return None if told is None else int(told.most[0])

    def _last(self, kind: str, metric: str, *, likely: bool = False) -> Part | None:
        told = self.rows.part(kind, self.name, metric, likely=likely)
        at = np.flatnonzero(told.cell == last_hour(self.rows))
        return told.take(at[:1]) if len(at) else None

    @property
    def put_rates(self) -> list[float] | None:
        """The 50th, 95th and 99th percentile and the greatest rate at which things are put in, a second; None where
        nobody knows."""
        found = []
        for flow in self.flows:
            told = self.rows.part("put", flow)
            if len(told.count):
                order = np.argsort(told.bucket, kind="stable")
                numbers, at = np.unique(told.bucket[order], return_inverse=True)
                most = np.zeros(len(numbers), np.int64)
                np.maximum.at(most, at, told.most[order])
                count = np.bincount(at, told.count[order]).astype(np.int64)
                found.append([(weighted_quantile(most, count, probability) or 0) / MILLI for probability in RATES])
        return [sum(each) for each in zip(*found, strict=True)] if found else None

    @property
    def accounted(self) -> tuple[int, int]:
        """Count the things put into mixed outflows, and how many of them the queues' counters tell."""
        told = [self.rows.part("told", flow) for flow in self.flows]
        return sum(int(each.weight.sum()) for each in told), sum(int(each.count.sum()) for each in told)


def last_hour(rows: Rows) -> int:
    """The last hour with a look at an outflow."""
    return max((int(rows.part("looks", flow).cell.max()) for flow in rows.flows), default=-1)


def looked(rows: Rows, flow: str) -> tuple[int, int]:
    """When a flow was looked at first and last."""
    told = rows.part("looks", flow)
    return int(told.least.min()), int(told.most.max())


def pair_of(flow: str) -> str:
    return str(json.loads(flow)[0])


def _away(rows: Rows) -> Ints:
    by_pair: dict[str, list[Ints]] = {}
    for flow in rows.flows:
        by_pair.setdefault(pair_of(flow), []).append(rows.part("looks", flow).cell)
    found = [np.unique(np.concatenate(cells)) for cells in by_pair.values()]
    every = np.unique(np.concatenate([*found, np.zeros(0, np.int64)]))
    gone = [np.setdiff1d(every[every > cells[0]], cells) for cells in found]
    return np.unique(np.concatenate([*gone, np.zeros(0, np.int64)])).astype(np.int64)
