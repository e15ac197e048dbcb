"""What a page draws of an estimate: figures over time, and how they are distributed. No Spark here."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate.cells import TIME, Cell
from dr_ctl.rpo.estimate.figures import scaled
from dr_ctl.rpo.estimate.scope_names import METRICS, TOTAL
from dr_ctl.rpo.history.row import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dr_ctl.rpo.estimate.figures import Histogram, Table

BINS: Final = 200
UNITS: Final = {"loss": 1, "age_ms": 1000, "duplicates": 1, "drain_ms": 1000}
"""How many of a metric's own unit make one of the unit that people read: messages, seconds."""
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """In total, by metric: the most at each moment (None: not covered), and up to which figure which share of time."""

    began: datetime
    ended: datetime
    over_time: Mapping[str, tuple[tuple[datetime, float | None], ...]]
    shares: Mapping[str, Points]


def curves(cells: Iterable[Cell], table: Table, span_us: tuple[int, int], bins: int) -> Curves:
    """Draw from the cells of one estimate over the given span."""
    first, last = span_us
    most = {(cell.metric, cell.block): cell.value for cell in cells if cell.kind == TIME}
    step = max(1, last - first + 1) / bins

    def line(metric: str) -> tuple[tuple[datetime, float | None], ...]:
        return tuple(
            (moment(int(first + (number + 0.5) * step)), scaled(most.get((metric, number)), UNITS[metric]))
            for number in range(bins)
        )

    shares = {metric: _shares(table.histograms.get((TOTAL, metric)), metric) for metric in METRICS}
    return Curves(moment(first), moment(last), {metric: line(metric) for metric in METRICS}, shares)


def _shares(found: Histogram | None, metric: str) -> Points:
    if found is None or not found.whole_us:
        return ()
    ordered = sorted(found.weights)
    below = itertools.accumulate(sum(found.weights[bucket].values()) for bucket in ordered)
    return tuple(
        (share / found.whole_us, found.largest[bucket] / UNITS[metric])
        for bucket, share in zip(ordered, below, strict=True)
    )
