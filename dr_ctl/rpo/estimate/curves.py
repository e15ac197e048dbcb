"""What a page draws of an estimate: figures over time, and how they are distributed. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np

from dr_ctl.rpo.estimate.figures import scaled
from dr_ctl.rpo.estimate.scopes import Scope
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.series.columns import NA, Ints
from dr_ctl.rpo.series.histogram import Histogram, wall_blocks
from dr_ctl.rpo.series.steps import METRICS, Steps

BINS: Final = 200
UNITS: Final = {"loss": 1, "age_ms": 1000, "duplicates": 1, "drain_ms": 1000}
"""How many of a metric's own unit make one of the unit that people read: messages, seconds."""
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """In total, by metric: the most at each moment (None: not covered), up to which figure which share of time, and
    what was likely the most at each moment."""

    began: datetime
    ended: datetime
    over_time: Mapping[str, tuple[tuple[datetime, float | None], ...]]
    shares: Mapping[str, Points]
    likely: Mapping[str, tuple[tuple[datetime, float | None], ...]] = field(default_factory=dict)


def curves_of(total: Scope, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw what rows say of a scope over the given span."""
    first, last = span_us
    step = max(1, last - first + 1) / bins
    moments = [moment(int(first + (number + 0.5) * step)) for number in range(bins)]
    over_time, shares = {}, {}

    def lengths(cells: Ints) -> Ints:
        return np.array([total.rows.calendar.fineness(us).curve_us for us in cells.tolist()], np.int64)

    for metric in UNITS:
        is_drain = metric == "drain_ms"
        told = total.part("curve drain" if is_drain else f"curve {metric}")
        values, most = total.took(told) if is_drain else told.most, np.full(bins, NA)
        first_bin, last_bin = (
            wall_blocks(each, span_us, bins) for each in (told.cell, told.cell + lengths(told.cell) - 1)
        )
        wide = last_bin - first_bin + 1
        at_bin = np.repeat(first_bin, wide) + np.arange(wide.sum()) - np.repeat(np.cumsum(wide) - wide, wide)
        np.maximum.at(most, at_bin, np.repeat(values, wide))
        over_time[metric] = tuple((at, None if value == NA else scaled(value, UNITS[metric]))
                                  for at, value in zip(moments, most.tolist(), strict=True))  # fmt: skip
        found = total.drain("drain", 1) if is_drain else total.histogram(metric, 1)
        shares[metric] = tuple((share, top / UNITS[metric]) for share, top in found.shares())
    return Curves(moment(first), moment(last), over_time, shares)


def curves(steps: Steps, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw a series over the given span."""
    first, last = span_us
    step = max(1, last - first + 1) / bins
    moments = [moment(int(first + (number + 0.5) * step)) for number in range(bins)]
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
    likely = {metric: likely[metric] for metric in ("loss", "age_ms", "duplicates")}
    return Curves(moment(first), moment(last), over_time, shares, likely)


def _drawn(
    metric: str, moments: Sequence[datetime], at: Ints, values: Ints
) -> tuple[tuple[datetime, float | None], ...]:
    most = np.full(len(moments), NA)
    np.maximum.at(most, at, values)
    told = [None if value == NA else scaled(value, UNITS[metric]) for value in most.tolist()]
    return tuple(zip(moments, told, strict=True))
