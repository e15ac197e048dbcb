"""The backtest compares the estimate that each past moment would have given with the truth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dr_ctl.core.clock import Clock, SystemClock, stamp
from dr_ctl.core.model import Finding, Json
from dr_ctl.rpo.core.calibration import BoundRow, Row
from dr_ctl.rpo.core.quantities import Calibration
from dr_ctl.rpo.estimate import notes
from dr_ctl.rpo.estimate.estimate import Make, ask_of
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.history.row import micros, moment

HORIZONS_S: Final = (60.0, 300.0, 900.0)


@dataclass(frozen=True, slots=True)
class Backtest:
    """How the figures of `site` would have held. `rows`: every quantile, unconditional and ahead."""

    site: str
    window: tuple[datetime, datetime]
    bound: BoundRow
    rows: tuple[Row, ...]

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
    asked: Request, make: Make, *, horizons_s: Sequence[float] = HORIZONS_S, clock: Clock | None = None
) -> BacktestAnswer:
    """Test the estimate that is asked for on its own past, whatever its objectives. Contacts no broker."""
    asked = replace(asked, objectives=None, settled=False, store=False, tested=True, horizons_s=tuple(horizons_s))
    made = make(asked, micros((clock or SystemClock()).now()))
    if isinstance(made, Finding):
        return BacktestAnswer(None, (made,))
    if not made.facts.flows:
        return BacktestAnswer(None, (*made.findings, notes.nothing_of(made.site, {made.site})))
    ask = ask_of(asked, made, 0, asked.horizons_s)
    tested, (first, last) = made.backtested(ask), map(moment, ask.span_us)
    return BacktestAnswer(Backtest(made.site, (first, last), tested.bound, tested.rows), made.findings)
