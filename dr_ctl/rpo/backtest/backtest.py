"""The backtest: what the estimate would have said at each moment of the past, against what then was true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import stamp
from dr_ctl.rpo.backtest import calibration
from dr_ctl.rpo.backtest.calibration import BoundRow, Calibration, Row
from dr_ctl.rpo.estimate import notes
from dr_ctl.rpo.estimate.curves import BINS, Curves, curves
from dr_ctl.rpo.estimate.estimate import BLOCKS, Work
from dr_ctl.rpo.estimate.facts import facts
from dr_ctl.rpo.estimate.figures import Table
from dr_ctl.rpo.estimate.scope_names import TOTAL
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.files import usable_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from dr_ctl.core.model import Finding, Json

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


def backtest(
    history: Path,
    *,
    site: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    horizons_s: Sequence[float] = HORIZONS_S,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
) -> BacktestAnswer:
    """Test the estimate of `site` (default: the one serving at the end) on its own past. Contacts no broker."""
    files, findings = usable_files(history, since=since, until=until)
    if not files:
        return BacktestAnswer(None, (*findings, notes.no_history(history)))

    def work(spark: SparkSession, paths: Sequence[str], found: Sequence[Finding]) -> BacktestAnswer:
        return backtest_in(
            spark,
            paths,
            str(history),
            site=site,
            since=since,
            until=until,
            horizons_s=horizons_s,
            include=include,
            exclude=exclude,
            findings=found,
        )

    return reading.over(history, files, findings, work, master=master, conf=conf, may_take_time=True)


def backtest_in(
    spark: SparkSession,
    files: Sequence[str],
    root: str,
    *,
    site: str | None,
    since: datetime | None,
    until: datetime | None,
    horizons_s: Sequence[float],
    include: Sequence[str],
    exclude: Sequence[str],
    findings: Sequence[Finding],
) -> BacktestAnswer:
    """Do the same in a session that is already there."""
    from dr_ctl.rpo.backtest import every_second  # noqa: PLC0415
    from dr_ctl.rpo.estimate import distribution as d  # noqa: PLC0415
    from dr_ctl.rpo.estimate import looks, spans  # noqa: PLC0415

    rows = looks.read(spark, files, root, since=since, until=until)
    outflows = looks.outflow_looks(rows).localCheckpoint()
    known = facts(looks.facts(rows, outflows).collect())
    site = site or known.serving
    flows = [flow for flow in known.flows if flow.site == site]
    if site is None or not flows:
        return BacktestAnswer(None, (*findings, notes.nothing_of(site, {flow.site for flow in known.flows})))

    masks = spans.masks(include, exclude, [])
    work = Work(rows, outflows, site, flows, masks, 0)
    states = work.states(work.by_flow()).localCheckpoint()
    first, last = work.span_us
    folds = d.Blocks(first, last, BLOCKS)
    parts = [d.histograms(states, folds), d.timeline(states, d.Blocks(first, last, BINS))]
    cells = d.collected(d.union(parts))
    found = calibration.unconditional(cells, TOTAL)
    fold_s = max(1, last - first) / BLOCKS / 1e6
    for horizon_s in horizons_s:
        moved = d.collected(d.moves(states, folds, horizon_us=int(horizon_s * 1e6), since_us=first))
        found += calibration.ahead(moved, TOTAL, horizon_s=horizon_s, fold_s=fold_s)

    half = looks.thinned(rows, outflows)
    half_outflows = looks.outflow_looks(half).localCheckpoint()
    half_flows = [flow for flow in facts(looks.facts(half, half_outflows).collect()).flows if flow.site == site]
    [told] = every_second.against_left_out(work, Work(half, half_outflows, site, half_flows, masks, 0)).collect()
    bound = BoundRow(told.moments or 0, told.covered or 0, told.mean, told.excess)
    window = (notes.moment(first), notes.moment(last))
    drawn = curves(cells, Table.of(cells), (first, last), BINS)
    return BacktestAnswer(Backtest(site, window, bound, tuple(found), drawn), tuple(findings))
