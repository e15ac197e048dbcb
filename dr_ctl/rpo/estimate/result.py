"""The estimate as plain values: limits from the settings, figures, the verdict, and whether a window is covered well
enough for one. This module needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.document import derived, document, key
from dr_ctl.core.model import Finding, Json
from dr_ctl.rpo.core.quantities import BoundRow, Calibration, Curves, Figures, Number, Quantity, Row

if TYPE_CHECKING:
    from dr_ctl.rpo.core.scope import ScopeFigures


class Verdict(Enum):
    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Missed before unknown before met: a single miss is enough, whatever else is not known."""
        occurring = set(verdicts)
        return next((verdict for verdict in (cls.MISSED, cls.UNKNOWN) if verdict in occurring), cls.MET)


@dataclass(frozen=True, slots=True)
class LossLimit:
    """The most that may be lost; None is no limit."""

    messages: int | None = None
    age_s: float | None = None

    @property
    def by_figure(self) -> Mapping[str, Number]:
        """The limits that there are, by the names of the figures that they limit."""
        limits = {"loss": self.messages, "age_s": self.age_s}
        return {figure: most for figure, most in limits.items() if most is not None}


@dataclass(frozen=True, slots=True)
class LossClass:
    queues: tuple[str, ...]
    loss: LossLimit


@dataclass(frozen=True, slots=True)
class Objectives:
    """The limits to judge by. `duplicates` limits a failover alone."""

    loss: LossLimit = field(default_factory=LossLimit)
    classes: tuple[LossClass, ...] = ()
    duplicates: int | None = None


def limited(figures: Figures, limit: LossLimit) -> list[tuple[Quantity, Number]]:
    return [(getattr(figures, figure), most) for figure, most in limit.by_figure.items()]


def verdict_of(figures: Figures, limit: LossLimit) -> Verdict:
    """Judge the 99th percentiles: a limit is missed by what is likely, and met by the bound alone."""
    limits = limited(figures, limit)
    return Verdict.worst(judge(quantity.likely.p99, quantity.p99, most) for quantity, most in limits)


def judge(likely: Number | None, at_most: Number | None, limit: Number) -> Verdict:
    if likely is not None and likely > limit:
        return Verdict.MISSED
    return Verdict.MET if at_most is not None and at_most <= limit else Verdict.UNKNOWN


@dataclass(frozen=True, slots=True)
class FlowEstimate:
    site: str = field(metadata=key("from"))
    pair: str
    name: str
    figures: Figures = field(metadata=key(flat=True))


@dataclass(frozen=True, slots=True)
class ClassEstimate:
    queues: tuple[str, ...]
    verdict: Verdict
    figures: Figures = field(metadata=key(flat=True))


@dataclass(frozen=True, slots=True)
class Span:
    """What was tested, from the first to the last reading."""

    first: datetime = field(metadata=key("from"))
    last: datetime = field(metadata=key("to"))


@dataclass(frozen=True, slots=True)
class SeenWindow(Span):
    """Readings that the figures rest on: from the first to the last reading, and how much of it was covered by
    readings."""

    samples: int
    covered_s: float


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue in which messages were likely to be lost: its share of all that were, by how long they were, and the most
    at a reading."""

    pair: str
    name: str
    share: float
    most: int


@dataclass(frozen=True, slots=True)
class Outage:
    """A site that was seen in that role after it was seen serving last: the figures are those of before."""

    last_served: datetime
    role: str
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Estimate:
    """Messages that would be lost, and come twice, if `site` died; and how long emptying its outflows would take."""

    site: str
    read_at: datetime
    stale_s: float
    window: SeenWindow
    verdict: Verdict | None = field(metadata=key(description="null without objectives"))
    total: Figures
    flows: tuple[FlowEstimate, ...]
    classes: tuple[ClassEstimate, ...]
    queues: tuple[QueueShare, ...] = field(default=(), metadata=key(description="those in which most was likely lost"))
    advice: tuple[str, ...] = field(default=(), metadata=key(description="what would shorten the loss, in sentences"))
    outage: Outage | None = field(default=None, metadata=key(description="the figures are those of before it"))


NO_ESTIMATE: Final[Mapping[str, Json]] = {
    **dict.fromkeys(member.name for member in fields(Estimate)),
    "verdict": Verdict.UNKNOWN.value,
    **{name: [] for name in ("flows", "classes", "queues", "advice")},
}
"""The document without an estimate: its keys are the same."""


@dataclass(frozen=True, slots=True)
class EstimateAnswer:
    """The estimate, or None where there is nothing to estimate from: the findings then say why."""

    estimate: Estimate | None
    findings: tuple[Finding, ...] = ()
    curves: Curves | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict is None without objectives to judge by, and unknown without an estimate."""
        return Verdict.UNKNOWN if self.estimate is None else self.estimate.verdict

    @property
    def data(self) -> dict[str, Any]:
        return document(self.estimate or NO_ESTIMATE)


MIN_US: Final = 3600 * 1_000_000
"""From less covered time nobody can say what holds in 99 of 100 moments, unless independent excursions tell it."""
MAX_ABOVE: Final = 0.01
MAX_UNSEEN: Final = 0.5


def judged(scope: ScopeFigures, limit: LossLimit) -> Verdict:
    """Judge by the 99th percentiles. The verdict `met` needs an hour, or an interval whose upper end keeps the limit.
    The limit must hold too if time in which the site answered late, in part or not at all counts as above it, because
    most is under way then."""
    verdict = verdict_of(scope.figures, limit)
    if verdict is not Verdict.MET or not limit.by_figure:
        return verdict
    read_us = scope.covered_us + scope.late_us
    holds = scope.above_us + scope.late_us <= MAX_ABOVE * read_us
    is_read = scope.unseen_us <= MAX_UNSEEN * (read_us + scope.unseen_us)
    ends = [(quantity.ci95.get("p99") or (None, None), most) for quantity, most in limited(scope.figures, limit)]
    is_enough = scope.covered_us >= MIN_US or all(high is not None and high <= most for (_, high), most in ends)
    return verdict if holds and is_enough and is_read else Verdict.UNKNOWN


@dataclass(frozen=True, slots=True)
class Backtest:
    """How the figures of `site` would have held. `rows`: every quantile, unconditional and ahead."""

    site: str
    window: Span
    bound: BoundRow
    rows: tuple[Row, ...] = field(metadata=key("quantiles"))

    @derived
    def verdict(self) -> Calibration:
        """The worst of the quantiles that a person decides by, p95 and p99, and narrow where the bound is."""
        if self.bound.verdict is Calibration.NARROW:
            return Calibration.NARROW
        return Calibration.worst(row.verdict for row in self.rows if row.quantile in ("p95", "p99"))


NO_BACKTEST: Final[Mapping[str, Json]] = {
    **dict.fromkeys(("site", "window", "bound")),
    "quantiles": [],
    "verdict": Calibration.UNKNOWN.value,
}
"""The document without a backtest: its keys are the same."""


@dataclass(frozen=True, slots=True)
class BacktestAnswer:
    """The backtest, or None where there is nothing to test on: the findings then say why."""

    backtest: Backtest | None
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> Calibration:
        return Calibration.UNKNOWN if self.backtest is None else self.backtest.verdict

    @property
    def data(self) -> dict[str, Any]:
        return document(self.backtest or NO_BACKTEST)
