"""The time line: each part of the run as rows of bars along one axis, placed in per cent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dr_ctl.core.clock import stamp
from dr_ctl.report.outage import Outage
from dr_ctl.report.scale import Tick, TimeAxis
from dr_ctl.report.story import Act, Mark, Part, Story
from dr_ctl.report.values import clock, seconds

_NO_RETURN = "point-of-no-return"


@dataclass(frozen=True, slots=True)
class Span:
    """From `left`, `width` wide, both in per cent. `open` where it goes on past the axis."""

    left: float
    width: float
    open: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One step, or one signal."""

    label: str
    site: str
    about: str
    text: str
    mark: Mark
    undo: bool
    no_return: bool
    took: str
    times: str
    bar: Span


@dataclass(frozen=True, slots=True)
class Chapter:
    """One part of the run. `band` is where clients were out, `no_return` where the point of no return was passed."""

    title: str
    gap: str
    began: str
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    band: Span | None
    no_return: float | None


def chapters(story: Story, out: Outage) -> tuple[Chapter, ...]:
    """Lay out every part on an axis of its own: hours between two of them would leave nothing to see of either."""
    parts = story.parts
    before = (None, *parts)
    return tuple(
        _chapter(part, f"Part {place} of {len(parts)}: {part.kind}" if len(parts) > 1 else "", last, out)
        for place, (part, last) in enumerate(zip(parts, before, strict=False), start=1)
    )


def _chapter(part: Part, title: str, last: Part | None, out: Outage) -> Chapter:
    axis = TimeAxis(part.began, part.ended)
    gap = max(0.0, (part.began - last.ended).total_seconds()) if last is not None else None
    passed = next((act for act in part.acts if act.verb == _NO_RETURN and act.mark is Mark.DONE), None)
    return Chapter(
        title=title,
        gap=f"Nothing was written for {seconds(gap)}." if gap is not None else "",
        began=stamp(part.began),
        ticks=axis.ticks(),
        rows=tuple(_row(act, axis) for act in part.acts),
        band=_band(part, axis, out),
        no_return=axis.at(passed.ended) if passed is not None and passed.ended is not None else None,
    )


def _row(act: Act, axis: TimeAxis) -> Row:
    number = f"{act.number:02d} " if act.number is not None else ""
    verb = act.verb.replace("-", " ") if act.verb == _NO_RETURN else act.verb
    until = clock(act.ended) if act.ended is not None else "no end written"
    kind = "signal: " if act.mark is Mark.SIGNAL else "undo " if act.undo else ""
    return Row(
        label=f"{number}{kind}{verb}",
        site=act.site,
        about=act.about if not act.undo else "",
        text=act.text,
        mark=act.mark,
        undo=act.undo,
        no_return=act.verb == _NO_RETURN,
        took=seconds(act.took_s) if act.took_s is not None and act.mark is not Mark.SIGNAL else "",
        times=f"{clock(act.began)} to {until}" if act.mark is not Mark.SIGNAL else clock(act.began),
        bar=_span(axis, act.began, act.ended),
    )


def _span(axis: TimeAxis, began: datetime, ended: datetime | None) -> Span:
    left = axis.at(began)
    return Span(left, round(axis.at(ended if ended is not None else axis.ended) - left, 3), open=ended is None)


def _band(part: Part, axis: TimeAxis, out: Outage) -> Span | None:
    if out.began is None or out.began > part.ended or (out.ended is not None and out.ended < part.began):
        return None
    return _span(axis, max(out.began, part.began), out.ended)
