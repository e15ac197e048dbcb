"""Charts as values: axes with round marks, lines and areas in per cent of a plot, a sentence where nothing is drawn.

The charts of a run show the messages under way between the sites and in clients' hands during its waits; the charts of
a history show the loss over time."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from dr_ctl.core.document import mapping, number
from dr_ctl.core.model import by_key
from dr_ctl.report.story import StepRecord, Story
from dr_ctl.report.values import clock, count, many, seconds

WAITS: Final = {
    "catch-up": "Outflow while the source serves",
    "quiesce": "Messages in delivery to clients",
    "drain": "Outflow behind the fence",
    "verify": "Outflow while the gate is checked",
    "settle": "What the target has not applied",
}
_STEPS_S: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800),
)
_MAX_TICKS: Final = 6
_MIN_SAMPLES: Final = 3
_MIN_FOR_RATE_S: Final = 1.0
_MAX_POINTS: Final = 400
_STRIP: Final = 3.0
"""The height of the marks of excursions along the top, in per cent of the chart."""
_FAR_ABOVE: Final = 3
"""An objective that exceeds the largest figure this many times is written, because drawn it would flatten the curve."""

Point = tuple[datetime, float | None]
Piece = list[tuple[float, float]]


class Tick(NamedTuple):
    """A round value, at `at` per cent of its axis."""

    at: float
    label: str


def _ticks(top: float, step: float, label: Callable[[float], str]) -> tuple[Tick, ...]:
    values = [index * step for index in range(int(top / step + 1e-9) + 1)]
    return tuple(Tick(round(100 * value / top, 3), label(value)) for value in values)


class TimeAxis(NamedTuple):
    """From one moment to another; moments outside are placed at its ends."""

    began: datetime
    ended: datetime

    @property
    def _span_s(self) -> float:
        return max(0.001, (self.ended - self.began).total_seconds())

    def at(self, when: datetime) -> float:
        share = (when - self.began).total_seconds() / self._span_s
        return round(100 * min(1.0, max(0.0, share)), 3)

    def ticks(self) -> tuple[Tick, ...]:
        """The time since the begin, in a suitable unit."""
        step = next((step for step in _STEPS_S if self._span_s / step < _MAX_TICKS), 3600.0)
        while self._span_s / step >= _MAX_TICKS:
            step *= 2
        return _ticks(self._span_s, step, lambda value: _offset(value, step))


def _offset(value_s: float, step_s: float) -> str:
    if step_s < 0.1:  # noqa: PLR2004 - tenths of a second still read well as seconds
        return f"{value_s * 1000:.0f} ms"
    if step_s < 60:  # noqa: PLR2004
        return f"{value_s:g} s" if step_s >= 1 else f"{value_s:.1f} s"
    return f"{value_s / 60:g} min" if step_s < 3600 else f"{value_s / 3600:g} h"  # noqa: PLR2004


class CountAxis:
    """From zero to a round value not below the largest."""

    def __init__(self, largest: float) -> None:
        rough = max(largest, 1.0) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        self._step = max(1.0, next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough))
        self._top = self._step * math.ceil(max(largest, 1.0) / self._step)

    def at(self, value: float) -> float:
        """From the top, as a page counts."""
        return round(100 * (1 - min(1.0, max(0.0, value / self._top))), 3)

    def ticks(self) -> tuple[Tick, ...]:
        return tuple(Tick(100 - tick.at, tick.label) for tick in _ticks(self._top, self._step, count))


def _points(pieces: Iterable[Piece]) -> tuple[str, ...]:
    return tuple(" ".join(f"{left:g},{top:g}" for left, top in piece) for piece in pieces)


@dataclass(frozen=True, slots=True)
class Line:
    """A figure over time. `pieces` are polylines of `x,y` in per cent: a reading without an answer leaves a gap."""

    label: str
    style: int
    pieces: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    course: str

    @classmethod
    def of(cls, label: str, style: int, pieces: Sequence[Piece], course: str, *, most_dots: int = 0) -> Line:
        """Up to `most_dots` points all get dots; of more points only those that no line goes through."""
        dots = [point for piece in pieces for point in piece]
        single = [piece[0] for piece in pieces if len(piece) == 1]
        drawn = _points(piece for piece in pieces if len(piece) > 1)
        return cls(label, style, drawn, tuple(dots if len(dots) <= most_dots else single), course)


@dataclass(frozen=True, slots=True)
class Area:
    """Parts of the plane that are filled: polygons of `x,y` in per cent."""

    label: str
    style: str
    polygons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. Without `lines` there is nothing to draw, and `note` says so."""

    title: str
    unit: str
    caption: str
    note: str
    x_name: str = ""
    lines: tuple[Line, ...] = ()
    x: tuple[Tick, ...] = ()
    y: tuple[Tick, ...] = ()
    areas: tuple[Area, ...] = ()


def _pieces(points: Sequence[Point], x: TimeAxis, y: CountAxis) -> list[Piece]:
    """The points of a curve on its axes, cut where a figure is missing."""
    pieces: list[Piece] = [[]]
    for at, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((x.at(at), y.at(value)))
    return pieces


def of_waits(story: Story) -> tuple[Chart, ...]:
    """A chart for each wait that left samples, in order; a drain without samples has a chart that says so."""
    waits = [step for step in story.steps if step.verb in WAITS and not step.undo]
    return tuple(_of_wait(step, story) for step in waits if step.samples or step.verb == "drain")


def _of_wait(step: StepRecord, story: Story) -> Chart:
    title = WAITS[step.verb] + (f" ({step.label})" if len(story.of(step.verb)) > 1 else "")
    unit = "messages" if step.verb == "quiesce" else "messages and acknowledgements"
    series = _series(step)
    unread = [name for name, points in series.items() if all(value is None for _, value in points)]
    known = {name: points for name, points in series.items() if any(value for _, value in points)}
    silences = list(_silences(step))
    caption = " ".join([*_totals(step), *silences])
    samples = many(len(step.samples), "sample")
    if step.samples and len(unread) == len(series):
        return Chart(title, unit, caption, f"{samples}: no figure was read.")
    if step.samples and not known:
        zero_text = "where there was an answer, it was 0" if silences or unread else "0 every time"
        return Chart(title, unit, caption, f"{samples}: {zero_text}. There is no curve to draw.")
    if len(step.samples) < _MIN_SAMPLES:
        return Chart(title, unit, caption, _few(step, known | {name: series[name] for name in unread}))
    x = TimeAxis(step.began, max(step.ended or step.samples[-1][0], step.samples[-1][0]))
    y = CountAxis(max(value or 0 for points in known.values() for _, value in points))
    lines = tuple(_line(name, style, points, x, y) for style, (name, points) in enumerate(known.items()))
    zero = [name for name in series if name not in known and name not in unread]
    labelled = (("0 in every sample", zero), ("Never read", unread))
    note = " ".join(f"{label}: {', '.join(names)}." for label, names in labelled if names)
    return Chart(title, unit, caption, note, f"time since {clock(step.began)}", lines, x.ticks(), y.ticks())


def _series(step: StepRecord) -> dict[str, list[Point]]:
    """The figures of the sites by name. A site that did not answer has None, never zero."""
    series: dict[str, list[Point]] = {}
    for at, evidence in step.samples:
        pair = evidence.get("pair")
        for key, figures in evidence.items():
            if key == "delivering":
                series.setdefault("in delivery", []).append((at, number(figures)))
            elif isinstance(figures, Mapping):
                name = f"{key}/{pair}" if isinstance(pair, str) else key
                for figure, label in (("outflow", "outflow"), ("pending", "not applied")):
                    if figure in figures or "unknown" in figures:
                        series.setdefault(f"{name}: {label}", []).append((at, number(figures.get(figure))))
    return series


def _total(evidence: Mapping[str, Any]) -> float | None:
    """Return the messages under way in one sample, or None if a part is not known."""
    if "delivering" in evidence:
        return number(evidence["delivering"])
    sites = [mapping(site) for site in evidence.values() if isinstance(site, Mapping)]
    figures = [number(site.get(name)) for site in sites for name in ("outflow", "pending")]
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None


def _totals(step: StepRecord) -> Iterable[str]:
    totals = [(at, total) for at, evidence in step.samples if (total := _total(evidence)) is not None]
    if len(totals) < _MIN_SAMPLES or not any(total for _, total in totals):
        return
    (began, first), (ended, last) = totals[0], totals[-1]
    at_zero = itertools.takewhile(lambda sample: sample[1] == 0, reversed(totals))
    took = (min((at for at, _ in at_zero), default=ended) - began).total_seconds()
    whole = "" if step.verb == "quiesce" else "Together "
    yield f"{whole}{count(first)} at the first sample, {count(last)} after {seconds(took)}."
    if first > last and took >= _MIN_FOR_RATE_S:
        yield f"On average {count(round((first - last) / took))} a second."


def _silences(step: StepRecord) -> Iterable[str]:
    """Sentences on samples without an answer and links that were not attached, which a curve cannot show."""
    read = [row for _, evidence in step.samples for row in evidence.items() if isinstance(row[1], Mapping)]
    silent = Counter(site for site, figures in read if "unknown" in figures)
    detached = Counter(site for site, figures in read if figures.get("attached") is False)
    out_of = f"of {many(len(step.samples), 'sample')}"
    for counts, what in ((silent, "{} did not answer in"), (detached, "The link of {} was not attached in")):
        yield from (f"{what.format(site)} {count(amount)} {out_of}." for site, amount in counts.items())


def _few(step: StepRecord, series: Mapping[str, Sequence[Point]]) -> str:
    if not step.samples:
        return "No sample was written: how it went cannot be shown."
    by_time = by_key((at, f"{name} {count(value)}") for name, points in series.items() for at, value in points)
    samples = "; ".join(f"{clock(at)}: {', '.join(figures)}" for at, figures in by_time.items())
    return f"Only {many(len(step.samples), 'sample')}, too few for a curve. {samples}; all else 0."


def _line(name: str, style: int, points: Sequence[Point], x: TimeAxis, y: CountAxis) -> Line:
    known = [value for _, value in points if value is not None]
    most = f", at most {count(max(known))}" if max(known) > max(known[0], known[-1]) else ""
    course = f"{count(known[0])} → {count(known[-1])}{most}"
    return Line.of(name, style % 4, _pieces(_thinned(points), x, y), course, most_dots=60)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Reduce the points to as many as a page shows: of each window the lowest, the highest and each missing answer."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    size = -(-len(points) // (_MAX_POINTS // 2))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        window = list(enumerate(points[start : start + size]))
        known = [(value, index) for index, (_, value) in window if value is not None]
        indices = {min(known)[1], max(known)[1]} if known else set()
        indices |= {index for index, (_, value) in window if value is None}
        kept += [points[start + index] for index in sorted(indices)]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def over_time(
    title: str,
    unit: str,
    span: tuple[datetime, datetime],
    bound: Sequence[Point],
    likely: Sequence[Point] = (),
    *,
    limit: float | None = None,
) -> Chart:
    """The likely figure, the bound above it as a band, and the objective with the excursions above it."""
    known = [value for _, value in bound if value is not None]
    if not known:
        return Chart(title, unit, "", "Nothing is known of it in this window.")
    is_drawn = limit is not None and limit <= _FAR_ABOVE * max(known)
    x, y = TimeAxis(*span), CountAxis(max(*known, limit if is_drawn and limit is not None else 0.0))
    lines = [Line.of("at most", 0, _pieces(bound, x, y), f"up to {count(max(known))}")]
    areas = []
    if likely:
        most = max((value for _, value in likely if value is not None), default=None)
        lines.append(Line.of("likely", 1, _pieces(likely, x, y), f"up to {count(most)}"))
        areas.append(Area("between likely and at most", "band", _points(_bands(bound, likely, x, y))))
    caption = f"The most in each of {many(len(bound), 'window', 'windows')}; a gap is time that no sample covers."
    if limit is not None:
        boxes = _boxes(bound, limit, x)
        if boxes:
            label = f"{many(len(boxes), 'excursion', 'excursions')} above the objective"
            areas.append(Area(label, "above", _points(boxes)))
        if is_drawn:
            level = [(0.0, y.at(limit)), (100.0, y.at(limit))]
            lines.append(Line.of("objective", 3, [level], f"no more than {count(limit)}"))
            caption += "" if boxes else " It was never above the objective."
        else:
            caption += f" The objective, {count(limit)}, lies far above."
    x_name = f"time since {span[0]:%Y-%m-%d %H:%M} UTC"
    return Chart(title, unit, caption, "", x_name, tuple(lines), x.ticks(), y.ticks(), tuple(areas))


def _bands(bound: Sequence[Point], likely: Sequence[Point], x: TimeAxis, y: CountAxis) -> list[Piece]:
    least = dict(likely)
    both = [(at, most, least.get(at)) for at, most in bound]
    pieces: list[Piece] = []
    for is_known, group in itertools.groupby(both, key=lambda figures: None not in figures):
        points = [(x.at(at), most or 0.0, value or 0.0) for at, most, value in group]
        if is_known:
            upper = [(left, y.at(most)) for left, most, _ in points]
            pieces.append([*upper, *((left, y.at(value)) for left, _, value in reversed(points))])
    return pieces


def _boxes(points: Sequence[Point], limit: float, x: TimeAxis) -> list[Piece]:
    width, boxes = 50 / max(1, len(points)), []
    for is_above, group in itertools.groupby(points, key=lambda point: point[1] is not None and point[1] > limit):
        moments = [x.at(at) for at, _ in group]
        if is_above:
            left, right = max(0.0, moments[0] - width), min(100.0, moments[-1] + width)
            boxes.append([(left, 0.0), (right, 0.0), (right, _STRIP), (left, _STRIP)])
    return boxes
