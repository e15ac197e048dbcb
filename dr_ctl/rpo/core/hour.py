"""An hour of a history: from the looks that it rests on to rows that add up.

An hour is told by itself, from its looks, ten minutes before and after it, and as much before as the cut needs: so it
says the same whatever else is asked. Of the past before these ten minutes it takes all looks at outflows, and of the
looks at queues those that are the cut of some look, the ones after these, and one every five minutes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dr_ctl.core.patterns import matches
from dr_ctl.rpo.core.calendar import HOUR, SECOND, fineness
from dr_ctl.rpo.core.columns import NA, QUEUE, Columns, Ints
from dr_ctl.rpo.core.cut import AWAY_US, Outflows
from dr_ctl.rpo.core.fold import Silence, fold
from dr_ctl.rpo.core.queues import Queues
from dr_ctl.rpo.core.rows import MILLI, SCHEMA, Gathered
from dr_ctl.rpo.core.steps import Course, Steps
from dr_ctl.rpo.core.summary import HORIZON_US, Window, summed_up

SUMS: Final = ("covered", "was", "excess", "bias", "error")
"""What is told of the moments that were left out, in thousandths: at how many the bound was not below what was likely
there; what that was, and how far the bound lay above it; how far what was likely by the looks around them lay off, with
its sign and without."""


def half(rows: Columns, flows: Outflows, queues: Queues) -> Columns:
    """Leave out the looks of every second stretch between looks at queues."""
    read = queues.likely.queues[0] > 0
    gaps = np.diff(flows.us[read])[np.diff(flows.flow[read]) == 0]
    grid_us = max(1, int(np.median(gaps))) if len(gaps) else 1
    return rows.take(np.flatnonzero(rows.us // grid_us % 2 == 0))


def check(gathered: Gathered, whole: Steps, said: Steps, window: Window) -> None:
    """Whether bounds hold: what is said without every other look, against what all looks say."""
    if not len(said.begin):
        return
    at = np.maximum(np.searchsorted(said.begin, whole.begin, "right") - 1, 0)
    inside = (said.begin[at] < whole.begin) & (whole.begin < said.end[at]) & said.covered[at]
    inside &= (whole.begin >= window.from_us) & (whole.begin < window.to_us)
    bound, was = said.bound.loss[at], whole.likely[0].loss
    before, after = (end.loss[at] for end in said.likely)
    is_known = np.logical_and.reduce([each != NA for each in (bound, was, before, after)])
    tested = np.flatnonzero(inside & whole.covered & is_known)
    past = (whole.begin - said.begin[at]) / np.maximum(1, said.end[at] - said.begin[at])
    off = before + past * (after - before) - was
    told = (bound >= was, was, bound - was, off, np.abs(off))
    for metric, each in zip(SUMS, told, strict=True):
        gathered.one("check", metric=metric, weight=round(float(each[tested].sum()) * MILLI), count=len(tested))


def total(rows: Columns, flows: Outflows, queues: Queues) -> Steps:
    course = Course(flows, queues)
    return fold(course.steps(0), ~course.has_sends, Silence.of(rows, flows))


FURTHER: Final = 6
"""By so much a look back grows where the cut lies before it."""
SELDOM_US: Final = 300 * SECOND
PARTS: Final = ("whole", "half")
SHORT: Final = "short"
"""The kind of the one row of an hour whose looks do not reach back to the cut."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is asked of every hour: looks of [from, to), of a history that lies between `begin` and `end`. `include`,
    `exclude` and `classes` are patterns of queues. `cell_us`: how long the cells of a test of the past are; 0 where
    nothing is tested."""

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
        """By bits: 1 in the total, 2 in the first class, and so on."""
        if not matches(self.include, queue) or matches(self.exclude, queue):
            return 0
        return 1 + sum(2 << number for number, each in enumerate(self.classes) if matches(each, queue))

    def reach_us(self, hour_us: int, further: int = 0) -> int:
        """From when on looks at outflows are taken for an hour, that many times further back than at first."""
        return max(self.begin_us, hour_us - AWAY_US * int(FURTHER**further))

    def window(self, hour_us: int) -> Window:
        from_us, to_us = max(hour_us, self.from_us), min(hour_us + HOUR, self.to_us)
        return Window(from_us, to_us, fineness(hour_us, self.end_us), self.horizons_us, self.cell_us)


def hour(table: pa.Table, hour_us: int, orders: Orders, from_us: int, parts: pa.Table | None = None) -> pa.Table:
    """The rows that add up of an hour, from the looks around it; `from_us`: from when on looks at outflows are there.
    One row of kind SHORT where that is too late. `parts`: what its queues say, of an hour that has too many looks at
    queues for one table."""
    rows = Columns.of(table).by_time()
    if not ((rows.us >= hour_us) & (rows.us < hour_us + HOUR)).any():
        return SCHEMA.empty_table()
    flows = Outflows.of(rows)
    if from_us > orders.begin_us and not is_cut(flows, hour_us, from_us):
        short = Gathered()
        short.one(SHORT)
        return short.table()
    whole, *fewer = _told(rows, flows, orders, hour_us, parts)
    window = orders.window(hour_us)
    gathered = summed_up(*whole, 1 + len(orders.classes), window)
    for left in fewer:
        check(gathered, total(*whole), total(*left), window)
    return gathered.table()


def part(table: pa.Table, hour_us: int, orders: Orders) -> pa.Table:
    """What some queues of an hour say, from their looks and all of its outflows: queues of every look among them."""
    rows = Columns.of(table).by_time()
    told = _told(rows, Outflows.of(rows), orders, hour_us)
    return pa.concat_tables(queues.table(of) for of, (*_, queues) in zip(PARTS, told, strict=False))


def _told(
    rows: Columns, flows: Outflows, orders: Orders, hour_us: int, parts: pa.Table | None = None
) -> Iterator[tuple[Columns, Outflows, Queues]]:
    """What all looks say, and where the past is tested what those say of which every other is left out."""
    window, scopes = orders.window(hour_us), 1 + len(orders.classes)
    span, queues = (window.from_us, window.to_us), Queues.none(flows, 0)
    for of in PARTS if orders.cell_us else PARTS[:1]:
        if of != PARTS[0]:
            rows = half(rows, flows, queues)
            flows, scopes, span = Outflows.of(rows), 1, (0, 0)
        if parts is None:
            queues = Queues.of(rows, flows, orders.mask, scopes, span)
        else:
            queues = Queues.together(parts, of, flows, scopes)
        yield rows, flows, queues


def needs(table: pa.Table, hour_us: int, orders: Orders, from_us: int) -> Ints | None:
    """The moments of the looks at queues that an hour rests on, of those before the ten minutes around it; None where
    looks at outflows from further back are needed first. Of queues the table tells when they were looked at."""
    rows = Columns.of(table).by_time()
    flows = Outflows.of(rows)
    if from_us > orders.begin_us and not is_cut(flows, hour_us, from_us):
        return None
    near_us = hour_us - AWAY_US
    recent, asked = flows.us >= near_us, (rows.kind == QUEUE) & (rows.us < near_us)
    cuts = [side.cut_us[recent & (side.cut_us != NA) & (side.cut_us < near_us)] for side in (flows.sends, flows.acks)]
    cut_us = np.unique(np.concatenate(cuts))
    found = [cut_us[:0]]
    for pair in np.unique(rows.pair[asked]).tolist():  # the looks that cut, those after these, and one now and then
        times = np.unique(rows.us[asked & (rows.pair == pair)])
        at = np.searchsorted(times, cut_us, "right") - 1
        seldom = np.flatnonzero(np.diff(times // SELDOM_US, prepend=-1))
        found.append(times[np.clip(np.concatenate([at, at + 1, seldom, [len(times) - 1]]), 0, len(times) - 1)])
    return np.unique(np.concatenate(found))


def is_cut(flows: Outflows, at_us: int, from_us: int) -> bool:
    """Whether every outflow's cut is known at its last look before a moment, or never can be."""
    before = np.flatnonzero(flows.us < at_us)
    if not len(before):
        return True
    last = before[np.append(flows.flow[before][1:] != flows.flow[before][:-1], True)]
    began = np.flatnonzero(flows.fresh)
    first = began[np.searchsorted(began, last, "right") - 1]
    is_known = ~(flows.sends.known.any() & flows.is_floor[last])
    for side in (flows.sends, flows.acks):
        is_known &= ~side.known[last] | (side.cut_us[last] != NA) | (flows.series[last] != flows.series[first])
    return bool((is_known | (flows.us[first] > from_us + AWAY_US)).all())
