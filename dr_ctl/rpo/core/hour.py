"""Summarizes an hour of a history as rows that can be added. Each hour is summarized by itself, so its rows are the
same whatever else is asked; docs/rpo-method.md says which readings it uses.

Similar moments show how a figure changes within the next minutes: moments with the same magnitude of loss (its power of
two) and the same answer to whether the outflow stalls. If they are too few, their neighbours count too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dr_ctl.core.notation import matches
from dr_ctl.rpo.core.arrays import HOUR_US, NA, NEVER, SECOND_US, Flags, Ints, Rows
from dr_ctl.rpo.core.cut import KINDS, LONGEST_GAP_US, SITE, UNCOPIED, Columns, Outflows
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rows import (
    MILLI,
    REACH,
    TOTAL,
    CellLengths,
    Gathered,
    bucket,
    bucket_of,
    class_name,
    fineness,
    flow_name,
)
from dr_ctl.rpo.core.step_functions import METRICS, Figures, Gaps, LagSeries, Steps, fold

MIN_MOMENTS: Final = 30
Add = Callable[..., None]
"""Adds rows to those of the hour, of scopes that are indices into some words."""


@dataclass(frozen=True, slots=True)
class Changes(Rows):
    """Changes of a figure one horizon later. Each moment has its begin (`cell`), the magnitude of its loss (`level`:
    binary digits, 0 for none), whether it stalled, the change (`most`), and the time for which it counts (`weight`);
    `count` moments are alike."""

    flow: Ints
    cell: Ints
    level: Ints
    stalled: Flags
    most: Ints
    weight: Ints
    count: Ints

    @classmethod
    def of(cls, steps: Steps, metric: str, *, horizon_us: int, since_us: int) -> Self:
        """Leave out moments whose horizon reaches beyond the history, or over time that is not covered."""
        steps = steps.only(steps.begin >= since_us)
        begin, loss, figure = steps.begin, steps.bound.loss, steps.bound.of(metric)
        # Flows follow each other so far apart that no horizon reaches the next.
        first_us = int(begin.min(initial=NEVER))
        at_us = steps.flow * (int(steps.end.max(initial=first_us)) - first_us + horizon_us + 1) + begin - first_us
        then = np.searchsorted(at_us, at_us + horizon_us, "right") - 1
        holes = np.cumsum(~steps.covered)
        good = steps.covered & (holes[then] == holes) & (steps.end[then] >= begin + horizon_us)
        good &= (loss != NA) & (figure != NA) & (figure[then] != NA)
        magnitude = np.where(loss <= 0, 0, 1 + np.floor(np.log2(np.maximum(loss, 1)))).astype(np.int64)
        one = np.ones_like(begin)
        return cls(steps.flow, begin, magnitude, steps.stalled, figure[then] - figure, steps.weight, one).only(good)

    def similar(self, at: int, *, stalled: bool) -> Self | None:
        """Return the changes after moments like this one, or None if even all levels together are too few."""
        alike = self.stalled == stalled
        far = np.abs(self.level - at)
        for reach in np.unique(far[alike]):
            near = alike & (far <= reach)
            if self.count[near].sum() >= MIN_MOMENTS:
                return self.only(near)
        return None


class _Summary:
    """Gather the rows of a window, from readings of it and of some time before and after."""

    def __init__(self, gathered: Gathered, rows: Columns, lag: LagSeries, window: HourQuery) -> None:
        self.gathered, self._lag, self._window = gathered, lag, window
        self.names = [flow_name(*key) for key in lag.flows.keys]
        self.is_single = len(self.names) == 1
        self._hour = window.from_us - window.from_us % HOUR_US
        gaps = Gaps.of(rows, lag.flows)
        for scope in range(1 + len(window.classes)):
            steps = lag.steps(scope)
            self._scope(scope, fold(steps, ~lag.has_sends, gaps))
            if scope == 0 and not self.is_single:  # flows by themselves may be hundreds: their cells are hours
                self._steps(partial(self.gathered.add, words=self.names, is_total=False), steps, HOUR_US)
        self._flows()
        self._roles(rows)

    def _scope(self, scope: int, whole: Steps) -> None:
        """Gather the total (as its only flow, if there is one) or a class."""
        lag, window = self._lag, self._window
        is_flow = scope == 0 and self.is_single
        name = self.names[0] if is_flow else TOTAL if scope == 0 else class_name(scope - 1)
        add, number = partial(self.gathered.add, words=[*self.names, name], is_total=is_flow), len(self.names)
        whole = replace(whole, flow=np.full(len(whole.flow), number))
        self._steps(add, whole, window.figures_us)
        if scope:
            self.gathered.one("queues", name, count=int(lag.queues.unread.is_any[scope].sum()))
        elif len(whole.begin):
            self._curves(add, whole.clipped(window.from_us, window.to_us))
        if number:
            now = lag.now(scope)
            of_all = fold(now, ~lag.has_sends & (len(now.flow) > 1))
            self._last(add, replace(of_all, flow=np.full(len(of_all.flow), number)))
            if scope == 0 and not self.is_single:
                self._last(add, now)

    def _steps(self, add: Add, whole: Steps, cell_us: int) -> None:
        """Gather the time of each flow: how it was covered, how long which figure was in which bucket, how figures
        changed. `flow` is an index into `words`."""
        window = self._window
        steps = whole.clipped(window.from_us, window.to_us)
        cell, floor = steps.begin - steps.begin % cell_us, steps.covered & steps.bound.is_floor
        times = {"covered": steps.covered, "late": steps.late, "idle": steps.idle, "floor": floor}
        times["taken over"] = steps.taken_over
        for metric, flags in times.items():
            at = np.flatnonzero(flags)
            count = np.ones_like(at)
            add("time", scope=steps.flow[at], metric=metric, cell=cell[at], weight=steps.weight[at], count=count)
        cell, steps = cell[steps.covered], steps.only(steps.covered)
        once: dict[str, Any] = {"scope": steps.flow, "cell": cell, "weight": steps.weight}
        twice: dict[str, Any] = {name: np.tile(column, 2) for name, column in once.items()}
        for metric in (*METRICS, "drain"):
            add("figure", **_values(metric, steps.bound), **once)
            # The likely figure at a reading holds for half the time to the next.
            add("figure", likely=True, **_values(metric, *steps.likely), **twice)
        for metric in METRICS[:2]:
            for horizon_us in window.horizons_us:
                changes = Changes.of(whole, metric, horizon_us=horizon_us, since_us=window.from_us)
                changes = changes.only(changes.cell < window.to_us)
                level: dict[str, Any] = {"level": changes.level, "stalled": changes.stalled, "horizon_us": horizon_us}
                counted: dict[str, Any] = {"weight": changes.weight, "count": changes.count, "most": changes.most}
                keys: dict[str, Any] = {"scope": changes.flow, "bucket": bucket_of(changes.most)}
                cell = changes.cell - changes.cell % (window.cell_us or HOUR_US)
                add("change", metric=metric, cell=cell, **keys, **level, **counted)
        self._since(add, whole)

    def _curves(self, add: Add, steps: Steps) -> None:
        steps = steps.only(steps.covered)
        cell = steps.begin - steps.begin % self._window.fineness.curve_us
        add = partial(add, "curve", scope=steps.flow, cell=cell)
        for metric in METRICS:
            one, other = (end.of(metric) for end in steps.likely)
            add(metric=metric, most=steps.bound.of(metric))
            add(metric=metric, likely=True, most=np.where(one == NA, NA, np.maximum(one, other)))
        add(**_values("drain", steps.bound))

    def _last(self, add: Add, now: Steps) -> None:
        """Gather the last readings of the hour, or soon after it: the last hour with readings has the last of all."""
        more: dict[str, Any] = {"scope": now.flow, "stalled": now.stalled, "cell": self._hour}
        for metric in (*METRICS, "drain"):
            for likely, figures in ((False, now.bound), (True, now.likely[0])):
                add("now", likely=likely, **_values(metric, figures), **more)

    def _since(self, add: Add, whole: Steps) -> None:
        covered = whole.only(whole.covered)
        last = covered.only(np.append(covered.flow[1:] != covered.flow[:-1], True)[: len(covered.flow)])
        for metric in METRICS:
            values = last.bound.of(metric)
            known = np.flatnonzero(values >= 0)
            add("since", scope=last.flow[known], metric=metric, most=values[known], cell=self._hour)

    def _flows(self) -> None:
        lag, window, gathered, names = self._lag, self._window, self.gathered, self.names
        flows = lag.flows
        at = window.within(flows.us)
        us = flows.us[at]
        gathered.add(
            "readings", names, flows.flow[at], cell=us - us % HOUR_US, count=np.ones_like(at), most=us, least=us
        )
        for acks, drained in enumerate(lag.drained):
            at = window.within(drained.us)
            rate = (drained.rate[at] * MILLI).astype(np.int64)
            keys: dict[str, Any] = {"acks": acks > 0, "level": drained.level[at], "bucket": bucket_of(rate)}
            gathered.add("shipped", names, drained.flow[at], count=drained.shipped[at], least=rate, **keys)
        known = flows.sends.known
        at = np.flatnonzero(flows.goes_on[1:] & known[1:] & known[:-1]) + 1
        at = at[(flows.us[at] >= window.from_us) & (flows.us[at] < window.to_us)]
        put, took_us = flows.sends.added[at] - flows.sends.added[at - 1], flows.us[at] - flows.us[at - 1]
        rate = np.ceil(put * 1e6 / took_us * MILLI).astype(np.int64)
        gathered.add("arrivals", names, flows.flow[at], bucket=bucket_of(rate), count=np.ones_like(at), most=rate)
        put_in, accounted = lag.accounted((window.from_us, window.to_us))
        at = np.flatnonzero(put_in)
        gathered.add("accounted", names, at, weight=put_in[at], count=accounted[at])
        gathered.add("spacing", names, np.arange(len(names)), most=lag.spacing_us, cell=self._hour)
        for share in lag.queues.shares:
            gathered.one("share", names[share.flow], name=share.queue, cell=self._hour,
                         weight=share.message_ms, most=share.most)  # fmt: skip

    def _roles(self, rows: Columns) -> None:
        window = self._window
        at = window.within(rows.us)
        site = rows.take(at[(rows.kind[at] == SITE) & (rows.name[at] >= 0)])
        for code in np.unique(site.name).tolist():
            self.gathered.one("role", name=rows.words[code], most=int(site.us[site.name == code].max()))


def _values(metric: str, *figures: Figures) -> dict[str, Any]:
    """Return the figures of a metric, one after the other. A drain is how much waits in the outflow that takes longest;
    the rates of all time tell how long that takes."""
    most = np.concatenate([each.of(metric) for each in figures])
    values = {"metric": metric, "bucket": bucket(most), "most": most}
    if metric != "drain":
        return values
    whose = {"flow": [each.drain_flow for each in figures], "acks": [each.drain_acks for each in figures]}
    # Zero is zero, wherever it is.
    return values | {name: np.where(most > 0, np.concatenate(column), 0) for name, column in whose.items()}


HORIZON_US: Final = 300_000_000


SUMS: Final = ("covered", "was", "excess", "bias", "error")
"""Sums over the moments that were left out, in thousandths: how many of them the bound covered; the likely figure
there, and how far the bound lay above it; how far the likely figure of the readings around them lay off, with its sign
and without."""


def check(gathered: Gathered, whole: Steps, said: Steps, window: HourQuery) -> None:
    """Gather whether bounds hold: compare those made without every other reading with what all readings say."""
    if not len(said.begin):
        return
    at = np.maximum(np.searchsorted(said.begin, whole.begin, "right") - 1, 0)
    inside = (said.begin[at] < whole.begin) & (whole.begin < said.end[at]) & said.covered[at]
    inside &= (whole.begin >= window.from_us) & (whole.begin < window.to_us)
    bound, was = said.bound.loss[at], whole.likely[0].loss
    before, after = (end.loss[at] for end in said.likely)
    is_known = np.logical_and.reduce([figure != NA for figure in (bound, was, before, after)])
    tested = np.flatnonzero(inside & whole.covered & is_known)
    past = (whole.begin - said.begin[at]) / np.maximum(1, said.end[at] - said.begin[at])
    off = before + past * (after - before) - was
    sums = (bound >= was, was, bound - was, off, np.abs(off))
    for metric, value in zip(SUMS, sums, strict=True):
        gathered.one("check", metric=metric, weight=round(float(value[tested].sum()) * MILLI), count=len(tested))


def _total(rows: Columns, lag: LagSeries) -> Steps:
    return fold(lag.steps(0), ~lag.has_sends, Gaps.of(rows, lag.flows))


FURTHER: Final = 6
"""The time that is read back grows by this factor while the cut lies before it."""
SELDOM_US: Final = 300 * SECOND_US


@dataclass(frozen=True, slots=True)
class HourQuery:
    """The question to every hour: readings of [from, to), of a history that lies between `begin` and `end`. `include`,
    `exclude` and `classes` are patterns of queues. `cell_us` is the length of a backtest's cells, 0 without one."""

    begin_us: int
    end_us: int
    from_us: int
    to_us: int
    include: tuple[str, ...] = ("#",)
    exclude: tuple[str, ...] = ()
    classes: tuple[tuple[str, ...], ...] = ()
    horizons_us: tuple[int, ...] = (HORIZON_US,)
    cell_us: int = 0

    def mask(self, queue: str) -> int:
        """Return bits: 1 in the total, 2 in the first class, and so on."""
        if not matches(self.include, queue) or matches(self.exclude, queue):
            return 0
        return 1 + sum(2 << number for number, patterns in enumerate(self.classes) if matches(patterns, queue))

    def window(self, hour_us: int) -> HourQuery:
        return replace(self, from_us=max(hour_us, self.from_us), to_us=min(hour_us + HOUR_US, self.to_us))

    @property
    def fineness(self) -> CellLengths:
        return fineness(self.from_us, self.end_us)

    @property
    def figures_us(self) -> int:
        return self.cell_us or self.fineness.figures_us

    def within(self, us: Ints) -> Ints:
        return np.flatnonzero((us >= self.from_us) & (us < self.to_us))


class Reader(Protocol):
    """A reader brings an hour the readings that it asks for, each of a time from one moment to before another."""

    def others(self, from_us: int, to_us: int) -> pa.Table:
        """Return the readings of all but queues, with the columns `READ`."""

    def moments(self, from_us: int, to_us: int) -> pa.Table:
        """Return when queues of each pair were read: `ts` and `pair`."""

    def queues(self, from_us: int, to_us: int, before_us: Ints) -> Iterable[pa.Table]:
        """Return readings of queues, and those of some moments before. If they are too many for one table, each has
        some queues."""


def hour(read: Reader, hour_us: int, query: HourQuery) -> pa.Table:
    """Return the rows that add up of an hour, and a row of kind REACH. Readings of outflows are taken from further back
    until they hold the cut."""
    near_us, to_us = hour_us - LONGEST_GAP_US, min(hour_us + HOUR_US + LONGEST_GAP_US, query.end_us)
    gathered = Gathered()
    for further in count():
        from_us = max(query.begin_us, hour_us - LONGEST_GAP_US * int(FURTHER**further))
        table = read.others(from_us, to_us)
        rows = Columns.of(table).by_time()
        flows, is_read = Outflows(rows), ((rows.us >= hour_us) & (rows.us < hour_us + HOUR_US)).any()
        if not is_read or from_us <= query.begin_us or is_cut(flows, hour_us, from_us):
            break
    gathered.one(REACH, least=0 if from_us <= query.begin_us else from_us)
    if not is_read:
        return gathered.table()
    is_compared = (rows.kind == UNCOPIED).any()
    compared = table.filter(pc.field("kind") == KINDS[UNCOPIED]) if is_compared else table.slice(0, 0)
    before_us = _needed(flows, read.moments(from_us, near_us), near_us) if further else flows.us[:0]

    window = query.window(hour_us)

    def series(flows: Outflows, long_us: int, scopes: int, span: tuple[int, int]) -> LagSeries:
        queues = Queues(flows, scopes)
        for some in read.queues(near_us, to_us, before_us):
            part = Columns.of(pa.concat_tables([some, compared])).by_time()
            queues.add(_every_other(part, long_us), flows, query.mask, span)
        return LagSeries(flows, queues)

    whole = series(flows, 0, 1 + len(query.classes), (window.from_us, window.to_us))
    _Summary(gathered, rows, whole, window)
    if query.cell_us:  # of windows as long as readings of queues are apart every second one is left out
        gaps = np.diff(flows.us[whole.read])[np.diff(flows.flow[whole.read]) == 0]
        long_us = max(1, int(np.median(gaps))) if len(gaps) else 1
        fewer = _every_other(rows, long_us)
        said = _total(fewer, series(Outflows(fewer), long_us, 1, (0, 0)))
        check(gathered, _total(rows, whole), said, window)
    return gathered.table()


def _every_other(rows: Columns, long_us: int) -> Columns:
    """Leave out the rows of every second window so long."""
    return rows.take(np.flatnonzero(rows.us // long_us % 2 == 0)) if long_us else rows


def _needed(flows: Outflows, moments: pa.Table, near_us: int) -> Ints:
    """Return the moments of the readings of queues that an hour rests on, of those before the ten minutes around it:
    the readings that cut, those after these, and one now and then."""
    recent = flows.us >= near_us
    every = [us[recent] for side in (flows.sends, flows.acks) for us in (side.cut_us, side.likely_us)]
    cut_us = np.unique(np.concatenate([us[(us != NA) & (us < near_us)] for us in every]))
    needed = [cut_us[:0]]
    for pair in moments["pair"].unique().drop_null().to_pylist():
        times = np.unique(moments.filter(pc.field("pair") == pair)["ts"].cast(pa.int64()).to_numpy())
        at = np.searchsorted(times, cut_us, "right") - 1
        seldom = np.flatnonzero(np.diff(times // SELDOM_US, prepend=-1))
        needed.append(times[np.clip(np.concatenate([at, at + 1, seldom, [len(times) - 1]]), 0, len(times) - 1)])
    return np.unique(np.concatenate(needed))


def is_cut(flows: Outflows, at_us: int, from_us: int) -> bool:
    """Say whether every outflow's cut is known at its last reading before a moment, or never can be."""
    before = np.flatnonzero(flows.us < at_us)
    if not len(before):
        return True
    last = before[np.append(flows.flow[before][1:] != flows.flow[before][:-1], True)]
    began = np.flatnonzero(flows.fresh)
    first = began[np.searchsorted(began, last, "right") - 1]
    is_known = ~(flows.sends.known.any() & flows.is_floor[last])
    for side in (flows.sends, flows.acks):
        is_known &= ~side.known[last] | (side.likely_us[last] != NA) | (flows.life[last] != flows.life[first])
    return bool((is_known | (flows.us[first] > from_us + LONGEST_GAP_US)).all())
