"""A chart over the time of a history: the likely figure, the bound above as a band, excursions, the objective."""

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from dr_ctl.report.outflow import Area, Chart, Line, Piece, Point, pieces_of
from dr_ctl.report.scale import CountAxis, TimeAxis
from dr_ctl.report.values import count, many

STRIP: Final = 3.0
"""Of the height: excursions are marked along the top."""
FAR_ABOVE: Final = 3
"""An objective so many times above all that was is told, not drawn: it would flatten the curve."""


def over_time(
    title: str,
    unit: str,
    span: tuple[datetime, datetime],
    bound: Sequence[Point],
    likely: Sequence[Point] = (),
    *,
    limit: float | None = None,
) -> Chart:
    """Draw a bound, with what was likely beneath it where that is known, against a limit where one is set."""
    known = [value for _, value in bound if value is not None]
    if not known:
        return Chart(title, unit, "", "Nothing is known of it in this window.")
    drawn = limit is not None and limit <= FAR_ABOVE * max(known)
    x = TimeAxis(*span)
    y = CountAxis.up_to(max(*known, limit if drawn and limit is not None else 0.0))
    lines = [Line.of("at most", 0, pieces_of(bound, x, y), f"up to {count(max(known))}")]
    areas = []
    if likely:
        most = max((value for _, value in likely if value is not None), default=None)
        lines.append(Line.of("likely", 1, pieces_of(likely, x, y), f"up to {count(most)}"))
        areas.append(Area.of("between likely and at most", "band", _bands(bound, likely, x, y)))
    above = [] if limit is None else _above(bound, limit)
    if limit is not None and drawn:
        lines.append(
            Line.of("objective", 3, [[(0.0, y.at(limit)), (100.0, y.at(limit))]], f"no more than {count(limit)}")
        )
    if above:
        width = 50 / max(1, len(bound))
        excursions = many(len(above), "excursion", "excursions")
        areas.append(
            Area.of(f"{excursions} above the objective", "above", [_box(x, stretch, width) for stretch in above])
        )
    begun = f"time since {span[0]:%Y-%m-%d %H:%M} UTC"
    caption = f"The most in each of {many(len(bound), 'stretch', 'stretches')}; a gap is time that no look covers."
    return Chart(title, unit, f"{caption}{_limit_text(limit, drawn=drawn, above=len(above))}", "", begun, tuple(lines),
                 x.ticks(), y.ticks(), tuple(areas))  # fmt: skip


def _limit_text(limit: float | None, *, drawn: bool, above: int) -> str:
    if limit is None:
        return ""
    if not drawn:
        return f" The objective, {count(limit)}, lies far above."
    return "" if above else " It was never above the objective."


def _bands(bound: Sequence[Point], likely: Sequence[Point], x: TimeAxis, y: CountAxis) -> list[Piece]:
    """The area between the bound and the likely figure, wherever both are known."""
    least = dict(likely)
    both = [(at, most, least.get(at)) for at, most in bound]
    pieces: list[Piece] = []
    for is_known, group in itertools.groupby(both, key=lambda each: None not in each):
        points = [(x.at(at), most or 0.0, value or 0.0) for at, most, value in group]
        if is_known:
            upper = [(left, y.at(most)) for left, most, _ in points]
            pieces.append([*upper, *((left, y.at(value)) for left, _, value in reversed(points))])
    return pieces


def _above(points: Sequence[Point], limit: float) -> list[list[datetime]]:
    """The stretches of time in which the figure was above the limit."""
    groups = itertools.groupby(points, key=lambda each: each[1] is not None and each[1] > limit)
    return [[at for at, _ in group] for is_above, group in groups if is_above]


def _box(x: TimeAxis, stretch: Sequence[datetime], width: float) -> Piece:
    left, right = max(0.0, x.at(stretch[0]) - width), min(100.0, x.at(stretch[-1]) + width)
    return [(left, 0.0), (right, 0.0), (right, STRIP), (left, STRIP)]
