"""The estimate: from a history to figures and a verdict. Contacts no broker.

Spark is started only once there is something to read, and imported only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate import horizon, notes
from dr_ctl.rpo.estimate.coverage import Coverage, judged
from dr_ctl.rpo.estimate.curves import BINS, UNITS, curves
from dr_ctl.rpo.estimate.figures import quantity
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import (
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    Figures,
    FlowEstimate,
    Horizon,
    LossClass,
    Objectives,
    Quantity,
    SeenWindow,
    Verdict,
)
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.estimate.work import Series, Work
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.series.flow import Flow
from dr_ctl.rpo.series.histogram import Histogram, covered_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28
DAY_US: Final = 86_400 * 1_000_000


def estimate(asked: Request, *, charted: bool = False) -> EstimateAnswer:
    """Say what would be lost if the site died: at the last look, and at a random moment of the history.

    `charted` adds the curves of a page.

    Raises EnvironmentFault where Spark cannot start or finish, or the estimate cannot be stored.
    """
    clock = SystemClock()
    answer = reading.over(asked, partial(estimate_in, asked=asked, clock=clock, charted=charted), EstimateAnswer)
    if asked.store:
        store(asked.history, answer, clock.now())
    return answer


def estimate_in(
    spark: SparkSession | None,
    files: Sequence[str],
    findings: Sequence[Finding],
    *,
    asked: Request,
    clock: Clock,
    charted: bool = False,
) -> EstimateAnswer:
    """Do the same in a session that is already there; without one, in this process."""
    work = Work.of(spark, files, asked)
    if isinstance(work, Finding):
        return EstimateAnswer(None, (*findings, work))
    seen = Coverage.of(work.total.steps)
    window = _window(work, seen)
    now = clock.now()
    stale_s = round(max(0.0, (now - window.last).total_seconds()), 3)
    estimated = _Assembly(work, asked.horizon_s).estimate(window, stale_s, asked.objectives)
    found = [
        *notes.waiting(work.site, work.serving),
        *notes.stale(work.flows, window, stale_s),
        *notes.ahead(window, now),
        *notes.uncertain(work.total.steps, estimated.total.unexplained),
        *notes.uncovered(seen),
        *notes.without_queues(work, asked.objectives),
        *notes.inside(estimated, asked.objectives),
    ]
    drawn = curves(work.total.steps, work.span_us, BINS) if charted else None
    return EstimateAnswer(estimated, (*findings, *found), drawn)


class _Assembly:
    """Puts the figures of every scope together."""

    def __init__(self, work: Work, horizon_s: float) -> None:
        self._work, self._horizon_s = work, horizon_s
        first, last = work.span_us
        self._blocks = BLOCKS_OF_A_WEEK if last - first >= 7 * DAY_US else BLOCKS
        # A day of the past says what may come; older days were other days.
        self._since_us = last - DAY_US - int(horizon_s * 1e6)

    def estimate(self, window: SeenWindow, stale_s: float, objectives: Objectives | None) -> Estimate:
        work = self._work
        total = self._figures(work.total, work.flows)
        told = objectives.classes if objectives is not None else ()
        classes = tuple(self._class(each, series) for each, series in zip(told, work.classes, strict=True))
        verdict = None
        if objectives is not None:
            of_total = judged(total, work.total.steps, objectives.loss)
            verdict = Verdict.worst([of_total, *(each.verdict for each in classes)])
        flows = tuple(self._flow(flow, series, total) for flow, series in zip(work.flows, work.of_flow, strict=True))
        return Estimate(work.site, window.last, stale_s, window, verdict, total, flows, classes)

    def _class(self, told: LossClass, series: Series) -> ClassEstimate:
        if not series.is_any:
            # Nobody ever read a queue of it: nothing is known, and that is not nothing.
            return ClassEstimate(told.queues, Verdict.UNKNOWN, _nothing(self._horizon_s))
        figures = self._figures(series, ())
        return ClassEstimate(told.queues, judged(figures, series.steps, told.loss), figures)

    def _flow(self, flow: Flow, series: Series, total: Figures) -> FlowEstimate:
        # Of one flow alone the total says all.
        alone = len(self._work.flows) == 1
        figures = total if alone else self._figures(series, [flow])
        return FlowEstimate(self._work.site, flow.pair, flow.name, figures)

    def _figures(self, series: Series, flows: Sequence[Flow]) -> Figures:
        loss, age_s, duplicates, drain_s = (self._quantity(series, metric) for metric in UNITS)
        put = series.put
        return Figures(
            loss=loss,
            age_s=age_s,
            duplicates=duplicates,
            drain_s=drain_s,
            horizon=self._ahead(series, flows),
            unexplained=None if put is None or not put[0] else round(1 - put[1] / put[0], 6),
        )

    def _quantity(self, series: Series, metric: str) -> Quantity:
        steps = series.steps
        at = np.flatnonzero(steps.covered)
        weight = steps.weight[at]
        block = covered_blocks(weight, np.ones(len(at), bool), self._blocks)
        bound = Histogram.of(steps.bound[metric][at], weight, block, self._blocks)
        # What was likely at a look holds for half the time to the next.
        ends = np.concatenate([end[metric][at] for end in steps.likely])
        likely = Histogram.of(ends, np.tile(weight, 2), np.tile(block, 2), self._blocks)
        here = series.here
        now, likely_now = (None, None) if here is None else (here.bound[metric], here.likely[metric])
        return quantity(now, bound, likely_now, likely, UNITS[metric])

    def _ahead(self, series: Series, flows: Sequence[Flow]) -> Horizon:
        steps = series.steps
        covered = np.flatnonzero(steps.covered)
        last = int(covered[-1]) if len(covered) else None
        stalled = series.here is not None and series.here.stalled
        horizon_us = int(self._horizon_s * 1e6)
        more: list[int] | None = None
        rates = [flow.put_rates() for flow in flows if flow.has_sends]
        if stalled and rates and all(rates):
            more = [int(-(-sum(each[place] for each in rates if each) * self._horizon_s // 1)) for place in range(4)]

        def ahead(metric: str, fallback: list[int] | None) -> Quantity:
            changes = horizon.Changes.of(steps, metric, horizon_us=horizon_us, since_us=self._since_us)
            loss, now = (None if last is None else _known(steps.bound[each][last]) for each in ("loss", metric))
            similar = changes.similar(horizon.level(loss or 0), stalled=stalled)
            here = None if series.here is None else series.here.bound[metric]
            # From the bound of the last interval on: the changes are those of such bounds.
            return horizon.ahead(here, now, similar, fallback=fallback, per=UNITS[metric])

        later_ms = [int(self._horizon_s * 1000)] * 4 if stalled else None
        return Horizon(self._horizon_s, loss=ahead("loss", more), age_s=ahead("age_ms", later_ms))


def _known(value: int) -> int | None:
    return None if value < 0 else int(value)


def _nothing(horizon_s: float) -> Figures:
    return Figures(Quantity(), Quantity(), Quantity(), Quantity(), Horizon(horizon_s))


def _window(work: Work, seen: Coverage) -> SeenWindow:
    looks = {flow.pair: 0 for flow in work.flows}
    for flow in work.flows:
        looks[flow.pair] = max(looks[flow.pair], len(flow.us))
    first, last = work.span_us
    return SeenWindow(moment(first), moment(last), sum(looks.values()), round(seen.covered_us / 1e6, 3))
