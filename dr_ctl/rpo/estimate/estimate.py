"""The estimate: from a history to figures and a verdict. Contacts no broker.

Spark is started only once there is something to read, and imported only then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate import horizon, notes
from dr_ctl.rpo.estimate.coverage import Coverage, judged
from dr_ctl.rpo.estimate.curves import BINS, UNITS, curves_of
from dr_ctl.rpo.estimate.figures import quantity
from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.periods import DAY
from dr_ctl.rpo.estimate.planned import NEAR, Planned
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import (
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    Figures,
    FlowEstimate,
    Horizon,
    LossClass,
    Quantity,
    SeenWindow,
    Verdict,
)
from dr_ctl.rpo.estimate.scopes import Scope
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.estimate.summary import HORIZON_US, TOLD, TOTAL, Last, class_name, flow_name
from dr_ctl.rpo.estimate.work import Summed, Work
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.files import listed_anew, usable_files
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.series.columns import NA
from dr_ctl.rpo.series.steps import DEPTH_BITS, WAITS, drain_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28


def estimate(asked: Request, *, charted: bool = False) -> EstimateAnswer:
    """Say what would be lost if the site died: at the last look, and at a random moment of the history.

    `charted` adds the curves of a page.

    Raises EnvironmentFault where Spark cannot start or finish, or the estimate cannot be stored.
    """
    clock = SystemClock()
    reader = _Reader(asked)
    answer = reading.over(asked, partial(reader.estimate, clock=clock, charted=charted), EstimateAnswer, reader.listed)
    if asked.store:
        store(asked.history, answer, clock.now())
    return answer


class _Reader:
    """Lists what an estimate reads, and makes it of what can be read."""

    def __init__(self, asked: Request) -> None:
        self._asked = asked
        self._back_days: int | None = NEAR
        self._planned: Planned | Finding | None = None

    def listed(self) -> tuple[list[Path], list[Finding]]:
        self._planned = listed_anew(lambda: Planned.of_history(self._asked, self._back_days))
        if isinstance(self._planned, Finding):
            return usable_files(self._asked.history, since=self._asked.since, until=self._asked.until)
        return [Path(file.path) for file in self._planned.files], list(self._planned.findings)

    def estimate(
        self,
        spark: SparkSession | None,
        files: Sequence[str],
        findings: Sequence[Finding],
        *,
        clock: Clock,
        charted: bool,
    ) -> EstimateAnswer:
        planned = self._planned
        if isinstance(planned, Planned):
            kept = frozenset(files)
            planned = replace(planned, files=tuple(file for file in planned.files if file.path in kept))
        found = planned if isinstance(planned, Finding) or planned is None else Summed.of(spark, planned, self._asked)
        if found is None and self._back_days is not None:
            self._back_days = None
            further, more = self.listed()
            return self.estimate(spark, [str(file) for file in further], more, clock=clock, charted=charted)
        assert found is not None
        return _answer(spark, files, findings, found, asked=self._asked, clock=clock, charted=charted)


def estimate_of(spark: SparkSession | None, *, asked: Request, clock: Clock, charted: bool = False) -> EstimateAnswer:
    """Estimate in a session that is already there; without one, in this process. Stores no answer."""
    reader = _Reader(asked)
    files, findings = reader.listed()
    return reader.estimate(spark, [str(file) for file in files], findings, clock=clock, charted=charted)


def estimate_in(
    spark: SparkSession | None,
    files: Sequence[str],
    findings: Sequence[Finding],
    *,
    asked: Request,
    clock: Clock,
    charted: bool = False,
) -> EstimateAnswer:
    """Estimate from all that these files hold, in a session that is already there; without one, in this process."""
    planned = Planned.of_files(files, asked)
    work = planned if isinstance(planned, Finding) else Summed.of(spark, planned, asked)
    assert work is not None
    return _answer(spark, files, findings, work, asked=asked, clock=clock, charted=charted)


def _answer(
    spark: SparkSession | None,
    files: Sequence[str],
    findings: Sequence[Finding],
    work: Summed | Finding,
    *,
    asked: Request,
    clock: Clock,
    charted: bool,
) -> EstimateAnswer:
    if isinstance(work, Finding):
        return EstimateAnswer(None, (*findings, work))
    changes = _far_changes(spark, files, asked, work)
    assembly = _Assembly(work, asked, changes)
    total, seen = assembly.total, assembly.seen
    first, last = work.span_us
    window = SeenWindow(moment(first), moment(last), work.samples, round(seen.covered_us / 1e6, 3))
    now = clock.now()
    stale_s = round(max(0.0, (now - window.last).total_seconds()), 3)
    estimated = assembly.estimate(window, stale_s)
    found = [
        *notes.waiting(work.site, work.serving),
        *notes.stale(work, window, stale_s),
        *notes.ahead(window, now),
        *notes.uncertain(total, estimated.total.unexplained),
        *notes.uncovered(seen),
        *notes.without_queues(assembly.classes),
        *notes.inside(estimated, asked.objectives),
    ]
    drawn = curves_of(total, work.span_us, BINS) if charted else None
    return EstimateAnswer(estimated, (*findings, *found), drawn)


FarChanges = Mapping[str, Mapping[str, Changes]]
"""By scope and metric."""


def _far_changes(spark: SparkSession | None, files: Sequence[str], asked: Request, work: Summed) -> FarChanges | None:
    """Changes that summaries do not hold: changes within another time than the usual, of the last day."""
    horizon_us = int(asked.horizon_s * 1e6)
    if horizon_us == HORIZON_US:
        return None
    last_us = work.span_us[1]
    since_us = max(work.span_us[0], last_us - DAY - horizon_us)
    day = Work.of(spark, files, replace(asked, site=work.site, since=moment(since_us), until=moment(last_us)))
    if isinstance(day, Finding):
        return {}
    named = [(TOTAL, day.total), *((class_name(n), each) for n, each in enumerate(day.classes))]
    named += [(flow_name(flow.pair, flow.name), each) for flow, each in zip(day.flows, day.of_flow, strict=True)]
    return {
        name: {m: Changes.of(each.steps, m, horizon_us=horizon_us, since_us=since_us) for m in ("loss", "age_ms")}
        for name, each in named
    }


class _Assembly:
    """Puts the figures of every scope together."""

    def __init__(self, work: Summed, asked: Request, changes: FarChanges | None) -> None:
        self._work, self._asked, self._changes = work, asked, changes
        first, last = work.span_us
        self._blocks = BLOCKS_OF_A_WEEK if last - first >= 7 * DAY else BLOCKS
        # A day of the past says what may come; older days were other days.
        self._since_us = last - DAY - int(asked.horizon_s * 1e6)
        self.total = Scope.total(work.rows)
        self.seen = Coverage.of(self.total, work.span_us)
        told = asked.objectives.classes if asked.objectives is not None else ()
        self.classes = [(each, Scope.of_class(work.rows, number)) for number, each in enumerate(told)]

    def estimate(self, window: SeenWindow, stale_s: float) -> Estimate:
        work, objectives = self._work, self._asked.objectives
        total = self._figures(self.total)
        classes = tuple(self._class(each, scope) for each, scope in self.classes)
        verdict = None
        if objectives is not None:
            of_total = judged(total, self.total, self.seen, objectives.loss)
            verdict = Verdict.worst([of_total, *(each.verdict for each in classes)])
        flows = tuple(self._flow(flow, total) for flow in work.rows.flows)
        return Estimate(work.site, window.last, stale_s, window, verdict, total, flows, classes)

    def _class(self, told: LossClass, scope: Scope) -> ClassEstimate:
        if not scope.has_queues:
            # Nobody ever read a queue of it: the figure is unknown, and not zero.
            return ClassEstimate(told.queues, Verdict.UNKNOWN, _nothing(self._asked.horizon_s))
        figures = self._figures(scope)
        seen = Coverage.of(scope, self._work.span_us)
        return ClassEstimate(told.queues, judged(figures, scope, seen, told.loss), figures)

    def _flow(self, flow: str, total: Figures) -> FlowEstimate:
        # The total says all of one flow alone.
        alone = len(self._work.rows.flows) == 1
        figures = total if alone else self._figures(Scope.of_flow(self._work.rows, flow))
        pair, name = json.loads(flow)
        return FlowEstimate(self._work.site, pair, name, figures)

    def _figures(self, scope: Scope) -> Figures:
        last = self._work.last.get(scope.name)
        loss, age_s, duplicates = (self._quantity(scope, metric, last) for metric in TOLD)
        put, told = (0, 0) if scope.bit else self._work.rows.accounted(scope.flows)
        return Figures(
            loss=loss,
            age_s=age_s,
            duplicates=duplicates,
            drain_s=self._drain(scope, last),
            horizon=self._ahead(scope, last),
            unexplained=round(1 - told / put, 6) if put else None,
        )

    def _quantity(self, scope: Scope, metric: str, last: Last | None) -> Quantity:
        bound, likely = (scope.histogram(what, self._blocks) for what in (metric, f"likely {metric}"))
        here = None if last is None else last.here
        now, likely_now = (None, None) if here is None else (here.bound[metric], here.likely[metric])
        return quantity(now, bound, likely_now, likely, UNITS[metric])

    def _drain(self, scope: Scope, last: Last | None) -> Quantity:
        bound, likely = (scope.drain(what, self._blocks) for what in ("drain", "likely drain"))
        here = None if last is None else last.here
        now, likely_now = (None if here is None else self._took(scope, told[WAITS]) for told in
                           (({}, {}) if here is None else (here.bound, here.likely)))  # fmt: skip
        return quantity(now, bound, likely_now, likely, UNITS["drain_ms"])

    def _took(self, scope: Scope, code: int | None) -> int | None:
        """How long what waits at the last look takes."""
        if code is None:
            return None
        rows, whose = self._work.rows, code >> DEPTH_BITS
        depth = np.array([code & (1 << DEPTH_BITS) - 1], np.int64)
        took = drain_ms(depth, rows.rates(scope.flows[whose >> 1], whose & 1)).item()
        return None if took == NA else int(took)

    def _ahead(self, scope: Scope, last: Last | None) -> Horizon:
        horizon_s = self._asked.horizon_s
        here = None if last is None else last.here
        stalled = here is not None and here.stalled
        more: list[int] | None = None
        rates = [each for flow in scope.flows if scope.bit == 0 and (each := self._work.rows.put_rates(flow))]
        if stalled and rates:
            more = [int(-(-sum(each[place] for each in rates) * horizon_s // 1)) for place in range(4)]

        def ahead(metric: str, fallback: list[int] | None) -> Quantity:
            since = {} if last is None else last.since
            changes = scope.changes(metric, self._since_us) if self._changes is None else self._changes.get(scope.name, {}).get(metric)  # fmt: skip  # noqa: E501
            level = horizon.level(since.get("loss") or 0)
            similar = None if changes is None else changes.similar(level, stalled=stalled)
            # From the bound of the last interval on: the changes are those of such bounds.
            now = None if here is None else here.bound[metric]
            return horizon.ahead(now, since.get(metric), similar, fallback=fallback, per=UNITS[metric])

        later_ms = [int(horizon_s * 1000)] * 4 if stalled else None
        return Horizon(horizon_s, loss=ahead("loss", more), age_s=ahead("age_ms", later_ms))


def _nothing(horizon_s: float) -> Figures:
    return Figures(Quantity(), Quantity(), Quantity(), Quantity(), Horizon(horizon_s))
