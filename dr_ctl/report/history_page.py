"""The page of an estimate: charts of what a history says, every number and word of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from dr_ctl.core.model import Finding
from dr_ctl.report.forecast import Forecast, Judged, as_tables, judged
from dr_ctl.report.outflow import Chart, Line, Piece
from dr_ctl.report.over_time import over_time
from dr_ctl.report.scale import CountAxis, Tick
from dr_ctl.report.values import count
from dr_ctl.rpo.estimate.result import Curves

_TITLES: Final = {"loss": "Loss", "age_ms": "Age of the oldest lost", "drain": "Time to drain"}
_UNITS: Final = {"loss": "messages", "age_ms": "seconds", "drain": "seconds"}
_VERDICTS: Final = {
    "met": "The objectives are met",
    "missed": "The objectives are missed",
    "unknown": "Whether the objectives are met is not known",
}
_METHOD: Final = """\
At most: bounds, each taken from that end of an interval between two looks which makes it larger. Likely: between the
look that was shipped whole and the one that was not. Both are explained in docs/rpo-method.md of dr-ctl.
Quantiles weigh time, not looks: p99 is what was not exceeded in 99 % of the time that looks cover. Quantiles of classes
do not add up to that of the total.
Intervals hold what the same quantile would be over all time that is like this, in 95 of 100 histories. Where an upper
end is left out fewer than four independent excursions stand behind it, and nobody can say how much higher it may be.
An objective is missed where what is likely is above it at p99, and kept where what is at most keeps it."""
NO_LIMITS: Final[Mapping[str, float | None]] = MappingProxyType({})
_SHARES: Final = (0.0, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """`sentences` stand first. `made` says when, over what and by which version; `judged` and `advice` are for who
    decides. `forecast` holds intervals and flows, which stand on a page of the method. `other`: the file that this one
    links to, with its words."""

    title: str
    verdict: str
    sentences: tuple[str, ...]
    forecast: Forecast | None
    charts: tuple[Chart, ...]
    findings: tuple[Finding, ...]
    made: str = ""
    judged: tuple[Judged, ...] = ()
    queues: tuple[tuple[str, ...], ...] = ()
    advice: tuple[str, ...] = ()
    other: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What the page says in the words of the command: `summary` of the verdict, `as_of` of a site that is away, `made`
    of when, over what and by which version; and the limits by scope and figure."""

    summary: str = ""
    as_of: str = ""
    made: str = ""
    limits: Mapping[tuple[str, ...], Mapping[str, float]] = field(default_factory=dict)


def of_estimate(
    name: str, data: Mapping[str, Any], curves: Curves | None, findings: Sequence[Finding], told: Told
) -> HistoryPage:
    """For the reader who decides: sentences, then likely, at most and allowed, then the history."""
    title = f"{name}: what a failure would lose"
    if data.get("total") is None:
        charts = _over_time(curves, NO_LIMITS) if curves is not None else ()
        verdict = "How much would be lost is not known"
        return HistoryPage(title, verdict, (), None, charts, tuple(findings), told.made)
    limits = told.limits.get((), {})
    of_curves = {"loss": limits.get("loss"), "age_ms": limits.get("age_s")}
    queues = tuple(
        (str(each["name"]), str(each["pair"]), f"{each['share']:.0%}", count(each["most"])) for each in data["queues"]
    )
    return HistoryPage(
        title,
        _VERDICTS.get(str(data.get("verdict")), "No objectives are set"),
        tuple(filter(None, (told.as_of, told.summary))),
        None,
        _over_time(curves, of_curves) if curves is not None else (),
        tuple(findings),
        told.made,
        judged(data, told.limits),
        queues,
        tuple(data["advice"]),
    )


def method_of_estimate(name: str, data: Mapping[str, Any], curves: Curves | None, told: Told) -> HistoryPage | None:
    """How sure it is: intervals, single flows, and for how much of the time which figure was no more."""
    if data.get("total") is None:
        return None
    forecast = as_tables(data)
    charts = tuple(_distribution(curves, metric) for metric in _TITLES) if curves is not None else ()
    return HistoryPage(
        f"{name}: how sure that is",
        "How the figures are made",
        (forecast.sentence, _METHOD),
        forecast,
        charts,
        (),
        told.made,
    )


def _over_time(curves: Curves, limits: Mapping[str, float | None]) -> tuple[Chart, ...]:
    span = (curves.began, curves.ended)
    return tuple(
        over_time(f"{_TITLES[metric]} over time", _UNITS[metric], span, curves.over_time[metric],
                  curves.likely.get(metric, ()), limit=limits.get(metric))
        for metric in _TITLES
    )  # fmt: skip


def _distribution(curves: Curves, metric: str) -> Chart:
    title, unit = f"{_TITLES[metric]}: how much of the time it was no more", _UNITS[metric]
    shares = curves.shares.get(metric, ())
    if not shares:
        return Chart(title, unit, "", "Nothing is known of it in this window.")
    y = CountAxis.up_to(max(value for _, value in shares))
    steps: Piece = []
    before = 0.0
    for share, value in shares:
        steps += [(round(100 * before, 3), y.at(value)), (round(100 * share, 3), y.at(value))]
        before = share
    x = tuple(Tick(100 * share, f"{100 * share:g} %") for share in _SHARES)
    line = Line.of(_TITLES[metric].lower(), 0, [steps], "")
    return Chart(title, unit, "", "", "share of the covered time", (line,), x, y.ticks())
