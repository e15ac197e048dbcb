"""Curves that a page draws of an estimate: figures over time, and how they are distributed. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np

from dr_ctl.rpo.core.calendar import Calendar
from dr_ctl.rpo.core.columns import NA
from dr_ctl.rpo.core.histogram import wall_blocks
from dr_ctl.rpo.core.steps import METRICS
from dr_ctl.rpo.estimate.figures import scaled
from dr_ctl.rpo.estimate.scope import Scope
from dr_ctl.rpo.history.row import moment

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


def curves_of(total: Scope, calendar: Calendar, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw what rows say of a scope over the given span."""
    over_time = {metric: _drawn(total, metric, calendar, span_us, bins) for metric in UNITS}
    likely = {metric: _drawn(total, metric, calendar, span_us, bins, likely=True) for metric in METRICS}
    shares = {}
    for metric in UNITS:
        found = total.histogram("drain" if metric == "drain_ms" else metric, 1)
        shares[metric] = tuple((share, top / UNITS[metric]) for share, top in found.shares())
    return Curves(moment(span_us[0]), moment(span_us[1]), over_time, shares, likely)


def _drawn(
    total: Scope, metric: str, calendar: Calendar, span_us: tuple[int, int], bins: int, *, likely: bool = False
) -> Drawn:
    """The most of the cells that touch each bin."""
    told = total.part("curve", "drain" if metric == "drain_ms" else metric, likely=likely)
    values = total.took(told) if metric == "drain_ms" else told.most
    lengths = np.array([calendar.fineness(us).curve_us for us in told.cell.tolist()], np.int64)
    first, last = (wall_blocks(each, span_us, bins) for each in (told.cell, told.cell + lengths - 1))
    wide = last - first + 1
    at = np.repeat(first, wide) + np.arange(wide.sum()) - np.repeat(np.cumsum(wide) - wide, wide)
    most = np.full(bins, NA)
    np.maximum.at(most, at, np.repeat(values, wide))
    step = max(1, span_us[1] - span_us[0] + 1) / bins
    moments = [moment(int(span_us[0] + (number + 0.5) * step)) for number in range(bins)]
    scaled_ = [None if value == NA else scaled(value, UNITS[metric]) for value in most.tolist()]
    return tuple(zip(moments, scaled_, strict=True))
