"""The estimate: from a history to figures and a verdict. Contacts no broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.core.calendar import DAY, SECOND
from dr_ctl.rpo.core.changes import level
from dr_ctl.rpo.core.rows import Rows
from dr_ctl.rpo.core.steps import METRICS
from dr_ctl.rpo.core.summary import HORIZON_US
from dr_ctl.rpo.estimate import horizon, notes, run
from dr_ctl.rpo.estimate.advice import advice, shares
from dr_ctl.rpo.estimate.coverage import Coverage, judged
from dr_ctl.rpo.estimate.curves import BINS, UNITS, curves_of
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
    Outage,
    Quantity,
    SeenWindow,
    Verdict,
)
from dr_ctl.rpo.estimate.run import Do
from dr_ctl.rpo.estimate.scope import Scope, looked, pair_of
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.history.row import micros, moment

if TYPE_CHECKING:
    import pyarrow as pa

    from dr_ctl.rpo.estimate.plan import Plan

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28
SILENT_US: Final = 30 * SECOND


def estimate(
    asked: Request, *, charted: bool = False, clock: Clock | None = None, do: Do | None = None
) -> EstimateAnswer:
    """Say what would be lost if the site died: at the last look, and at a random moment of the history.

    `charted` adds the curves of a page; `do` does the slices of the work, where that is not left to the request.

    Raises EnvironmentFault where Spark cannot start or finish, or the estimate cannot be stored.
    """
    clock = clock or SystemClock()
    answer = _estimated(asked, micros(clock.now()), charted=charted, do=do)
    if asked.store:
        store(asked.place, answer, clock.now())
    return answer


def _estimated(asked: Request, now_us: int, *, charted: bool, do: Do | None) -> EstimateAnswer:
    told = run.rows_of(asked, now_us, do)
    if isinstance(told, Finding):
        return EstimateAnswer(None, (told,))
    plan, tables, findings = told
    rows = Rows(tables)
    if not rows.flows:
        return EstimateAnswer(None, (*findings, notes.nothing_of(plan.site, {plan.site})))
    seen = _Seen(rows, asked)
    if asked.horizon_s * SECOND != HORIZON_US:
        rows = Rows([*tables, _far(asked, plan.site, seen.span_us, now_us, do)])
        seen = _Seen(rows, asked)
    stale_s = round(max(0.0, (now_us - seen.span_us[1]) / 1e6), 3)
    estimated = seen.estimate(plan, stale_s)
    found = [
        *notes.waiting(plan.site, plan.serving),
        *notes.stale(rows, seen.window, stale_s),
        *notes.ahead(seen.window, moment(now_us), plan.ahead),
        *notes.uncertain(seen.total, estimated.total.unexplained),
        *notes.uncovered(seen.coverage),
        *notes.without_queues(seen.classes),
        *notes.inside(estimated, asked.objectives),
    ]
    drawn = curves_of(seen.total, plan.calendar, seen.span_us, BINS) if charted else None
    return EstimateAnswer(estimated, (*findings, *found), drawn)


def _far(asked: Request, site: str, span_us: tuple[int, int], now_us: int, do: Do | None) -> pa.Table:
    """Changes that summaries do not hold: changes within another time than the usual, of the last day."""
    since_us = max(span_us[0], span_us[1] - DAY - int(asked.horizon_s * SECOND))
    day = replace(
        asked,
        site=site,
        since=moment(since_us),
        until=moment(span_us[1]),
        settled=False,
        store=False,
        horizons_s=(asked.horizon_s,),
    )
    told = run.rows_of(day, now_us, do)
    assert not isinstance(told, Finding)
    return told[1][0].filter(pc.field("kind") == "change")


class _Seen:
    """Puts the figures of every scope together."""

    def __init__(self, rows: Rows, asked: Request) -> None:
        self._rows, self._asked = rows, asked
        times = [looked(rows, flow) for flow in rows.flows]
        first, last = self.span_us = min(begin for begin, _ in times), max(end for _, end in times)
        self._blocks = BLOCKS_OF_A_WEEK if last - first >= 7 * DAY else BLOCKS
        # A day of the past says what may come; older days were other days.
        self._since_us = last - DAY - int(asked.horizon_s * SECOND)
        self.total = Scope.total(rows)
        self.coverage = Coverage.of(self.total, self.span_us)
        told = asked.objectives.classes if asked.objectives is not None else ()
        self.classes = [(each, Scope.of_class(rows, number)) for number, each in enumerate(told)]

    @property
    def window(self) -> SeenWindow:
        first, last = self.span_us
        samples: dict[str, int] = {}
        for flow in self._rows.flows:
            count = int(self._rows.part("looks", flow).count.sum())
            samples[pair_of(flow)] = max(samples.get(pair_of(flow), 0), count)
        return SeenWindow(moment(first), moment(last), sum(samples.values()), round(self.coverage.covered_us / 1e6, 3))

    def estimate(self, plan: Plan, stale_s: float) -> Estimate:
        objectives = self._asked.objectives
        total = self._figures(self.total)
        classes = tuple(self._class(each, scope) for each, scope in self.classes)
        verdict = None
        if objectives is not None:
            of_total = judged(total, self.total, self.coverage, objectives.loss)
            verdict = Verdict.worst([of_total, *(each.verdict for each in classes)])
        flows = tuple(self._flow(plan.site, flow, total) for flow in self._rows.flows)
        window, queues = self.window, shares(self._rows)
        hints = advice(self.total, total, queues, plan.calendar, objectives)
        return Estimate(
            plan.site, window.last, stale_s, window, verdict, total, flows, classes, queues, hints, self._outage()
        )

    def _outage(self) -> Outage | None:
        """Whether the site was seen to be away after it served last; a site that waits is not."""
        told = self._rows.part("role")
        last: dict[str, int] = {}
        for role, us in zip(told.words(self._rows), told.most.tolist(), strict=True):
            last[role] = max(us, last.get(role, -1))
        served_us, waited_us = (last.get(role.value, -1) for role in (Role.SERVING, Role.STANDBY))
        away = {role.value: last.get(role.value, -1) for role in (Role.DOWN, Role.SICK, Role.UNKNOWN)}
        role = max(away, key=away.__getitem__)
        least_us = 0 if role == Role.DOWN.value else SILENT_US  # a broker that is late now and then is no outage
        if served_us < max(0, waited_us) or away[role] <= served_us + least_us:
            return None
        return Outage(moment(served_us), role, moment(away[role]))

    def _class(self, told: LossClass, scope: Scope) -> ClassEstimate:
        if not scope.has_queues:
            # Nobody ever read a queue of it: the figure is unknown, and not zero.
            return ClassEstimate(told.queues, Verdict.UNKNOWN, _nothing(self._asked.horizon_s))
        figures = self._figures(scope)
        return ClassEstimate(told.queues, judged(figures, scope, Coverage.of(scope, self.span_us), told.loss), figures)

    def _flow(self, site: str, flow: str, total: Figures) -> FlowEstimate:
        is_alone = len(self._rows.flows) == 1  # the total says all of it
        pair, name = json.loads(flow)
        return FlowEstimate(site, pair, name, total if is_alone else self._figures(Scope.of_flow(self._rows, flow)))

    def _figures(self, scope: Scope) -> Figures:
        put, told = (0, 0) if any(scope is each for _, each in self.classes) else scope.accounted
        loss, age_s, duplicates = (self._quantity(scope, metric, UNITS[metric]) for metric in METRICS)
        return Figures(
            loss,
            age_s,
            duplicates,
            drain_s=self._quantity(scope, "drain", UNITS["drain_ms"]),
            horizon=self._ahead(scope),
            unexplained=round(1 - told / put, 6) if put else None,
        )

    def _quantity(self, scope: Scope, metric: str, per: int) -> Quantity:
        bound, likely = (scope.histogram(metric, self._blocks, likely=each) for each in (False, True))
        now, likely_now = (
            None if told is None else told[0] for told in (scope.now(metric, likely=each) for each in (False, True))
        )
        return quantity(now, bound, likely_now, likely, per)

    def _ahead(self, scope: Scope) -> Horizon:
        horizon_s = self._asked.horizon_s
        here = scope.now("loss", likely=False)
        stalled = here is not None and here[1]
        rates = scope.put_rates if stalled and not any(scope is each for _, each in self.classes) else None
        more = None if rates is None else [int(-(-each * horizon_s // 1)) for each in rates]
        at = level(scope.since("loss") or 0)

        def ahead(metric: str, fallback: Sequence[int] | None) -> Quantity:
            changes = scope.changes(metric, int(horizon_s * SECOND), self._since_us)
            similar = changes.similar(at, stalled=stalled)
            # From the bound of the last interval on: the changes are those of such bounds.
            now = scope.now(metric, likely=False)
            return horizon.ahead(
                None if now is None else now[0], scope.since(metric), similar, fallback=fallback, per=UNITS[metric]
            )

        later_ms = [int(horizon_s * 1000)] * 4 if stalled else None
        return Horizon(horizon_s, loss=ahead("loss", more), age_s=ahead("age_ms", later_ms))


def _nothing(horizon_s: float) -> Figures:
    return Figures(Quantity(), Quantity(), Quantity(), Quantity(), Horizon(horizon_s))
