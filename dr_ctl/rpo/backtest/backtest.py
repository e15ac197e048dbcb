"""The backtest compares the estimate that each past moment would have given with the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding
from dr_ctl.rpo.backtest import calibration, every_second
from dr_ctl.rpo.backtest.calibration import BoundRow, Calibration, Row
from dr_ctl.rpo.estimate.curves import BINS, Curves, curves
from dr_ctl.rpo.estimate.horizon import Changes
from dr_ctl.rpo.estimate.work import Work
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.row import moment
from dr_ctl.rpo.series.histogram import Histogram, wall_blocks
from dr_ctl.rpo.series.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

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


def backtest(asked: Request, *, horizons_s: Sequence[float] = HORIZONS_S) -> BacktestAnswer:
    """Test the estimate that is asked for on its own past, whatever its objectives. Contacts no broker."""
    asked = replace(asked, objectives=None, may_take_time=True)
    return reading.over(asked, partial(backtest_in, asked=asked, horizons_s=horizons_s), BacktestAnswer)


def backtest_in(
    spark: SparkSession | None,
    files: Sequence[str],
    findings: Sequence[Finding],
    *,
    asked: Request,
    horizons_s: Sequence[float],
) -> BacktestAnswer:
    """Do the same in a session that is already there; without one, in this process."""
    work = Work.of(spark, files, asked)
    if isinstance(work, Finding):
        return BacktestAnswer(None, (*findings, work))
    steps, span = work.total.steps, work.span_us
    rows = calibration.unconditional({metric: _folded(steps, metric, span) for metric in calibration.UNITS})
    for horizon_s in horizons_s:
        us = int(horizon_s * 1e6)
        changes = {m: Changes.of(steps, m, horizon_us=us, since_us=span[0]) for m in calibration.UNITS}
        rows += calibration.ahead(changes, horizon_s=horizon_s, span_us=span, folds=FOLDS)
    window = (moment(span[0]), moment(span[1]))
    half = Work.of(spark, files, replace(asked, site=work.site), every_second.grid_us(work))
    bound = BoundRow(0, 0, None, None) if isinstance(half, Finding) else every_second.against_left_out(work, half)
    drawn = curves(steps, span, BINS)
    return BacktestAnswer(Backtest(work.site, window, bound, tuple(rows), drawn), tuple(findings))


def _folded(steps: Steps, metric: str, span_us: tuple[int, int]) -> Histogram:
    at = np.flatnonzero(steps.covered)
    block = wall_blocks(steps.begin[at], span_us, FOLDS)
    return Histogram.of(steps.bound[metric][at], steps.weight[at], block, FOLDS)
