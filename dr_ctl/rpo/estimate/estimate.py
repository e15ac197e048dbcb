"""The estimate: from a history to figures and a verdict. Contacts no broker.

Spark is started only once there is something to read, and imported only then.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate import horizon, looks, notes
from dr_ctl.rpo.estimate.cells import CLASS, COVERED, TOTAL, Cell, flow_scope
from dr_ctl.rpo.estimate.curves import BINS, curves
from dr_ctl.rpo.estimate.figures import Table
from dr_ctl.rpo.estimate.result import (
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    Figures,
    FlowEstimate,
    Horizon,
    Objectives,
    Quantity,
    SeenWindow,
    Verdict,
)
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.estimate.work import Work
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.row import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from dr_ctl.core.clock import Clock
    from dr_ctl.rpo.estimate.facts import Flow
    from dr_ctl.rpo.estimate.request import Request


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
    spark: SparkSession,
    files: Sequence[str],
    findings: Sequence[Finding],
    *,
    asked: Request,
    clock: Clock,
    charted: bool = False,
) -> EstimateAnswer:
    """Do the same in a session that is already there."""
    work = Work.of(looks.read(spark, files, asked), asked)
    if isinstance(work, Finding):
        return EstimateAnswer(None, (*findings, work))
    cells = work.cells(horizon_us=int(asked.horizon_s * 1e6), bins=BINS if charted else 0)
    table = Table.of(cells)
    window = _window(work.flows, table)
    now = clock.now()
    stale_s = round(max(0.0, (now - window.last).total_seconds()), 3)
    found = [
        *notes.waiting(work.site, work.serving),
        *notes.stale(work.flows, window, stale_s),
        *notes.ahead(window, now),
        *notes.uncertain(table),
    ]
    estimated = _Assembly(work, table, cells, asked.horizon_s).estimate(window, stale_s, asked.objectives)
    drawn = curves(cells, table, work.span_us, BINS) if charted else None
    return EstimateAnswer(estimated, (*findings, *found), drawn)


class _Assembly:
    """Puts the figures of every scope together."""

    def __init__(self, work: Work, table: Table, cells: Sequence[Cell], horizon_s: float) -> None:
        self._site, self._flows, self._table, self._horizon_s = work.site, work.flows, table, horizon_s
        self._changes = horizon.changes(cells)

    def estimate(self, window: SeenWindow, stale_s: float, objectives: Objectives | None) -> Estimate:
        total = self._figures(TOTAL, self._flows)
        classes = []
        for number, each in enumerate(objectives.classes if objectives else ()):
            judged = self._figures(f"{CLASS}{number}", ())
            classes.append(ClassEstimate(each.queues, judged.verdict(each.loss), judged))
        verdict = None
        if objectives is not None:
            verdict = Verdict.worst([total.verdict(objectives.loss), *(each.verdict for each in classes)])
        return Estimate(
            site=self._site,
            read_at=window.last,
            stale_s=stale_s,
            window=window,
            verdict=verdict,
            total=total,
            flows=tuple(self._flow(flow, total) for flow in self._flows),
            classes=tuple(classes),
        )

    def _flow(self, flow: Flow, total: Figures) -> FlowEstimate:
        # Of one flow alone the total says all.
        alone = len(self._flows) == 1
        figures = total if alone else self._figures(flow_scope(flow.pair, flow.flow), [flow])
        return FlowEstimate(self._site, flow.pair, flow.flow, figures)

    def _figures(self, scope: str, flows: Sequence[Flow]) -> Figures:
        table = self._table
        return Figures(
            loss=table.quantity(scope, "loss"),
            age_s=table.quantity(scope, "age_ms", per=1000),
            duplicates=table.quantity(scope, "duplicates"),
            drain_s=table.quantity(scope, "drain_ms", per=1000),
            horizon=self._ahead(scope, flows),
            unexplained=table.unexplained(scope),
        )

    def _ahead(self, scope: str, flows: Sequence[Flow]) -> Horizon:
        loss, age_ms = self._table.last.get((scope, "loss")), self._table.last.get((scope, "age_ms"))
        stalled = self._table.stalled.get(scope, False)
        at = horizon.level(loss) if loss is not None else 0
        more: list[int] | None = None
        rates = [flow.put_rates for flow in flows if not (flow.has_acks and flow.is_split)]
        if stalled and rates and all(rates):
            more = [int(-(-sum(each[place] for each in rates if each) * self._horizon_s // 1)) for place in range(4)]

        def quantity(metric: str, now: int | None, fallback: list[int] | None, per: float) -> Quantity:
            similar = self._changes[scope, metric].similar(at, stalled=stalled)
            # From the bound of the last interval on: the changes are those of such bounds.
            return horizon.ahead(self._table.here.get((scope, metric)), now, similar, fallback=fallback, per=per)

        later_ms = [int(self._horizon_s * 1000)] * 4 if stalled else None
        return Horizon(
            self._horizon_s,
            loss=quantity("loss", loss, more, 1.0),
            age_s=quantity("age_ms", age_ms, later_ms, 1000.0),
        )


def _window(flows: Sequence[Flow], table: Table) -> SeenWindow:
    looks: dict[str, int] = defaultdict(int)
    for flow in flows:
        looks[flow.pair] = max(looks[flow.pair], flow.looks)
    return SeenWindow(
        first=moment(min(flow.first_us for flow in flows)),
        last=moment(max(flow.last_us for flow in flows)),
        samples=sum(looks.values()),
        covered_s=round(table.seconds(TOTAL, COVERED), 3),
    )
