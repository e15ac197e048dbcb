"""The time line: the run's parts as rows of bars along one axis, placed in per cent."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dr_ctl.core.system import stamp
from dr_ctl.report.outage import Outage
from dr_ctl.report.scale import Tick, TimeAxis
from dr_ctl.report.story import NO_RETURN, Act, Mark, Part, Story
from dr_ctl.report.values import clock, seconds

_ELSEWHERE: Final = "told below, under its own heading"


@dataclass(frozen=True, slots=True)
class Span:
    """From `left`, `width` wide, both in per cent. A bar may go on past the axis at either side."""

    left: float
    width: float
    before: bool = False
    after: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A step or a signal; a `moment` is too short for a bar."""

    label: str
    site: str
    about: str
    text: str
    mark: Mark
    undo: bool
    moment: bool
    took: str
    began: str
    times: str
    bar: Span


@dataclass(frozen=True, slots=True)
class Chapter:
    """A part of the run. `band` is the time in which clients were out, `no_return` the point of no return."""

    title: str
    gap: str
    began: str
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    band: Span | None
    no_return: float | None


def chapters(story: Story, out: Outage, *, elsewhere: str = "") -> tuple[Chapter, ...]:
    """Lay out every part on an axis of its own: hours between two of them would leave nothing to see of either. What
    steps of the verb `elsewhere` say has a section of its own."""
    parts = story.parts
    before = (None, *parts)
    return tuple(
        _chapter(part, f"Part {place} of {len(parts)}: {part.kind}" if len(parts) > 1 else "", last, out, elsewhere)
        for place, (part, last) in enumerate(zip(parts, before, strict=False), start=1)
    )


def _chapter(part: Part, title: str, last: Part | None, out: Outage, elsewhere: str) -> Chapter:
    axis = TimeAxis(part.began, part.ended)
    gap = max(0.0, (part.began - last.ended).total_seconds()) if last is not None else None
    passed = next((act for act in part.acts if act.verb == NO_RETURN and act.mark is Mark.DONE), None)
    return Chapter(
        title=title,
        gap=f"Nothing was written for {seconds(gap)}." if gap is not None else "",
        began=stamp(part.began),
        ticks=axis.ticks(),
        rows=tuple(_row(act, axis, elsewhere) for act in part.acts),
        band=_band(part, axis, out),
        no_return=axis.at(passed.ended) if passed is not None and passed.ended is not None else None,
    )


def _row(act: Act, axis: TimeAxis, elsewhere: str) -> Row:
    moment = act.mark is Mark.SIGNAL or act.verb == NO_RETURN
    until = clock(act.ended) if act.ended is not None else "no end written"
    return Row(
        label=f"signal: {act.verb}" if act.mark is Mark.SIGNAL else act.label,
        site=act.site,
        about=act.about if not act.undo else "",
        text=_ELSEWHERE if act.verb == elsewhere and not act.undo else act.text,
        mark=act.mark,
        undo=act.undo,
        moment=moment,
        took=seconds(act.took_s) if act.took_s is not None and not moment else "",
        began=clock(act.began),
        times=clock(act.began) if moment else f"{clock(act.began)} to {until}",
        bar=_span(axis, act.began, act.ended),
    )


def _span(axis: TimeAxis, began: datetime, ended: datetime | None) -> Span:
    left = axis.at(began)
    return Span(left, round(axis.at(ended if ended is not None else axis.ended) - left, 3), after=ended is None)


def _band(part: Part, axis: TimeAxis, out: Outage) -> Span | None:
    if out.began is None or out.began > part.ended or (out.ended is not None and out.ended < part.began):
        return None
    left, right = axis.at(out.began), axis.at(out.ended or part.ended)
    after = out.ended is None or out.ended > part.ended
    return Span(left, round(right - left, 3), before=out.began < part.began, after=after)
