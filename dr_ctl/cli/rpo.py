"""The answers of `rpo`: the estimate as a table and as a page, its backtest, and the reconciliation of ledgers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dr_ctl.application import estimates
from dr_ctl.application.estimates import figure, request
from dr_ctl.application.result import LOST, Result
from dr_ctl.cli.options import moment, seconds_of
from dr_ctl.cli.screen import status_line
from dr_ctl.cli.session import Session
from dr_ctl.core.document import document, stamp
from dr_ctl.core.errors import UsageError, writing
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import duration, page, table
from dr_ctl.core.system import system
from dr_ctl.engine.runs import write_text
from dr_ctl.report.estimate_page import EstimatePage
from dr_ctl.report.html import render
from dr_ctl.rpo.core.quantities import Calibration
from dr_ctl.rpo.estimate import estimate as calculation
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import EstimateAnswer, Objectives, Verdict
from dr_ctl.rpo.ledgers import reconcile as ledgers
from dr_ctl.rpo.ledgers.result import KINDS, Reconciled
from dr_ctl.rpo.pipeline.make import reading
from dr_ctl.rpo.pipeline.session import master
from dr_ctl.rpo.pipeline.sql import version
from dr_ctl.settings.model import Installation, SparkSettings

_CALIBRATION = {
    Calibration.HOLDS: (ExitCode.OK, "the estimate was not shown to be too low on this history"),
    Calibration.NARROW: (ExitCode.LOSS_REFUSED, "the estimate was lower than the truth"),
    Calibration.UNKNOWN: (ExitCode.UNKNOWN, "there is too little history to tell"),
}
_CODES = {Verdict.MET: ExitCode.OK, Verdict.MISSED: ExitCode.LOSS_REFUSED, Verdict.UNKNOWN: ExitCode.UNKNOWN}
_COLUMNS: Final = ("now", "p50", "p95", "p99", "max")
_NAMES: Final = (
    ("loss", "messages lost"),
    ("age_s", "age of the oldest, s"),
    ("duplicates", "duplicates"),
    ("drain_s", "time to drain, s"),
)
_LEGEND: Final = "at most: an upper bound; p99: not exceeded 99 % of the time"


def asked_of(session: Session, site: str | None, since: str | None, until: str | None) -> Request:
    if site is not None:
        session.installation().must_know(site)
    began = moment("--since", since) if since is not None else None
    ended = moment("--until", until) if until is not None else None
    if began is not None and ended is not None and began >= ended:
        raise UsageError("--since is not before --until", remedy="Exchange the two moments.")
    return replace(request(session.installation()), site=site, since=began, until=ended)


def estimate(session: Session, asked: Request, horizon: str, report: Path | None, *, full: bool) -> Result:
    asked = replace(
        asked,
        horizon_s=seconds_of("--horizon", horizon),
        # A failover needs an estimate of the whole history.
        store=asked.since is None and asked.until is None,
        from_summaries=not full,
    )
    with status_line(color=session.color, quiet=session.quiet) as say, reading(say) as make:
        answer = calculation.estimate(asked, make, charted=report is not None)
    code = _CODES[answer.verdict] if answer.verdict is not None else ExitCode.OK
    text = estimate_table(answer.data, asked.objectives)
    text += f"\nmade by Spark on {master(asked.master)}" if text else ""
    if report is not None:
        _write(report, session.installation(), answer, asked.objectives)
        text = "\n".join(filter(None, (text, str(report))))
    return Result(code, _summary(answer, asked.objectives), answer.findings, answer.data, text=text)


def _write(report: Path, installation: Installation, answer: EstimateAnswer, objectives: Objectives | None) -> None:
    over, sentences = "", list[str]()
    if answer.estimate is not None:
        window = answer.estimate.window
        over = f" over {window.samples} samples from {stamp(window.first)} to {stamp(window.last)}"
        sentences = [estimates.as_of(answer.data), _summary(answer, objectives, away=False)]
    made = EstimatePage(
        installation.settings.name,
        answer.data,
        answer.curves,
        answer.findings,
        sentences=[f"{sentence[:1].upper()}{sentence[1:]}." for sentence in sentences if sentence],
        made=f"Made {stamp(system().now())} by dr-ctl {version()}{over}, in {installation.history.shown}.",
        limits=estimates.limits(objectives),
    )
    with writing(f"--report {report}"):
        write_text(report, render(made))


def backtest(session: Session, asked: Request, horizons: list[str] | None) -> Result:
    ahead_s = [seconds_of("--horizon", ahead) for ahead in horizons] if horizons else calculation.HORIZONS_S
    with status_line(color=session.color, quiet=session.quiet) as say, reading(say) as make:
        answer = calculation.backtest(asked, make, horizons_s=ahead_s)
    code, summary = _CALIBRATION[answer.verdict]
    return Result(code, summary, answer.findings, answer.data, text=_calibration(answer.data))


def _calibration(data: Any) -> str:
    if (bound := data["bound"]) is None:
        return ""
    measured = (figure(bound[key]) for key in ("coverage", "excess", "moments"))
    rows = [
        ("bound between samples", "", *measured, bound["verdict"]),
        ("likely between samples", "", "", figure(bound["likely"]["bias"]), "", ""),
    ]
    for quantile in data["quantiles"]:
        ahead = "" if quantile["horizon_s"] is None else f" in {duration(quantile['horizon_s'])}"
        figures = (figure(quantile[key]) for key in ("nominal", "coverage", "width", "folds"))
        rows.append((f"{quantile['metric']} {quantile['quantile']}{ahead}", *figures, quantile["verdict"]))
    return table(("", "nominal", "coverage", "above by", "folds", ""), rows, numbers=range(1, 5))


def _summary(answer: EstimateAnswer, objectives: Objectives | None, *, away: bool = True) -> str:
    if answer.estimate is None:
        return "how many messages a failure would lose is not known"
    data = answer.data
    as_of = estimates.as_of(data) if away else ""
    lost = f"if {answer.estimate.site} died: {estimates.verdict(data, objectives)}"
    return f"{lost}; {as_of}" if as_of else lost


def estimate_table(data: Mapping[str, Any], objectives: Objectives | None) -> str:
    if not data or data.get("total") is None:
        return ""
    limits = estimates.limits(objectives)
    rows = [*_rows(data["total"], limits.get((), {}), _NAMES)]
    for of_class in data["classes"]:
        queues = tuple(of_class["queues"])
        names = [(key, f"{', '.join(queues)}: {name}") for key, name in _NAMES if key in limits.get(queues, {})]
        rows += _rows(of_class, limits.get(queues, {}), names)
    allowed = "allowed at p99" if any(row[-1] for row in rows) else ""
    lines = [table(("", "", *_COLUMNS, allowed), rows, numbers=range(2, 8)), _LEGEND]
    parts = [f"{row['name']} {row['share']:.0%} (at most {row['most']} in one sample)" for row in data["queues"]]
    lines += [f"most was likely lost of {', '.join(parts)}"] if parts else []
    lines += [f"- {advice}" for advice in data["advice"]]
    window = data["window"]
    covered, ago = duration(window["covered_s"]), duration(data["stale_s"])
    lines.append("now: at the last reading; what a failover costs, with what may have come since: `dr-ctl status`")
    return "\n".join([*lines, f"{window['samples']} samples, {covered} covered, last reading {ago} ago"])


def _rows(scope: Mapping[str, Any], limits: Mapping[str, float], names: Any) -> Iterator[tuple[str, ...]]:
    for key, name in names:
        of_key = scope[key]
        likely, most = (tuple(figure(row.get(column)) for column in _COLUMNS) for row in (of_key["likely"], of_key))
        yield name, "likely", *likely, f"{limits[key]:g}" if key in limits else ""
        yield "", "at most", *most, ""


def reconcile(session: Session, files: list[str], out: Path | None, property_name: str | None) -> Result:
    # Ledgers can be reconciled without any settings.
    spark = session.installation().settings.spark if session.has_settings() else SparkSettings()
    place = out or session.state() / "reconcile" / f"{system().now():%Y%m%dT%H%M%SZ}"
    result = ledgers.reconcile(files, place, property_name=property_name, master=spark.master, conf=spark.conf)
    unexpected, findings = result.parts["unexpected"], [*result.findings]
    if unexpected.count:
        findings.append(found("DR-RPO-016", count=unexpected.count, file=unexpected.file))
    code = ExitCode.UNKNOWN if result.parts["unknown"].count else ExitCode.OK
    code = code if result.is_clean else ExitCode.LOSS_REFUSED
    counts = [f"{result.parts[kind].count} {kind}" for kind in KINDS if result.parts[kind].count]
    text = ", ".join(counts) or "nothing lost, nothing doubled" if result.events else "the ledgers tell of no message"
    return Result(code, text, findings, document(result), text=_counts(result), word="" if result.is_clean else LOST)


def _counts(result: Reconciled) -> str:
    lines = [f"{kind:<12}{result.parts[kind].count:>12}  {result.parts[kind].file}" for kind in KINDS]
    for kind in KINDS:
        lines += [f"  {kind} of {queue}: {count}" for queue, count in result.parts[kind].queues.items()]
    events = ", ".join(f"{count} {event}" for event, count in sorted(result.events.items())) or "none"
    return page([*lines, f"events: {events}"])
