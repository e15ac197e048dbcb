"""The estimate that the settings ask for, and the stored one, shown at once: in `status`, beside a plan, and as the
estimate of a failover."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from dr_ctl.application import at_stake
from dr_ctl.application.result import Result
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json
from dr_ctl.core.notation import duration
from dr_ctl.core.system import system
from dr_ctl.engine.ports import Done, NotNeeded, Outcome
from dr_ctl.rpo.estimate.request import FRESH_S, Found, Request, Stored, stored
from dr_ctl.rpo.estimate.result import LossClass, LossLimit, Objectives
from dr_ctl.settings.model import Installation


def objectives(installation: Installation) -> Objectives | None:
    """The objectives of the settings, as the estimate and the bounds judge by them."""
    limits = installation.settings.objectives
    if limits is None:
        return None
    classes = tuple(LossClass(each.queues, LossLimit(each.loss.messages, each.loss.age)) for each in limits.classes)
    duplicates = limits.duplicates.messages if limits.duplicates is not None else None
    return Objectives(LossLimit(limits.loss.messages, limits.loss.age), classes, duplicates)


def request(installation: Installation) -> Request:
    """The estimate that the settings ask for."""
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


def of_site(installation: Installation, site: str) -> Found:
    return stored(installation.history, site)


def _lines(estimate: Stored, now: datetime, limits: Objectives | None) -> str:
    """The figures that are seldom exceeded, how old they are, and which objectives they miss. What a failover would
    cost now is no estimate's to say: `if_lost` has it."""
    total, age = estimate.data["total"], duration(round(estimate.age_s(now)))
    told = f"{at_stake.figures(total, 'p99')}; {at_stake.verdict(estimate.data, limits)}"
    first = f"estimate of {estimate.data['site']}, {age} old: p99 of all readings: {told}"
    before = at_stake.as_of(estimate.data)
    return "\n".join([first, *([f"  {before}"] if before else [])])


def figure(value: Json) -> str:
    return "not known" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def with_age(installation: Installation, site: str) -> tuple[Json, str, list[Finding]]:
    """The estimate of a site for `status` and plans: the document (null without one), the lines, the findings."""
    answer, now = of_site(installation, site), system().now()
    if answer.stored is None:
        return None, "", list(answer.findings)
    line = _lines(answer.stored, now, objectives(installation))
    stale = []
    if answer.stored.age_s(now) > FRESH_S:
        stale.append(found("DR-RPO-018", site=site, age=duration(round(answer.stored.age_s(now)))))
    return answer.stored.as_json(now), line, stale


def beside_plan(installation: Installation, result: Result) -> Result:
    """Add the stored estimate of the source to a plan. A refusal and a failover's plan stay unchanged: a failover has
    its own bounds."""
    if result.plan is None:
        return result
    document, line, findings = with_age(installation, result.plan.source)
    text = result.text or line
    return replace(
        result, data={**result.data, "estimate": document}, findings=[*result.findings, *findings], text=text
    )


class StoredEstimate:
    """Implements `Estimator` for a failover, from the stored estimate of the lost site, without Spark."""

    def __init__(self, installation: Installation, lost: str) -> None:
        self._installation, self._lost = installation, lost

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        del within_s, wait
        document, _, findings = with_age(self._installation, self._lost)
        if document is None:
            text = f"no estimate of {self._lost} is stored; the bounds come from the last samples"
            return NotNeeded(text, findings=tuple(findings))
        text = f"what {self._lost} was estimated to lose while it lived is in the report; the bounds hold now"
        return Done(text, {"estimate": document}, tuple(findings))

    def abandon(self) -> None:
        """There is nothing to end."""


class SkippedEstimate:
    """Implements `Estimator` behind a fence: clients are out, and no figure is worth their waiting."""

    def begin(self) -> None:
        """There is nothing to start."""

    def end(self, *, within_s: float, wait: Callable[[float], None]) -> Outcome:
        del within_s, wait
        return NotNeeded("skipped: clients are out since this run's fence, and wait for no estimate")

    def abandon(self) -> None:
        """There is nothing to end."""
