"""Rows of a summary, by scope: how long which figure was where, how well that is covered, how it
changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.periods import HOUR, Calendar
from dr_ctl.rpo.estimate.summary import MILLI, MOVED, TOTAL, UNKNOWN, class_name, grouped
from dr_ctl.rpo.series.columns import NA, Flags, Floats, Ints
from dr_ctl.rpo.series.flow import UNEXPLAINED, Drained
from dr_ctl.rpo.series.histogram import Histogram, covered_blocks, weighted_quantile
from dr_ctl.rpo.series.steps import drain_ms

RATES: Final = (0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one scope that say one thing, by cell and key; `name` is a place in the words of all."""

    name: Ints
    cell: Ints
    key: Ints
    weight: Ints
    most: Ints

    def take(self, at: Ints | Flags) -> Part:
        return Part(self.name[at], self.cell[at], self.key[at], self.weight[at], self.most[at])

    @property
    def at_any_time(self) -> Part:
        """Weights by key alone."""
        if not len(self.key):
            return self
        cell, key, weight, most = grouped(np.zeros_like(self.cell), self.key, self.weight, self.most)
        return Part(np.zeros_like(cell), cell, key, weight, most)

    @property
    def values(self) -> Ints:
        return np.where(self.key == UNKNOWN, NA, self.most)


_NONE: Final = Part(*(np.zeros(0, np.int64),) * 5)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a summary, by scope and what they say."""

    parts: dict[tuple[str, str], Part]
    words: Sequence[str]
    calendar: Calendar

    @classmethod
    def of(cls, tables: Sequence[pa.Table], calendar: Calendar) -> Self:
        whole = pa.concat_tables(tables).combine_chunks()
        if not whole.num_rows:
            return cls({}, (), calendar)
        coded = [pc.dictionary_encode(whole[each]).combine_chunks() for each in ("scope", "what", "name")]
        chunks = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in coded]
        scopes, whats, words = (each.dictionary.to_pylist() for each in chunks)
        scope, what, name = (each.indices.to_numpy().astype(np.int64) for each in chunks)
        cell, key, weight, most = (whole[each].to_numpy() for each in ("cell", "key", "weight", "most"))
        group = scope * len(whats) + what
        order = np.lexsort((name, key, cell, group))
        all_rows, group = Part(name, cell, key, weight, most).take(order), group[order]
        first = _first(group, all_rows.cell, all_rows.key, all_rows.name)
        weight, most = np.add.reduceat(all_rows.weight, first), np.maximum.reduceat(all_rows.most, first)
        all_rows, group = replace(all_rows.take(first), weight=weight, most=most), group[first]
        edges = np.flatnonzero(np.diff(group)) + 1
        parts = {}
        for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(group)], strict=True):
            code = int(group[begin])
            parts[scopes[code // len(whats)], whats[code % len(whats)]] = all_rows.take(slice(begin, end))  # type: ignore[arg-type]
        return cls(parts, words, calendar)

    def part(self, scope: str, what: str) -> Part:
        return self.parts.get((scope, what), _NONE)

    @property
    def flows(self) -> list[str]:
        """The scopes of flows, by pair and name."""
        return sorted((scope for scope, what in self.parts if what == "looks"), key=json.loads)

    def looked(self, flow: str) -> tuple[int, int]:
        """When a flow was looked at first and last."""
        return -int(self.part(flow, "first look").most.max()), int(self.part(flow, "looks").most.max())

    def rates(self, flow: str, side: int) -> Floats:
        told = self.part(flow, "rate")
        mine = told.take(told.key // MOVED // 64 == side).at_any_time
        return Drained(mine.cell, -mine.most / MILLI, mine.weight, mine.key // MOVED % 64).rates()

    def put_rates(self, flow: str) -> list[float]:
        """The 50th, 95th and 99th percentile and the greatest rate at which things were put in, a second."""
        told = self.part(flow, "put rate").at_any_time
        found = (weighted_quantile(told.most, told.weight, probability) for probability in RATES)
        return [each / MILLI for each in found if each is not None]

    def accounted(self, flows: Sequence[str]) -> tuple[int, int]:
        """Count the things put into mixed outflows, and how many of them the queues' counters tell."""
        put, told = (sum(int(self.part(flow, what).weight.sum()) for flow in flows) for what in ("accounted", "told"))
        return put, told

    def lacking(self, flow: str, bit: int) -> Ints:
        """Cells in which a queue that was read before was not: things put into the outflow meanwhile do not show that
        it is gone."""
        cells = np.unique(self.part(flow, "looks").cell)
        told = self.part(flow, "queue")
        told = told.take(((told.key >> bit & 1) > 0) & np.isin(told.cell, cells))
        if not len(told.key):
            return cells[:0]
        _, queue = np.unique(told.name, return_inverse=True)
        at = np.searchsorted(cells, told.cell)
        first = np.full(queue.max() + 1, len(cells))
        np.minimum.at(first, queue, at)
        expected = np.searchsorted(np.sort(first), np.arange(len(cells)), "right")
        lacks = np.bincount(at, minlength=len(cells)) < expected
        if not lacks.any():
            return cells[:0]
        put, excess = (np.bincount(np.searchsorted(cells, part.cell), part.weight, len(cells))
                       for part in (self.part(flow, "put"), self.part(flow, "excess")))  # fmt: skip
        usual = excess[~lacks].sum() / max(1, put[~lacks].sum())
        found = np.zeros(len(cells), bool)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], lacks.astype(np.int8), [0]])))
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            share = excess[begin:end].sum() / max(1, put[begin:end].sum())
            found[begin:end] = share > usual + UNEXPLAINED
        return cells[found]

    @property
    def away(self) -> Ints:
        """Cells in which some pair that had been looked at was not."""
        by_pair: dict[str, list[Ints]] = {}
        for flow in self.flows:
            by_pair.setdefault(json.loads(flow)[0], []).append(self.part(flow, "looks").cell)
        found = [np.unique(np.concatenate(cells)) for cells in by_pair.values()]
        every = np.unique(np.concatenate([*found, np.zeros(0, np.int64)]))
        gone = [np.setdiff1d(every[every > cells[0]], cells) for cells in found]
        return np.unique(np.concatenate([*gone, np.zeros(0, np.int64)])).astype(np.int64)


def _first(*sorted_: Ints) -> Ints:
    """The places at which another row begins."""
    new = np.ones(len(sorted_[0]), bool)
    new[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in sorted_])
    return np.flatnonzero(new)


@dataclass(frozen=True)
class Scope:
    """A scope among the rows; `bit` is its place in the masks of queues, `flows` are those within it."""

    rows: Rows
    name: str
    bit: int
    flows: Sequence[str]
    away: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def total(cls, rows: Rows) -> Scope:
        return cls(rows, TOTAL, 0, rows.flows, rows.away)

    @classmethod
    def of_class(cls, rows: Rows, number: int) -> Scope:
        return cls(rows, class_name(number), number + 1, rows.flows, rows.away)

    @classmethod
    def of_flow(cls, rows: Rows, flow: str) -> Scope:
        return cls(rows, flow, 0, [flow])

    @property
    def has_queues(self) -> bool:
        """Whether a queue of it was ever read."""
        return any((self.rows.part(flow, "queue").key >> self.bit & 1).any() for flow in self.flows)

    @cached_property
    def lacking(self) -> Ints:
        found = [self.rows.lacking(flow, self.bit) for flow in self.flows]
        return np.unique(np.concatenate([*found, np.zeros(0, np.int64)]))

    def part(self, what: str) -> Part:
        """Without time in which a pair was not looked at."""
        told = self.rows.part(self.name, what)
        return told.take(~np.isin(self._read(told.cell), self.away)) if len(self.away) else told

    def told(self, what: str) -> Part:
        """Rows that depend on which queues were read."""
        plain = self.part(what)
        if not len(self.lacking):
            return plain
        lacking = self.part(f"lacking {what}")
        some = [plain.take(~np.isin(self._read(plain.cell), self.lacking)),
                lacking.take(np.isin(self._read(lacking.cell), self.lacking))]  # fmt: skip
        return Part(*(np.concatenate([getattr(each, name) for each in some]) for name in Part.__dataclass_fields__))

    def _read(self, cell: Ints) -> Ints:
        """The cells of what was read in which those of figures lie."""
        known, at = np.unique(cell, return_inverse=True)
        lengths = [self.rows.calendar.fineness(us).read_us for us in known.tolist()]
        return (known - known % np.array(lengths, np.int64) if len(known) else known)[at]

    def weight(self, what: str) -> int:
        return int(self.part(what).weight.sum())

    def histogram(self, what: str, blocks: int) -> Histogram:
        told = self.told(what)
        return Histogram.of(told.values, told.weight, self._block(told.cell, blocks), blocks)

    def drain(self, what: str, blocks: int) -> Histogram:
        told = self.part(what)
        return Histogram.of(self.took(told), told.weight, self._block(told.cell, blocks), blocks)

    def took(self, told: Part) -> Ints:
        """How long what waits takes to drain, by all that is known."""
        found = np.full(len(told.key), NA)
        for name in np.unique(told.name).tolist():
            mine = told.name == name
            side, _, flow = self.rows.words[name].partition(" ")
            found[mine] = drain_ms(told.values[mine], self.rows.rates(flow, int(side)))
        return found

    def _block(self, cell: Ints, blocks: int) -> Ints:
        """Covered time in blocks of about equal length, each of whole cells."""
        covered = self.part("covered")
        cells, at = np.unique(covered.cell, return_inverse=True)
        weight = np.bincount(at, covered.weight, len(cells)).astype(np.int64)
        block = covered_blocks(weight, np.ones(len(cells), bool), blocks)
        return block[np.searchsorted(cells, cell)] if len(cell) else cell

    def changes(self, metric: str, since_us: int) -> Changes:
        told, moments = self.rows.part(self.name, f"change {metric}"), self.rows.part(self.name, f"moments {metric}")
        recent = told.cell >= since_us - since_us % HOUR
        told, state = told.take(recent), told.key[recent] // (2 * MOVED)
        return Changes(told.cell, state // 2, state % 2 > 0, told.most, told.weight, moments.weight[recent])
