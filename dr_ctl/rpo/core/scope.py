"""The figures of one scope (the total, a class of queues, a flow) from rows that can be summed: quantiles with their
confidence intervals, the last reading, forecasts, and how well the time is covered; and facts on a history."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.model import by_key
from dr_ctl.rpo.core.arrays import DAY_US, HOUR_US, NA, SECOND_US, Flags, Floats, Ints
from dr_ctl.rpo.core.hour import Changes
from dr_ctl.rpo.core.quantities import PROBABILITIES, UNITS, Curves, Figures, Horizon, Number, Quantity
from dr_ctl.rpo.core.rows import (
    CLASS,
    MILLI,
    TOTAL,
    UNKNOWN,
    Histogram,
    covered_blocks,
    fineness,
    quantity,
    scaled,
    wall_blocks,
    weighted_quantile,
)
from dr_ctl.rpo.core.step_functions import METRICS, drain_ms, rates

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28
QUANTILES: Final = (*PROBABILITIES.values(), 1.0)
Limits = Mapping[str, Number]
"""The limits that a scope has: the most messages that may be lost (`loss`), and their greatest age (`age_s`)."""


@dataclass(frozen=True, slots=True)
class ScopeQuery:
    """The query for every scope. Outflows were read from `first_us` to `last_us`, in the hour `hour_us`; `end_us` is
    the end of the history. In the hours `away_us` a pair that had been read before was not read. `limits` are by scope;
    the curves of the total have `bins` points, if any. A backtest sets `horizons_s`."""

    first_us: int
    last_us: int
    hour_us: int
    end_us: int
    away_us: tuple[int, ...] = ()
    horizon_s: float = 300.0
    limits: Mapping[str, Limits] = field(default_factory=dict)
    bins: int = 0
    horizons_s: tuple[float, ...] = ()

    @property
    def horizon_us(self) -> int:
        return int(self.horizon_s * SECOND_US)

    @property
    def since_us(self) -> int:
        """The begin of the last day, less the horizon: forecasts use no older changes."""
        return self.last_us - DAY_US - self.horizon_us

    @property
    def span_us(self) -> tuple[int, int]:
        return self.first_us, self.last_us

    @property
    def blocks(self) -> int:
        return BLOCKS_OF_A_WEEK if self.last_us - self.first_us >= 7 * DAY_US else BLOCKS


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest likely loss and its moment; how many `times` it was above the limit, and from when and how long the
    longest time."""

    at_us: int
    most: int
    times: int = 0
    from_us: int = 0
    longest_us: int = 0


@dataclass(frozen=True, slots=True)
class ScopeFigures:
    """The time in which the site served: readings cover `covered_us`, came late for `late_us`, and are missing for
    `unseen_us`; takeovers inside the site took `taken_over_us`. For `floor_us` the age is a lower bound; for `above_us`
    a limit was exceeded, or may have been; for `uncompared_us` some messages were not compared by id. `shipped` is the
    rate of shipping while messages waited, `came` the highest arrival rate."""

    figures: Figures
    covered_us: int
    late_us: int
    taken_over_us: int
    unseen_us: int
    floor_us: int
    above_us: int
    uncompared_us: int
    shipped: float | None
    came: float | None
    peak: Peak | None = None
    curves: Curves | None = None

    @property
    def uncovered(self) -> float:
        """The share of the time in which the site served that is not covered."""
        whole = self.covered_us + self.late_us + self.unseen_us
        return (self.late_us + self.unseen_us) / whole if whole else 0.0


def figures(scope: str, table: pa.Table, query: ScopeQuery) -> ScopeFigures:
    rows, is_total = Scope(scope, table, query), scope == TOTAL
    covered, late, taken_over, idle, floor = map(rows.weight, ("covered", "late", "taken over", "idle", "floor"))
    unseen = max(0, query.last_us - query.first_us - covered - late - taken_over - idle)
    peak, curves = rows.peak if is_total else None, rows.curves() if is_total and query.bins else None
    times = covered, late, taken_over, unseen, floor, rows.above_us, rows.uncompared_us
    return ScopeFigures(rows.figures(), *times, *rows.link, peak, curves)


@dataclass(frozen=True, slots=True)
class ScopeRows(Changes):
    """Rows of one kind and metric, which may be changes; `flow` is an index into the words of all."""

    horizon_us: Ints
    bucket: Ints
    acks: Flags
    least: Ints

    @property
    def values(self) -> Ints:
        return np.where(self.bucket == UNKNOWN, NA, self.most)


class Scope:
    def __init__(self, name: str, table: pa.Table, query: ScopeQuery) -> None:
        self._query, self._is_class = query, name.startswith(CLASS)
        self._limits = query.limits.get(name, {})
        self._away = np.array(query.away_us if self._is_class or name == TOTAL else (), np.int64)
        flow = pc.dictionary_encode(table["flow"].combine_chunks()).indices.cast(pa.int64())
        self._rows = table.set_column(table.schema.get_field_index("flow"), "flow", flow)

    def rows_of(self, kind: str, metric: str = "", *, likely: bool = False) -> ScopeRows:
        wanted = (pc.field("kind") == kind) & (pc.field("metric") == metric) & (pc.field("likely") == likely)
        rows = self._rows.filter(wanted)
        return ScopeRows(**{column.name: rows[column.name].to_numpy() for column in fields(ScopeRows)})

    def _without_away(self, rows: ScopeRows) -> ScopeRows:
        return rows.only(~np.isin(rows.cell - rows.cell % HOUR_US, self._away))

    def weight(self, metric: str) -> int:
        rows = self.rows_of("time", metric)
        return int((self._without_away(rows) if metric == "covered" else rows).weight.sum())

    def histogram(self, metric: str, *, likely: bool = False) -> Histogram:
        """Make a histogram in blocks of covered time of about equal length, each of whole cells."""
        rows, blocks = self._without_away(self.rows_of("figure", metric, likely=likely)), self._query.blocks
        cells, weight = self._covered
        block = covered_blocks(weight, blocks)
        at = block[np.searchsorted(cells, rows.cell)] if len(rows.cell) else rows.cell
        return Histogram.of(self._values(metric, rows), rows.weight, at, blocks)

    @cached_property
    def _covered(self) -> tuple[Ints, Ints]:
        covered = self._without_away(self.rows_of("time", "covered"))
        cells, at = np.unique(covered.cell, return_inverse=True)
        return cells, np.bincount(at, covered.weight, len(cells)).astype(np.int64)

    def folded(self, metric: str, folds: int) -> Histogram:
        """Make a histogram in blocks of the time from the first reading to the last."""
        rows = self._without_away(self.rows_of("figure", metric))
        return Histogram.of(rows.values, rows.weight, wall_blocks(rows.cell, self._query.span_us, folds), folds)

    def _values(self, metric: str, rows: ScopeRows) -> Ints:
        """Return the figures; of a drain, its time at the recorded rates."""
        if metric != "drain":
            return rows.values
        values = np.full(len(rows.bucket), NA)
        for flow, acks in {*zip(rows.flow.tolist(), rows.acks.tolist(), strict=True)}:
            is_same = (rows.flow == flow) & (rows.acks == acks)
            values[is_same] = drain_ms(rows.values[is_same], self._rates(flow, acks=acks))
        return values

    def _rates(self, flow: int, *, acks: bool) -> Floats:
        rows = self.rows_of("shipped")
        rows = rows.only((rows.flow == flow) & (rows.acks == acks))
        return rates(rows.least / MILLI, rows.count, rows.level)

    def changes(self, metric: str, horizon_us: int, since_us: int) -> Changes:
        rows = self.rows_of("change", metric)
        return rows.only((rows.cell >= since_us - since_us % HOUR_US) & (rows.horizon_us == horizon_us))

    def _now(self, metric: str, *, likely: bool = False) -> tuple[int | None, bool]:
        """Return the figure at the last reading, and whether it stalls. The figure is None if it was last read long
        ago, or is not known."""
        last = self._last("now", metric, likely=likely)
        if last is None:
            return None, False
        value = int(self._values(metric, last)[0])
        return (None if value == NA else value), bool(last.stalled[0])

    def _since(self, metric: str) -> int | None:
        last = self._last("since", metric)
        return None if last is None else int(last.most[0])

    def _last(self, kind: str, metric: str, *, likely: bool = False) -> ScopeRows | None:
        rows = self.rows_of(kind, metric, likely=likely)
        at = np.flatnonzero(rows.cell == self._query.hour_us)
        return rows.take(at[:1]) if len(at) else None

    @property
    def _arrival_rates(self) -> list[float] | None:
        """The 50th, 95th and 99th percentile and the greatest rate at which things are put in, a second, or None if not
        known."""
        put, by_flow = self.rows_of("arrivals"), []
        for flow in np.unique(put.flow).tolist():
            rows = put.only(put.flow == flow)
            by_rate = Histogram.of(rows.most, rows.count, np.zeros_like(rows.most), 1)
            by_flow.append([(by_rate.quantile(probability) or 0) / MILLI for probability in QUANTILES])
        return [sum(of_flows) for of_flows in zip(*by_flow, strict=True)] if by_flow else None

    @property
    def link(self) -> tuple[float | None, float | None]:
        """The rate of shipping of the only flow while messages waited, and the highest arrival rate; None: not
        known."""
        put = self.rows_of("arrivals")
        flows = {*put.flow.tolist()}
        shipped = self._rates(flows.pop(), acks=False)[0] if len(flows) == 1 else np.nan
        return (None, None) if np.isnan(shipped) else (float(shipped), int(put.most.max()) / MILLI)

    def figures(self) -> Figures:
        rows = self.rows_of("accounted")
        put, of_queues = (0, 0) if self._is_class else (int(rows.weight.sum()), int(rows.count.sum()))
        loss, age_s, duplicates, drain_s = map(self._quantity, (*METRICS, "drain"))
        unexplained = round(1 - of_queues / put, 6) if put else None
        return Figures(loss, age_s, duplicates, drain_s, self._ahead(), unexplained)

    def _quantity(self, metric: str) -> Quantity:
        bound, likely = (self.histogram(metric, likely=is_likely) for is_likely in (False, True))
        now, likely_now = (self._now(metric, likely=is_likely)[0] for is_likely in (False, True))
        return quantity(now, bound, likely_now, likely, UNITS[metric])

    def _ahead(self) -> Horizon:
        query, stalled = self._query, self._now("loss")[1]
        arrivals = self._arrival_rates if stalled and not self._is_class else None
        added = None if arrivals is None else [int(-(-rate * query.horizon_s // 1)) for rate in arrivals]
        level = (self._since("loss") or 0).bit_length()

        def figure(metric: str, fallback: Sequence[int] | None) -> Quantity:
            similar = self.changes(metric, query.horizon_us, query.since_us).similar(level, stalled=stalled)
            # Changes are those of bounds over intervals, so they are added to the bound of the last interval.
            now, since = self._now(metric)[0], self._since(metric)
            return ahead(now, since, similar, fallback, UNITS[metric])

        later_ms = [int(query.horizon_s * 1000)] * 4 if stalled else None
        return Horizon(query.horizon_s, loss=figure("loss", added), age_s=figure("age_ms", later_ms))

    @property
    def above_us(self) -> int:
        """The longest time for which a figure was above its limit, or not known."""
        metrics = {"loss": "loss", "age_s": "age_ms"}
        limits = [(metrics[figure], most) for figure, most in self._limits.items()]
        return max((self.histogram(of).above(math.ceil(most * UNITS[of])) for of, most in limits), default=0)

    @property
    def uncompared_us(self) -> int:
        """The time for which the loss has a bound but no likely figure, because messages were not compared by id."""
        bound, likely = (int(self.histogram("loss", likely=of).unknown.sum()) for of in (False, True))
        return max(0, likely // 2 - bound)  # both ends of an interval have a likely figure

    @property
    def peak(self) -> Peak | None:
        rows = self._without_away(self.rows_of("curve", "loss", likely=True))
        order = np.argsort(rows.cell, kind="stable")
        cells, most = rows.cell[order], rows.most[order]
        if not len(cells) or most.max() <= 0:
            return None
        at = int(np.argmax(most))
        worst, limit = (int(cells[at]), int(most[at])), self._limits.get("loss")
        if limit is None or worst[1] <= limit:
            return Peak(*worst)
        above = np.flatnonzero(most > limit)
        lengths = self._lengths(cells[above])
        new = np.append(True, cells[above][1:] > cells[above][:-1] + lengths[:-1])
        begins = np.flatnonzero(new)
        took = np.add.reduceat(lengths, begins)
        longest = int(np.argmax(took))
        return Peak(*worst, len(begins), int(cells[above][begins[longest]]), int(took[longest]))

    def _lengths(self, cells: Ints) -> Ints:
        return np.array([fineness(us, self._query.end_us).curve_us for us in cells.tolist()], np.int64)

    def curves(self) -> Curves:
        most = {metric: self._curve(metric) for metric in UNITS}
        return Curves(*self._query.span_us, most, {metric: self._curve(metric, likely=True) for metric in METRICS})

    def _curve(self, metric: str, *, likely: bool = False) -> list[Number | None]:
        rows, query = self._without_away(self.rows_of("curve", metric, likely=likely)), self._query
        values = self._values(metric, rows) if metric == "drain" else rows.most
        ends = rows.cell + self._lengths(rows.cell) - 1
        first, last = (wall_blocks(us, query.span_us, query.bins) for us in (rows.cell, ends))
        wide = last - first + 1
        at = np.repeat(first, wide) + np.arange(wide.sum()) - np.repeat(np.cumsum(wide) - wide, wide)
        most = np.full(query.bins, NA)
        np.maximum.at(most, at, np.repeat(values, wide))
        return [None if value == NA else scaled(value, UNITS[metric]) for value in most.tolist()]


def ahead(
    now: int | None, since: int | None, similar: Changes | None, fallback: Sequence[int] | None = None, per: float = 1.0
) -> Quantity:
    """Return the figure one horizon ahead of the interval in which it was at most `since`; `now` is the last reading
    itself. `fallback` has the changes at p50, p95, p99 and at most, if there are no similar moments.

    The result has no interval, because the moments are too few and too similar for one."""
    changes: Sequence[int | None] = fallback or [None] * len(QUANTILES)
    if similar is not None:
        changes = [weighted_quantile(similar.most, similar.weight, p) for p in QUANTILES]
    later = [None if since is None or change is None else scaled(max(0, since + change), per) for change in changes]
    p50, p95, p99, most = later
    return Quantity(scaled(now, per), p50, p95, p99, most)


def pair_of(flow: str) -> str:
    return str(json.loads(flow)[0])


class Samples(NamedTuple):
    """The first and the last reading of a flow, their number, and how far apart readings were at most."""

    first_us: int
    last_us: int
    readings: int
    spacing_us: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts on a history: `flows` in order; the `hours` with readings, by pair; `roles`, with the moment at which the
    site was last seen in each; `shares`, by flow and queue (no name: all others), with message-milliseconds of likely
    loss and the most at a reading; and the `classes` of which a queue was read."""

    flows: Mapping[str, Samples]
    hours: Mapping[str, set[int]]
    hour_us: int
    roles: Mapping[str, int]
    shares: Sequence[tuple[str, str, int, int]]
    classes: set[str]

    @classmethod
    def of(cls, sums: Iterable[Mapping[str, Any]], hours: Iterable[tuple[str, int]]) -> Self:
        """`sums` has `VALUES` by kind, scope and name, each with its last cell; `hours` has pairs, and hours in which
        they were read."""
        of = by_key((row["kind"], row) for row in sums)
        read, spacing = of.get("readings", []), {row["scope"]: row["most"] for row in of.get("spacing", ())}
        flows = {
            row["scope"]: Samples(row["least"], row["most"], row["count"], spacing.get(row["scope"], 0))
            for row in sorted(read, key=lambda row: json.loads(row["scope"]))
        }
        by_pair = {pair: {*of_pair} for pair, of_pair in by_key(hours).items()}
        hour_us = max((row["cell"] for row in read), default=-1)
        roles = {row["name"]: row["most"] for row in of.get("role", ())}
        shares = sorted((row["scope"], row["name"], row["weight"], row["most"]) for row in of.get("share", ()))
        classes = {row["scope"] for row in of.get("queues", ()) if row["count"]}
        return cls(flows, by_pair, hour_us, roles, shares, classes)

    @property
    def span_us(self) -> tuple[int, int]:
        return min(flow.first_us for flow in self.flows.values()), max(flow.last_us for flow in self.flows.values())

    @property
    def pairs(self) -> Mapping[str, Sequence[Samples]]:
        return by_key((pair_of(flow), samples) for flow, samples in self.flows.items())

    @property
    def away_us(self) -> tuple[int, ...]:
        """Hours in which a pair was not read that had been read before."""
        all_hours = set().union(*self.hours.values())
        away = (hour for hours in self.hours.values() for hour in all_hours - hours if hour > min(hours))
        return tuple(sorted({*away}))

    @property
    def spacing_us(self) -> int:
        return max((flow.spacing_us for flow in self.flows.values()), default=0)
