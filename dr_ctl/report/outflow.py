"""Charts of the messages under way between the sites and in clients' hands during a run's waits, or reasons for no
chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dr_ctl.core.document import mapping, number
from dr_ctl.report.scale import CountAxis, Tick, TimeAxis
from dr_ctl.report.story import Act, Story
from dr_ctl.report.values import clock, count, many, seconds

WAITS: Final = {
    "catch-up": "Outflow while the source serves",
    "quiesce": "Messages in delivery to clients",
    "drain": "Outflow behind the fence",
    "verify": "Outflow while the gate is looked at",
    "settle": "What the target has not settled",
}
_LEAST_SAMPLES: Final = 3
_LEAST_FOR_RATE_S: Final = 1.0
_MOST_POINTS: Final = 400

Point = tuple[datetime, float | None]
Piece = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A figure over time. `pieces` are polylines of `x,y` in per cent: a look without an answer leaves a gap."""

    label: str
    style: int
    pieces: tuple[str, ...]
    dots: tuple[tuple[float, float], ...]
    course: str

    @classmethod
    def of(cls, label: str, style: int, pieces: Sequence[Piece], course: str, *, most_dots: int = 0) -> Line:
        """Up to `most_dots` points all get dots; of more points only those that no line goes through."""
        dots = [point for piece in pieces for point in piece]
        alone = [piece[0] for piece in pieces if len(piece) == 1]
        written = [" ".join(f"{left:g},{top:g}" for left, top in piece) for piece in pieces if len(piece) > 1]
        return cls(label, style, tuple(written), tuple(dots if len(dots) <= most_dots else alone), course)


@dataclass(frozen=True, slots=True)
class Area:
    """Parts of the plane that are filled: polygons of `x,y` in per cent."""

    label: str
    style: str
    polygons: tuple[str, ...]

    @classmethod
    def of(cls, label: str, style: str, pieces: Sequence[Piece]) -> Area:
        return cls(label, style, tuple(" ".join(f"{left:g},{top:g}" for left, top in piece) for piece in pieces))


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


def charts(story: Story) -> tuple[Chart, ...]:
    """A chart for each wait that left samples, in order; a drain without samples has a chart that says so."""
    waits = [act for act in story.acts if act.verb in WAITS and not act.undo]
    return tuple(_chart(act, story) for act in waits if act.samples or act.verb == "drain")


def _chart(act: Act, story: Story) -> Chart:
    part = f" ({act.label})" if len(story.of(act.verb)) > 1 else ""
    title = f"{WAITS[act.verb]}{part}"
    unit = "messages" if act.verb == "quiesce" else "messages and acknowledgements"
    series = _series(act)
    unread = [name for name, points in series.items() if all(value is None for _, value in points)]
    known = {name: points for name, points in series.items() if any(value for _, value in points)}
    silences = list(_silences(act))
    caption = " ".join([*_totals(act), *silences])
    if act.samples and len(unread) == len(series):
        return Chart(title, unit, caption, f"{many(len(act.samples), 'sample')}: no figure was read.")
    if act.samples and not known:
        zero_text = "where there was an answer, it was 0" if silences or unread else "0 every time"
        return Chart(
            title, unit, caption, f"{many(len(act.samples), 'sample')}: {zero_text}. There is no curve to draw."
        )
    if len(act.samples) < _LEAST_SAMPLES:
        return Chart(title, unit, caption, _few(act, known | {name: series[name] for name in unread}))
    last = max([act.ended or act.samples[-1][0], act.samples[-1][0]])
    x, y = (
        TimeAxis(act.began, last),
        CountAxis.up_to(max(value or 0 for points in known.values() for _, value in points)),
    )
    lines = tuple(_line(name, style, points, x, y) for style, (name, points) in enumerate(known.items()))
    zero = [name for name in series if name not in known and name not in unread]
    notes = [
        f"{label}: {', '.join(names)}."
        for label, names in (("0 in every sample", zero), ("Never read", unread))
        if names
    ]
    since = f"time since {clock(act.began)}"
    return Chart(title, unit, caption, " ".join(notes), since, lines, x.ticks(), y.ticks())


def _series(act: Act) -> dict[str, list[Point]]:
    """The figures of the sites by name. A site that did not answer has None, never zero."""
    series: dict[str, list[Point]] = {}
    for at, evidence in act.samples:
        pair = evidence.get("pair")
        for key, figures in evidence.items():
            if key == "delivering":
                series.setdefault("in delivery", []).append((at, number(figures)))
            elif isinstance(figures, Mapping):
                name = f"{key}/{pair}" if isinstance(pair, str) else key
                for figure, label in (("outflow", "outflow"), ("pending", "not settled")):
                    if figure in figures or "unknown" in figures:
                        series.setdefault(f"{name}: {label}", []).append((at, number(figures.get(figure))))
    return series


def _total(evidence: Mapping[str, Any]) -> float | None:
    """The messages under way in one sample; None where a part is not known."""
    if "delivering" in evidence:
        return number(evidence["delivering"])
    sites = [mapping(site) for site in evidence.values() if isinstance(site, Mapping)]
    figures = [number(site.get(name)) for site in sites for name in ("outflow", "pending")]
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known and len(known) == len(figures) else None


def _totals(act: Act) -> Iterable[str]:
    totals = [(at, total) for at, evidence in act.samples if (total := _total(evidence)) is not None]
    if len(totals) < _LEAST_SAMPLES or not any(total for _, total in totals):
        return
    (began, first), (ended, last) = totals[0], totals[-1]
    until = ended
    for at, total in reversed(totals):
        if last != 0 or total != 0:
            break
        until = at
    took = (until - began).total_seconds()
    whole = "" if act.verb == "quiesce" else "Together "
    yield f"{whole}{count(first)} at the first sample, {count(last)} after {seconds(took)}."
    if first > last and took >= _LEAST_FOR_RATE_S:
        yield f"On average {count(round((first - last) / took))} a second."


def _silences(act: Act) -> Iterable[str]:
    """Sentences on looks without an answer and links that were not attached, which a curve cannot show."""
    silent: dict[str, int] = {}
    loose: dict[str, int] = {}
    for _, evidence in act.samples:
        for site, figures in evidence.items():
            if isinstance(figures, Mapping):
                silent[site] = silent.get(site, 0) + ("unknown" in figures)
                loose[site] = loose.get(site, 0) + (figures.get("attached") is False)
    out_of = f"of {many(len(act.samples), 'sample')}"
    yield from (f"{site} did not answer in {count(amount)} {out_of}." for site, amount in silent.items() if amount)
    yield from (
        f"The link of {site} was not attached in {count(amount)} {out_of}." for site, amount in loose.items() if amount
    )


def _few(act: Act, series: Mapping[str, Sequence[Point]]) -> str:
    if not act.samples:
        return "No sample was written: how it went cannot be shown."
    by_time: dict[datetime, list[str]] = {}
    for name, points in series.items():
        for at, value in points:
            by_time.setdefault(at, []).append(f"{name} {count(value)}")
    looks = "; ".join(f"{clock(at)}: {', '.join(figures)}" for at, figures in by_time.items())
    return f"Only {many(len(act.samples), 'sample')}, too few for a curve. {looks}; all else 0."


def _line(name: str, style: int, points: Sequence[Point], x: TimeAxis, y: CountAxis) -> Line:
    known = [value for _, value in points if value is not None]
    most = f", at most {count(max(known))}" if max(known) > max(known[0], known[-1]) else ""
    course = f"{count(known[0])} → {count(known[-1])}{most}"
    return Line.of(name, style % 4, pieces_of(_thinned(points), x, y), course, most_dots=60)


def pieces_of(points: Sequence[Point], x: TimeAxis, y: CountAxis) -> list[Piece]:
    """The points of a curve on its axes, cut where a figure is missing."""
    pieces: list[Piece] = [[]]
    for at, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((x.at(at), y.at(value)))
    return pieces


def _thinned(points: Sequence[Point]) -> list[Point]:
    """No more points than a page shows; of each stretch its least, its greatest and every missing answer stay."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    size = -(-len(points) // (_MOST_POINTS // 2))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        stretch = list(enumerate(points[start : start + size]))
        known = [(value, place) for place, (_, value) in stretch if value is not None]
        places = {min(known)[1], max(known)[1]} if known else set()
        places |= {place for place, (_, value) in stretch if value is None}
        kept += [points[start + place] for place in sorted(places)]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]
