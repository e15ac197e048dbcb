"""Curves that a page draws of an estimate: figures over time, and how they are distributed. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np

from dr_ctl.rpo.estimate.figures import scaled
from dr_ctl.rpo.estimate.scopes import Scope
from dr_ctl.rpo.estimate.summary import TOLD
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.series.columns import NA, Ints
from dr_ctl.rpo.series.histogram import Histogram, wall_blocks
from dr_ctl.rpo.series.steps import METRICS, Steps

BINS: Final = 200
UNITS: Final = {"loss": 1, "age_ms": 1000, "duplicates": 1, "drain_ms": 1000}
"""How many of a metric's own unit make one of the unit that people read: messages, seconds."""
Points = tuple[tuple[float, float], ...]
Drawn = tuple[tuple[datetime, float | None], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """In total, by metric: the most at each moment (None: not covered), up to which figure which share of time, and
    what was likely the most at each moment."""

    began: datetime
    ended: datetime
    over_time: Mapping[str, Drawn]
    shares: Mapping[str, Points]
    likely: Mapping[str, Drawn] = field(default_factory=dict)


def curves_of(total: Scope, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw what rows say of a scope over the given span."""
    drawn = {what: _of_cells(total, what, span_us, bins) for what in (*TOLD, "drain")}
    likely = {metric: _of_cells(total, f"likely {metric}", span_us, bins) for metric in TOLD}
    over_time, shares = {}, {}
    for metric in UNITS:
        is_drain = metric == "drain_ms"
        over_time[metric] = drawn["drain" if is_drain else metric]
        found = total.drain("drain", 1) if is_drain else total.histogram(metric, 1)
        shares[metric] = tuple((share, top / UNITS[metric]) for share, top in found.shares())
    return Curves(moment(span_us[0]), moment(span_us[1]), over_time, shares, likely)


def _of_cells(total: Scope, what: str, span_us: tuple[int, int], bins: int) -> Drawn:
    """The most of the cells that touch each bin."""
    told = total.part(f"curve {what}")
    values = total.took(told) if what == "drain" else told.most
    lengths = np.array([total.rows.calendar.fineness(us).curve_us for us in told.cell.tolist()], np.int64)
    first, last = (wall_blocks(each, span_us, bins) for each in (told.cell, told.cell + lengths - 1))
    wide = last - first + 1
    at = np.repeat(first, wide) + np.arange(wide.sum()) - np.repeat(np.cumsum(wide) - wide, wide)
    return _drawn("drain_ms" if what == "drain" else what.removeprefix("likely "), _moments(span_us, bins), at,
                  np.repeat(values, wide))  # fmt: skip


def _moments(span_us: tuple[int, int], bins: int) -> Sequence[datetime]:
    first, last = span_us
    step = max(1, last - first + 1) / bins
    return [moment(int(first + (number + 0.5) * step)) for number in range(bins)]


def curves(steps: Steps, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw a series over the given span."""
    moments = _moments(span_us, bins)
    covered = np.flatnonzero(steps.covered)
    at = wall_blocks(steps.begin[covered], span_us, bins)
    over_time, likely, shares = {}, {}, {}
    for metric in METRICS:
        values = steps.bound[metric][covered]
        over_time[metric] = _drawn(metric, moments, at, values)
        ends = [end[metric][covered] for end in steps.likely]
        likely[metric] = _drawn(metric, moments, at, np.where(ends[0] == NA, NA, np.maximum(*ends)))
        found = Histogram.of(values, steps.weight[covered], np.zeros(len(covered), np.int64), 1)
        shares[metric] = tuple((share, top / UNITS[metric]) for share, top in found.shares())
    likely = {metric: likely[metric] for metric in TOLD}
    return Curves(moment(span_us[0]), moment(span_us[1]), over_time, shares, likely)


def _drawn(metric: str, moments: Sequence[datetime], at: Ints, values: Ints) -> Drawn:
    most = np.full(len(moments), NA)
    np.maximum.at(most, at, values)
    told = [None if value == NA else scaled(value, UNITS[metric]) for value in most.tolist()]
    return tuple(zip(moments, told, strict=True))
