"""The backtest: what the estimate would have said at each moment of the past, against what then was true."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding
from dr_ctl.rpo.backtest import calibration, every_second
from dr_ctl.rpo.backtest.calibration import BoundRow, Calibration, Row
from dr_ctl.rpo.estimate import distribution as d
from dr_ctl.rpo.estimate import looks
from dr_ctl.rpo.estimate.curves import BINS, Curves, curves
from dr_ctl.rpo.estimate.figures import Table
from dr_ctl.rpo.estimate.scope_names import TOTAL
from dr_ctl.rpo.estimate.work import BLOCKS, Work
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from dr_ctl.core.model import Json
    from dr_ctl.rpo.estimate.request import Request

HORIZONS_S: Final = (60.0, 300.0, 900.0)


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
        """The worst of the bound and of the quantiles that a person decides by: p95 and p99."""
        return Calibration.worst(
            [self.bound.verdict, *(row.verdict for row in self.rows if row.quantile in ("p95", "p99"))]
        )

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
        """Make the `data` of the envelope: the same keys with and without a backtest."""
        if self.backtest is not None:
            return self.backtest.as_json()
        return {"site": None, "window": None, "verdict": self.verdict.value, "bound": None, "quantiles": []}


def backtest(asked: Request, *, horizons_s: Sequence[float] = HORIZONS_S) -> BacktestAnswer:
    """Test the estimate that is asked for on its own past, whatever its objectives. Contacts no broker."""
    asked = replace(asked, objectives=None, may_take_time=True)
    return reading.over(asked, partial(backtest_in, asked=asked, horizons_s=horizons_s), BacktestAnswer)


def backtest_in(
    spark: SparkSession,
    files: Sequence[str],
    findings: Sequence[Finding],
    *,
    asked: Request,
    horizons_s: Sequence[float],
) -> BacktestAnswer:
    """Do the same in a session that is already there."""
    work = Work.of(looks.read(spark, files, asked), asked)
    if isinstance(work, Finding):
        return BacktestAnswer(None, (*findings, work))
    states = work.states(work.by_flow()).localCheckpoint()
    first, last = work.span_us
    folds = d.Blocks(first, last, BLOCKS)
    parts = [d.histograms(states, folds), d.timeline(states, d.Blocks(first, last, BINS))]
    cells = d.collected(sql.union(parts))
    found = calibration.unconditional(cells, TOTAL)
    fold_s = max(1, last - first) / BLOCKS / 1e6
    for horizon_s in horizons_s:
        moved = d.collected(d.moves(states, folds, horizon_us=int(horizon_s * 1e6), since_us=first))
        found += calibration.ahead(moved, TOTAL, horizon_s=horizon_s, fold_s=fold_s)
    window = (moment(first), moment(last))
    drawn = curves(cells, Table.of(cells), (first, last), BINS)
    return BacktestAnswer(Backtest(work.site, window, _bound(work, asked), tuple(found), drawn), tuple(findings))


def _bound(work: Work, asked: Request) -> BoundRow:
    half = Work.of(looks.thinned(work.rows, work.outflows), replace(asked, site=work.site))
    if isinstance(half, Finding):
        return BoundRow(0, 0, None, None)
    [told] = every_second.against_left_out(work, half).collect()
    return BoundRow(told.moments or 0, told.covered or 0, told.mean, told.excess)
