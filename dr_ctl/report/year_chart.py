"""The chart of the index page: a dot for the outage or the loss of each run over months, against the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from dr_ctl.report.outflow import Chart, Line, Piece
from dr_ctl.report.scale import CountAxis, Tick, TimeAxis
from dr_ctl.report.values import count, many, seconds

_MOST_TICKS: Final = 4
"""As many as a narrow screen has room for."""
_FAR_ABOVE: Final = 3
"""An objective so many times above all that was is told, not drawn: the dots would lie on the axis."""
_SHORT_S: Final = 5.0
"""Where no figure is longer, milliseconds are written."""
_MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class Mark:
    at: datetime
    value: float
    label: str


def year_chart(
    title: str,
    marks: Sequence[Mark],
    span: tuple[datetime, datetime],
    limit: float | None,
    *,
    is_time: bool = False,
) -> Chart:
    """Draw at least one mark. `is_time`: values and limit are seconds."""
    most = max(mark.value for mark in marks)
    factor = 1000.0 if is_time and most <= _SHORT_S else 1.0
    drawn = limit if limit is not None and limit <= _FAR_ABOVE * most else None
    x, y = TimeAxis(*span), CountAxis.up_to(max(most, drawn or 0.0) * factor)
    written = seconds if is_time else count
    lines = []
    for style, label in enumerate(dict.fromkeys(mark.label for mark in marks)):
        own = [mark for mark in marks if mark.label == label]
        pieces: list[Piece] = [[(x.at(mark.at), y.at(mark.value * factor))] for mark in own]
        lines.append(Line.of(label, style, pieces, f"up to {written(max(mark.value for mark in own))}"))
    if drawn is not None:
        top = y.at(drawn * factor)
        lines.append(Line.of("objective", 3, [[(0.0, top), (100.0, top)]], f"no more than {written(drawn)}"))
    caption = f"A dot for each of {many(len(marks), 'run')}."
    if limit is not None and drawn is None:
        caption += f" The objective, {written(limit)}, lies far above."
    unit = "messages" if not is_time else "milliseconds" if factor > 1 else "seconds"
    return Chart(title, unit, caption, "", "", tuple(lines), tuple(dates(*span)), y.ticks())


def dates(began: datetime, ended: datetime) -> list[Tick]:
    """Round dates along an axis: first days of months, or of a shorter time days or hours."""
    axis = TimeAxis(began, ended)
    for step in (1, 2, 3, 6, 12):
        firsts = [first for first in _months(began, ended) if (first.month - 1) % step == 0]
        if 1 < len(firsts) <= _MOST_TICKS:
            return [Tick(axis.at(first), f"{first:%b %Y}") for first in firsts]
    step_s = axis.span_s / (_MOST_TICKS - 1)
    form = "%d %b" if axis.span_s > _MOST_TICKS * 86_400 else "%d %b %H:%M"
    moments = [began + timedelta(seconds=place * step_s) for place in range(_MOST_TICKS)]
    return [Tick(axis.at(each), f"{each:{form}}") for each in moments]


def _months(began: datetime, ended: datetime) -> list[datetime]:
    first = began.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    months = []
    while first <= ended:
        if first >= began:
            months.append(first)
        first = first.replace(year=first.year + first.month // _MONTHS, month=first.month % _MONTHS + 1)
    return months
