"""`rpo estimate` and `rpo backtest`: the answers of the history, as tables, the estimate as a page too."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dr_ctl.application import estimates
from dr_ctl.application.estimates import figure, request
from dr_ctl.application.result import Result
from dr_ctl.cli.estimate_table import estimate_table
from dr_ctl.cli.progress import telling
from dr_ctl.cli.session import Session
from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration, seconds
from dr_ctl.core.system import stamp, system
from dr_ctl.engine.runs import write_text
from dr_ctl.report.estimate_page import EstimatePage, estimate_page
from dr_ctl.report.html import render
from dr_ctl.rpo.core.quantities import Calibration
from dr_ctl.rpo.estimate.estimate import HORIZONS_S
from dr_ctl.rpo.estimate.estimate import backtest as make_backtest
from dr_ctl.rpo.estimate.estimate import estimate as make_estimate
from dr_ctl.rpo.estimate.result import EstimateAnswer, Objectives, Verdict
from dr_ctl.rpo.pipeline.make import reading
from dr_ctl.rpo.pipeline.session import master
from dr_ctl.rpo.pipeline.sql import version
from dr_ctl.settings.model import Installation

_CALIBRATION = {
    Calibration.HOLDS: (ExitCode.OK, "the estimate was not shown to say too little on this history"),
    Calibration.NARROW: (ExitCode.LOSS_REFUSED, "the estimate says less than what then was true"),
    Calibration.UNKNOWN: (ExitCode.UNKNOWN, "there is too little history to tell"),
}
_CODES = {Verdict.MET: ExitCode.OK, Verdict.MISSED: ExitCode.LOSS_REFUSED, Verdict.UNKNOWN: ExitCode.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Window:
    """The site and the period, as typed."""

    site: str | None
    since: str | None
    until: str | None


def estimate(session: Session, window: Window, horizon: str, report: Path | None, *, full: bool) -> Result:
    installation = _installation(session, window.site)
    asked = replace(
        request(installation),
        site=window.site,
        since=_moment("--since", window.since),
        until=_moment("--until", window.until),
        horizon_s=_duration("--horizon", horizon),
        # A failover needs an estimate of the whole history.
        store=window.since is None and window.until is None,
        settled=not full,
    )
    with telling(color=session.color, quiet=session.quiet) as say, reading(say) as make:
        answer = make_estimate(asked, make, charted=report is not None)
    code = _CODES[answer.verdict] if answer.verdict is not None else ExitCode.OK
    text = estimate_table(answer.data, asked.objectives)
    text += f"\nmade by Spark on {master(asked.master)}" if text else ""
    if report is not None:
        _write(_page(installation, answer, asked.objectives), report)
        text = f"{text}\n{report}" if text else str(report)
    return Result(code, _summary(answer, asked.objectives), answer.findings, answer.data, text=text)


def _page(installation: Installation, answer: EstimateAnswer, objectives: Objectives | None) -> EstimatePage:
    over = ""
    if answer.estimate is not None:
        window = answer.estimate.window
        over = f" over {window.samples} samples from {stamp(window.first)} to {stamp(window.last)}"
    said = (
        (estimates.as_of(answer.data), _summary(answer, objectives, away=False)) if answer.estimate is not None else ()
    )
    return estimate_page(
        installation.settings.name,
        answer.data,
        answer.curves,
        answer.findings,
        sentences=[f"{sentence[:1].upper()}{sentence[1:]}." for sentence in said if sentence],
        made=f"Made {stamp(system().now())} by dr-ctl {version()}{over}, in {installation.history.shown}.",
        limits=estimates.limits(objectives),
    )


def backtest(
    session: Session,
    site: str | None,
    since: str | None,
    until: str | None,
    horizons: list[str] | None,
) -> Result:
    installation = _installation(session, site)
    asked = replace(request(installation), site=site, since=_moment("--since", since), until=_moment("--until", until))
    ahead_s = [_duration("--horizon", each) for each in horizons] if horizons else HORIZONS_S
    with telling(color=session.color, quiet=session.quiet) as say, reading(say) as make:
        answer = make_backtest(asked, make, horizons_s=ahead_s)
    data = answer.data
    code, summary = _CALIBRATION[answer.verdict]
    return Result(code, summary, answer.findings, data, text=_calibration(data))


def _installation(session: Session, site: str | None) -> Installation:
    installation = session.installation()
    sites = installation.settings.sites
    if site is not None and site not in sites:
        raise UsageError(f"no site {site} in the settings", remedy=f"The sites are {' and '.join(sites)}.")
    return installation


def _write(page: EstimatePage, report: Path) -> None:
    try:
        write_text(report, render(page))
    except OSError as error:
        raise UsageError(
            f"--report {report}: {error.strerror or error}", remedy="Name a file that can be written."
        ) from error


def _calibration(data: Any) -> str:
    if data["bound"] is None:
        return ""
    rows: list[tuple[str, ...]] = [("", "nominal", "coverage", "above by", "folds", "")]
    bound = data["bound"]
    rows.append(
        (
            "bound between looks",
            "",
            figure(bound["coverage"]),
            figure(bound["excess"]),
            figure(bound["moments"]),
            bound["verdict"],
        )
    )
    likely = bound["likely"]
    rows.append(("likely between looks", "", "", figure(likely["bias"]), "", ""))
    for each in data["quantiles"]:
        ahead = "" if each["horizon_s"] is None else f" in {duration(each['horizon_s'])}"
        name = f"{each['metric']} {each['quantile']}{ahead}"
        figures = (figure(each[key]) for key in ("nominal", "coverage", "width", "folds"))
        rows.append((name, *figures, each["verdict"]))
    return "\n".join(
        "".join(f"{cell:>11}" if place else f"{cell:<26}" for place, cell in enumerate(row)) for row in rows
    )


def _summary(answer: EstimateAnswer, objectives: Objectives | None, *, away: bool = True) -> str:
    if answer.estimate is None:
        return "how much a failure would lose is not known"
    data = answer.data
    as_of = estimates.as_of(data) if away else ""
    told = f"if {answer.estimate.site} died: {estimates.verdict(data, objectives)}"
    return f"{told}; {as_of}" if as_of else told


def _moment(option: str, value: str | None) -> datetime | None:
    """A moment, or a duration back from now."""
    if value is None:
        return None
    try:
        return system().now() - timedelta(seconds=seconds(value))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise UsageError(
            f"{option} {value}: neither a moment nor a duration", remedy="As in 2026-11-21T09:00Z or 2h."
        ) from error
    if moment.tzinfo is None:
        raise UsageError(f"{option} {value}: lacks its time zone", remedy="Write Z for UTC, as in 2026-11-21T09:00Z.")
    return moment


def _duration(option: str, value: str) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
