"""Estimates by the settings: the stored estimate in `status` and beside a plan, the estimate that a run makes during
its checks, and the sentences on both."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from dr_ctl.application.plans import StoredFigures
from dr_ctl.application.result import Result
from dr_ctl.core import machine
from dr_ctl.core.document import document
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Severity, brief
from dr_ctl.core.notation import NOT_KNOWN, duration
from dr_ctl.core.system import system
from dr_ctl.engine.ports import Done, Estimator, NotNeeded, Outcome
from dr_ctl.rpo.estimate.request import FRESH_S, AgedEstimate, Estimating, Request, stored
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives, Verdict, judge
from dr_ctl.settings.model import Installation

_POLL_S: Final = 0.05


def objectives(installation: Installation) -> Objectives | None:
    """Return the objectives of the settings, by which estimate and bounds are judged."""
    limits = installation.settings.objectives
    if limits is None:
        return None
    classes = tuple(LossClass(of.queues, LossLimit(of.loss.messages, of.loss.age)) for of in limits.classes)
    duplicates = limits.duplicates.messages if limits.duplicates is not None else None
    return Objectives(LossLimit(limits.loss.messages, limits.loss.age), classes, duplicates)


def request(installation: Installation) -> Request:
    settings = installation.settings
    return Request(
        history=installation.history.where,
        near=str(installation.history.near),
        objectives=objectives(installation),
        include=settings.queues.include,
        exclude=settings.queues.exclude,
        master=settings.spark.master,
        conf=settings.spark.conf,
        store=True,
    )


def figure(value: Json) -> str:
    return NOT_KNOWN if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def with_age(installation: Installation, site: str) -> tuple[AgedEstimate | None, str, list[Finding]]:
    """Return the estimate of a site for `status` and plans; lines with its p99 figures, their age, and the objectives
    that they miss; and findings. `Assessment.if_lost` has the bounds of a failover now."""
    estimate, findings = stored(installation.history, site)
    if estimate is None:
        return None, "", findings
    data, age = estimate.data, duration(round(estimate.age_s))
    worst = f"{figures(data['total'], 'p99')}; {verdict(data, objectives(installation))}"
    lines = [f"estimate of {data['site']}, {age} old: p99 of all readings: {worst}"]
    lines += [f"  {before}"] if (before := as_of(data)) else []
    stale = [found("DR-RPO-018", site=site, age=age)] if estimate.age_s > FRESH_S else []
    return estimate, "\n".join(lines), stale


def add_estimate(installation: Installation, result: Result) -> Result:
    """Add the stored estimate of the source. A refusal stays as it is, and a failover has its own bounds."""
    if result.plan is None:
        return result
    estimate, line, findings = with_age(installation, result.plan.source)
    data = replace(result.data, stored=StoredFigures(estimate))
    return replace(result, data=data, findings=[*result.findings, *findings], text=result.text or line)


@dataclass(frozen=True, slots=True)
class NoEstimator(Estimator):
    """Returns the stored estimate of a `lost` site, without Spark, or none after a fence, because clients wait."""

    installation: Installation
    lost: str | None = None

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        del within_s, wait
        if self.lost is None:
            return NotNeeded("skipped: clients are out since this run's fence, so no time is spent on it")
        estimate, _, findings = with_age(self.installation, self.lost)
        if estimate is None:
            text = f"no estimate of {self.lost} is stored; the bounds come from the last samples"
            return NotNeeded(text, findings=tuple(findings))
        text = f"what {self.lost} was estimated to lose while it lived is in the report; the bounds hold now"
        return Done(text, {"estimate": document(estimate)}, tuple(findings))


def figures(total: Mapping[str, Any], column: str) -> str:
    """Write figures as text: messages at risk, the age of the oldest, possible duplicates, time for a drain."""
    lost, duplicates = (_both(total[key], column, figure) for key in ("loss", "duplicates"))
    age_s, drain_s = (_both(total[key], column, _time) for key in ("age_s", "drain_s"))
    return f"messages lost {lost}, age of the oldest {age_s}, duplicates {duplicates}, drain {drain_s}"


TOO_FEW: Final = " (too few readings, or too late); no violation seen"


def _both(row: Mapping[str, Any], column: str, write: Callable[[float | None], str]) -> str:
    most, likely = write(row.get(column)), row.get("likely", {}).get(column)
    return most if likely is None or write(likely) == most else f"likely {write(likely)} (at most {most})"


def as_of(data: Mapping[str, Any]) -> str:
    """Return the time of the figures of a site during its outage; empty without an outage."""
    outage = data.get("outage")
    if not outage:
        return ""
    return f"as of {outage['last_served']}, before the outage of {data['site']}; not the loss bound of a failover now"


def limits(objectives: Objectives | None) -> Mapping[tuple[str, ...], Mapping[str, float]]:
    """Return the limits by scope (without queues for the total) and figure."""
    if objectives is None:
        return {}
    classes = {of_class.queues: of_class.loss.by_figure for of_class in objectives.classes}
    return {(): objectives.loss.by_figure, **classes}


def verdict(data: Mapping[str, Any], objectives: Objectives | None) -> str:
    """Say whether the objectives are met, which are missed by the likely figures, and which cannot be judged."""
    word = str(data.get("verdict"))
    if word not in ("missed", "unknown"):
        return "objectives met" if word == "met" else "no objectives set"
    if objectives is None or data.get("total") is None:
        return "objectives missed" if word == "missed" else "objectives: not known"
    limits = list(_limited(data, objectives))
    if word == "missed":
        return f"objectives missed: {brief([limit.missed for limit in limits if limit.judged is Verdict.MISSED])}"
    unknown = [limit.unjudged for limit in limits if limit.judged is Verdict.UNKNOWN]
    if all(limit.most is not None for limit in limits):
        return f"objectives: cannot tell: {brief(unknown)}" if unknown else f"objectives: not known{TOO_FEW}"
    return f"objectives: not known: {brief(unknown)}"


class _Limited(NamedTuple):
    of: str
    is_count: bool
    limit: float
    likely: float | None
    most: float | None

    @property
    def judged(self) -> Verdict:
        """The verdict; an older estimate without a likely figure is judged by its bound."""
        return judge(self.most if self.likely is None else self.likely, self.most, self.limit)

    @property
    def missed(self) -> str:
        most, likely = (self.most, "") if self.likely is None else (self.likely, "likely ")
        if self.is_count:
            return f"{likely}{figure(most)} message(s){self.of} lost where {figure(self.limit)} are allowed"
        return f"the oldest{self.of} {likely}{_time(most)} old where {_time(self.limit)} are allowed"

    @property
    def unjudged(self) -> str:
        write, what = (figure, "messages lost") if self.is_count else (_time, "age of the oldest")
        both = NOT_KNOWN if self.most is None else f"likely {write(self.likely)}, at most {write(self.most)}"
        return f"{what}{self.of} {both}, where {write(self.limit)} are allowed"


def _limited(data: Mapping[str, Any], objectives: Objectives) -> Iterator[_Limited]:
    by_queues = limits(objectives)
    for scope in (data["total"], *data.get("classes", ())):
        queues = tuple(scope.get("queues", ()))
        of = f" of {', '.join(queues)}" if queues else ""
        for figure, most in by_queues.get(queues, {}).items():
            likely = scope[figure].get("likely", {}).get("p99")
            yield _Limited(of, figure == "loss", most, likely, scope[figure].get("p99"))


def _time(value_s: float | None) -> str:
    return NOT_KNOWN if value_s is None else duration(value_s)


class Preflight(Estimator):
    """Makes the estimate in the background. A missing history, Java or Spark is a finding and refuses no run."""

    def __init__(self, installation: Installation, source: str) -> None:
        self._installation, self._source = installation, source
        self._estimating: Estimating | None = None
        self._stored: AgedEstimate | None = None
        self._lacking = machine.missing("pyspark")

    def begin(self) -> None:
        history = self._installation.history
        estimate, _ = stored(history, self._source)
        # An estimate from the future, by a wrong clock, is not fresh.
        if estimate is not None and timedelta() <= system().now() - estimate.made_at <= timedelta(seconds=FRESH_S):
            self._stored = estimate
        # Only the estimate reads a remote store, so that nobody waits here.
        elif self._lacking is None and (history.folder is None or any(history.near.glob("date=*/site=*/*.parquet"))):
            self._estimating = Estimating(request(self._installation))

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        limits = objectives(self._installation)
        if self._stored is not None:
            estimate = self._stored.as_of(system().now())
            text = f"{_summary(estimate.data, limits)}; as stored {duration(round(estimate.age_s))} ago"
            return Done(text, {"estimate": document(estimate)}, _findings(estimate.findings))
        if self._lacking is not None:  # no move waits for a missing package
            return NotNeeded.of(found("DR-PART-002", remedy=self._lacking.remedy))
        if (estimating := self._estimating) is None:
            from dr_ctl.rpo.history.newest import only_begun  # noqa: PLC0415 - takes a tenth of a second to load

            lacks = only_begun(self._installation.history) or found("DR-RPO-001.no_history")
            return NotNeeded.of(replace(lacks, severity=Severity.INFO))
        until = system().monotonic() + within_s
        while estimating.runs and system().monotonic() < until:
            wait(_POLL_S)
        is_late, answer = estimating.runs, estimating.answer()
        self.abandon()
        if is_late:
            return NotNeeded.of(found("DR-RPO-008", within=f"{within_s:g}"))
        if "error" in answer:
            return NotNeeded.of(found("DR-RPO-009", remedy=str(answer.get("remedy", "")), why=answer["error"]))
        return Done(_summary(answer["data"] or {}, limits), {"estimate": answer["data"]}, _findings(answer["findings"]))

    def abandon(self) -> None:
        if self._estimating is not None:
            self._estimating.end()


def _findings(rows: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(row["id"], Severity(row["severity"]), row["text"], row["remedy"]) for row in rows)


def _summary(data: Mapping[str, Any], limits: Objectives | None) -> str:
    if data.get("total") is None:
        return "no estimate from this history"
    now, p99 = (figures(data["total"], column) for column in ("now", "p99"))
    text = f"at the last reading of {data['site']}, {data['read_at']}: {now}; p99 of all readings: {p99}"
    return f"{text}; {verdict(data, limits)}"
