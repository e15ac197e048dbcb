"""The backtest compares the estimate that each past moment would have given with the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import Clock, SystemClock, stamp
from dr_ctl.core.model import Finding
from dr_ctl.rpo.backtest import calibration
from dr_ctl.rpo.backtest.calibration import BoundRow, Row
from dr_ctl.rpo.backtest.verdict import Calibration
from dr_ctl.rpo.core.histogram import Histogram, wall_blocks
from dr_ctl.rpo.core.left_out import SUMS
from dr_ctl.rpo.core.rows import MILLI, Rows
from dr_ctl.rpo.estimate import notes, run
from dr_ctl.rpo.estimate.curves import BINS, Curves, curves_of
from dr_ctl.rpo.estimate.run import Do
from dr_ctl.rpo.estimate.scope import Scope, looked
from dr_ctl.rpo.history.row import micros, moment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dr_ctl.core.model import Json
    from dr_ctl.rpo.estimate.request import Request

HORIZONS_S: Final = (60.0, 300.0, 900.0)
FOLDS: Final = 24


@dataclass(frozen=True, slots=True)
class Backtest:
    """How the figures of `site` would have held. `rows`: every quantile, unconditional and ahead."""

    site: str
    window: tuple[datetime, datetime]
    bound: BoundRow
    rows: tuple[Row, ...]
    curves: Curves

    @property
    def verdict(self) -> Calibration:
        """The worst of the quantiles that a person decides by, p95 and p99, and narrow where the bound is."""
        if self.bound.verdict is Calibration.NARROW:
            return Calibration.NARROW
        return Calibration.worst(row.verdict for row in self.rows if row.quantile in ("p95", "p99"))

    def as_json(self) -> dict[str, Json]:
        return {
            "site": self.site,
            "window": {"from": stamp(self.window[0]), "to": stamp(self.window[1])},
            "verdict": self.verdict.value,
            "bound": self.bound.as_json(),
            "quantiles": [row.as_json() for row in self.rows],
        }


@dataclass(frozen=True, slots=True)
class BacktestAnswer:
    """The backtest, or None where there is nothing to test on: the findings then say why."""

    backtest: Backtest | None
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Calibration:
        return Calibration.UNKNOWN if self.backtest is None else self.backtest.verdict

    def as_json(self) -> dict[str, Json]:
        """Make the `data` of the envelope, with equal keys with and without a backtest."""
        if self.backtest is not None:
            return self.backtest.as_json()
        return {"site": None, "window": None, "verdict": self.verdict.value, "bound": None, "quantiles": []}


def backtest(
    asked: Request, *, horizons_s: Sequence[float] = HORIZONS_S, clock: Clock | None = None, do: Do | None = None
) -> BacktestAnswer:
    """Test the estimate that is asked for on its own past, whatever its objectives. Contacts no broker. `do` does the
    slices of the work, where that is not left to the request."""
    asked = replace(asked, objectives=None, settled=False, store=False, tested=True, horizons_s=tuple(horizons_s))
    told = run.rows_of(asked, micros((clock or SystemClock()).now()), do)
    if isinstance(told, Finding):
        return BacktestAnswer(None, (told,))
    plan, tables, findings = told
    rows = Rows(tables)
    if not rows.flows:
        return BacktestAnswer(None, (*findings, notes.nothing_of(plan.site, {plan.site})))
    total = Scope.total(rows)
    times = [looked(rows, flow) for flow in rows.flows]
    span = min(first for first, _ in times), max(last for _, last in times)
    tested = calibration.unconditional({metric: _folded(total, metric, span) for metric in calibration.UNITS})
    for horizon_s in horizons_s:
        changes = {metric: total.changes(metric, int(horizon_s * 1e6), span[0]) for metric in calibration.UNITS}
        tested += calibration.ahead(changes, horizon_s=horizon_s, span_us=span, folds=FOLDS)
    window = (moment(span[0]), moment(span[1]))
    drawn = curves_of(total, plan.calendar, span, BINS)
    return BacktestAnswer(Backtest(plan.site, window, _bound(rows), tuple(tested), drawn), tuple(findings))


def _folded(total: Scope, metric: str, span_us: tuple[int, int]) -> Histogram:
    told = total.part("figure", metric)
    return Histogram.of(told.values, told.weight, wall_blocks(told.cell, span_us, FOLDS), FOLDS)


def _bound(rows: Rows) -> BoundRow:
    told = {metric: rows.part("check", metric=metric) for metric in SUMS}
    moments = int(told["covered"].count.sum())
    if not moments:
        return BoundRow(0, 0, None, None)
    covered, was, excess, bias, error = (float(told[metric].weight.sum()) / MILLI for metric in SUMS)
    return BoundRow(moments, round(covered), *(each / moments for each in (was, excess, bias, error)))
