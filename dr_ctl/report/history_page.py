"""The page of an estimate or a backtest: charts of what a history says, every number and word of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from dr_ctl.core.model import Finding
from dr_ctl.report.forecast import Forecast, as_tables
from dr_ctl.report.outflow import Chart, Line, Piece
from dr_ctl.report.over_time import over_time
from dr_ctl.report.scale import CountAxis, Tick
from dr_ctl.report.values import NOT_KNOWN, count, seconds
from dr_ctl.rpo.backtest.backtest import Backtest, BacktestAnswer
from dr_ctl.rpo.backtest.calibration import BoundRow, Row
from dr_ctl.rpo.estimate.curves import Curves
from dr_ctl.rpo.estimate.result import LossLimit, Objectives

_TITLES: Final = {"loss": "Loss", "age_ms": "Age of the oldest lost", "drain_ms": "Time to drain"}
_UNITS: Final = {"loss": "messages", "age_ms": "seconds", "drain_ms": "seconds"}
_VERDICTS: Final = {
    "met": "The objectives are met",
    "missed": "The objectives are missed",
    "unknown": "Whether the objectives are met is not known",
}
NO_LIMITS: Final[Mapping[str, float | None]] = MappingProxyType({})
_SHARES: Final = (0.0, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class HistoryPage:
    title: str
    verdict: str
    sentence: str
    forecast: Forecast | None
    calibration: tuple[tuple[str, ...], ...]
    charts: tuple[Chart, ...]
    findings: tuple[Finding, ...]


def of_estimate(
    name: str,
    data: Mapping[str, Any],
    curves: Curves | None,
    findings: Sequence[Finding],
    objectives: Objectives | None = None,
) -> HistoryPage:
    known = data.get("total") is not None
    forecast = as_tables(data) if known else None
    limits = NO_LIMITS if objectives is None else _limits(objectives.loss)
    charts = _curves(curves, limits) if curves is not None else ()
    verdict = _VERDICTS.get(str(data.get("verdict")), "No objectives are set")
    verdict = verdict if known else "How much would be lost is not known"
    sentence = forecast.sentence if forecast is not None else ""
    return HistoryPage(f"{name}: what a failure would lose", verdict, sentence, forecast, (), charts, tuple(findings))


def _limits(limit: LossLimit) -> Mapping[str, float | None]:
    return {"loss": limit.messages, "age_ms": limit.age_s}


def of_backtest(name: str, answer: BacktestAnswer) -> HistoryPage:
    title = f"{name}: what the estimate would have said"
    verdict = {
        "holds": "The estimate was not shown to say too little on this history",
        "narrow": "The estimate says less than what then was true",
        "unknown": "There is too little history to tell",
    }[answer.verdict.value]
    backtest = answer.backtest
    if backtest is None:
        return HistoryPage(title, verdict, "", None, (), (), answer.findings)
    sentence = (
        f"If {backtest.site} died. Each part of the history between {backtest.window[0]:%Y-%m-%d %H:%M} and "
        f"{backtest.window[1]:%Y-%m-%d %H:%M} UTC is asked with what was known before it."
    )
    charts = (*_folds(backtest), *_curves(backtest.curves))
    return HistoryPage(title, verdict, sentence, None, tuple(_calibration(backtest)), charts, answer.findings)


def _calibration(backtest: Backtest) -> list[tuple[str, ...]]:
    bound = backtest.bound
    rows: list[tuple[str, ...]] = [
        (
            "Bound between two looks",
            "",
            _share(bound.coverage),
            count(bound.excess),
            count(bound.moments),
            bound.verdict.value,
        ),
        ("Likely between two looks", "", "", _signed(bound.bias, count), count(bound.moments), _off(bound)),
    ]
    for row in backtest.rows:
        write = count if row.metric == "loss" else seconds
        nominal = _share(float(row.quantile[1:]) / 100)
        width = _signed(row.width, write)
        rows.append((_name(row), nominal, _share(row.coverage), width, count(len(row.folds)), row.verdict.value))
    return rows


def _off(bound: BoundRow) -> str:
    return NOT_KNOWN if bound.error is None else f"off by {count(bound.error)}"


def _signed(value: float | None, write: Callable[[float], str]) -> str:
    return NOT_KNOWN if value is None else f"-{write(-value)}" if value < 0 else write(value)


def _name(row: Row) -> str:
    metric = "Loss" if row.metric == "loss" else "Age"
    when = "at a random moment" if row.horizon_s is None else f"in {seconds(row.horizon_s)}, given the state"
    return f"{metric}, {row.quantile}, {when}"


def _share(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{100 * value:.1f} %"


def _folds(backtest: Backtest) -> list[Chart]:
    """The estimated and the true p99 of loss, part by part of the history."""
    charts = []
    for row in backtest.rows:
        if (row.metric, row.quantile, row.horizon_s) != ("loss", "p99", None):
            continue
        title, caption = "Loss, p99: said before each part of the history, and what then was", _coverage(row)
        if len(row.folds) < 2:  # noqa: PLR2004 - a line has two ends
            charts.append(Chart(title, "messages", caption, "Too few parts of the history for a curve."))
            continue
        y = CountAxis.up_to(max(max(fold.said, fold.was) for fold in row.folds))
        first, last = row.folds[0].number, row.folds[-1].number
        span = max(1, last - first)
        said = [(100 * (fold.number - first) / span, y.at(fold.said)) for fold in row.folds]
        was = [(100 * (fold.number - first) / span, y.at(fold.was)) for fold in row.folds]
        x = tuple(
            Tick(100 * (fold.number - first) / span, str(fold.number + 1)) for fold in row.folds[:: max(1, span // 6)]
        )
        lines = (Line.of("said before", 0, [said], ""), Line.of("what then was", 1, [was], ""))
        charts.append(Chart(title, "messages", caption, "", "part of the history", lines, x, y.ticks()))
    return charts


def _coverage(row: Row) -> str:
    return f"In {_share(row.coverage)} of the time the loss was not above what had been said."


def _curves(curves: Curves, limits: Mapping[str, float | None] = NO_LIMITS) -> tuple[Chart, ...]:
    span = (curves.began, curves.ended)
    drawn = [
        over_time(f"{_TITLES[metric]} over time", _UNITS[metric], span, curves.over_time[metric],
                  curves.likely.get(metric, ()), limit=limits.get(metric))
        for metric in ("loss", "age_ms", "drain_ms")
    ]  # fmt: skip
    return (*drawn, *(_distribution(curves, metric) for metric in ("loss", "age_ms", "drain_ms")))


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
