"""The estimate: from a history to figures and a verdict. Contacts no broker.

Spark is started only once there is something to read, and imported only then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import SystemClock
from dr_ctl.rpo.estimate import horizon, notes
from dr_ctl.rpo.estimate.cells import COVERED, Cell
from dr_ctl.rpo.estimate.curves import BINS, curves
from dr_ctl.rpo.estimate.facts import Flow, facts
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
from dr_ctl.rpo.estimate.scope_names import CLASS, TOTAL, flow_scope
from dr_ctl.rpo.history import reading
from dr_ctl.rpo.history.files import usable_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from dr_ctl.core.clock import Clock
    from dr_ctl.core.model import Finding
    from dr_ctl.rpo.estimate.distribution import Blocks

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28
DAY_US: Final = 86_400 * 1_000_000


def estimate(
    history: Path,
    *,
    site: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    horizon_s: float = 300,
    objectives: Objectives | None = None,
    include: Sequence[str] = ("#",),
    exclude: Sequence[str] = (),
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    may_take_time: bool = False,
    charted: bool = False,
) -> EstimateAnswer:
    """Say what would be lost if `site` died: at the last look, and at a random moment of the history.

    `charted` adds the curves of a page.

    `site` defaults to the one serving at the end. Raises EnvironmentFault where Spark cannot start or finish.
    """
    files, findings = usable_files(history, since=since, until=until)
    if not files:
        return EstimateAnswer(None, (*findings, notes.no_history(history)))

    def work(spark: SparkSession, paths: Sequence[str], found: Sequence[Finding]) -> EstimateAnswer:
        return estimate_in(
            spark,
            paths,
            str(history),
            site=site,
            since=since,
            until=until,
            horizon_s=horizon_s,
            objectives=objectives,
            include=include,
            exclude=exclude,
            findings=found,
            clock=clock or SystemClock(),
            charted=charted,
        )

    return reading.over(history, files, findings, work, master=master, conf=conf, may_take_time=may_take_time)


def estimate_in(
    spark: SparkSession,
    files: Sequence[str],
    root: str,
    *,
    site: str | None,
    since: datetime | None,
    until: datetime | None,
    horizon_s: float,
    objectives: Objectives | None,
    include: Sequence[str],
    exclude: Sequence[str],
    findings: Iterable[Finding],
    clock: Clock,
    charted: bool = False,
) -> EstimateAnswer:
    """Do the same in a session that is already there."""
    from dr_ctl.rpo.estimate import looks  # noqa: PLC0415

    found = list(findings)
    rows = looks.read(spark, files, root, since=since, until=until)
    # Kept as they are from here on: what follows reads them several times, and planning it all anew takes longer.
    outflows = looks.outflow_looks(rows).localCheckpoint()
    known = facts(looks.facts(rows, outflows).collect())
    site = site or known.serving
    flows = [flow for flow in known.flows if flow.site == site]
    if site is None or not flows:
        return EstimateAnswer(None, (*found, notes.nothing_of(site, {flow.site for flow in known.flows})))

    classes = [each.queues for each in objectives.classes] if objectives else []
    work = Work(rows, outflows, site, flows, masks=_masks(include, exclude, classes), classes=len(classes))
    cells = work.cells(horizon_us=int(horizon_s * 1e6), bins=BINS if charted else 0)
    table = Table.of(cells)
    window = _window(flows, table)
    stale_s = round(max(0.0, (clock.now() - window.last).total_seconds()), 3)
    found += [*notes.stale(flows, window, stale_s), *notes.ahead(window, clock.now()), *notes.uncertain(table)]
    estimated = _Assembly(site, flows, table, cells, horizon_s).estimate(window, stale_s, objectives)
    drawn = curves(cells, table, work.span_us, BINS) if charted else None
    return EstimateAnswer(estimated, tuple(found), drawn)


def _masks(include: Sequence[str], exclude: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
    from dr_ctl.rpo.estimate.spans import masks  # noqa: PLC0415

    return masks(include, exclude, classes)


@dataclass(frozen=True, slots=True)
class Work:
    """The frames of one estimate: the history of all sites, and what is asked of one."""

    rows: DataFrame
    outflows: DataFrame
    site: str
    flows: Sequence[Flow]
    masks: str
    classes: int

    def by_flow(self) -> DataFrame:
        """Bounds per flow, interval and scope."""
        from dr_ctl.rpo.estimate import scopes, spans  # noqa: PLC0415

        split = any(flow.is_split for flow in self.flows)
        queues = spans.queue_looks(self.rows, self.outflows, self.site, self.flows, masks=self.masks)
        parts = spans.queue_parts(spans.cut_looks(queues, split=split), self.flows, split=split)
        return scopes.by_flow(
            parts, spans.flow_parts(self.outflows, self.flows, self.site), self.flows, classes=self.classes
        )

    def states(self, by_flow: DataFrame) -> DataFrame:
        from dr_ctl.rpo.estimate import scopes  # noqa: PLC0415

        return scopes.states(by_flow, self.outflows, self.flows, self.site)

    @property
    def span_us(self) -> tuple[int, int]:
        return min(flow.first_us for flow in self.flows), max(flow.last_us for flow in self.flows)

    def blocks(self) -> Blocks:
        from dr_ctl.rpo.estimate.distribution import Blocks  # noqa: PLC0415

        first, last = self.span_us
        return Blocks(first, last, BLOCKS_OF_A_WEEK if last - first >= 7 * DAY_US else BLOCKS)

    def cells(self, *, horizon_us: int, bins: int = 0) -> list[Cell]:
        """All that the figures are made of; with `bins`, a time line for a chart too."""
        from dr_ctl.rpo.estimate import distribution as d  # noqa: PLC0415

        by_flow = self.by_flow().localCheckpoint()
        states = self.states(by_flow)
        blocks = self.blocks()
        # A day of the past says what may come; older days were other days.
        past = d.moves(states, blocks, horizon_us=horizon_us, since_us=self.span_us[1] - DAY_US - horizon_us)
        parts = [d.histograms(states, blocks), d.here(by_flow), d.accounted(by_flow), d.last(states), past]
        if bins:
            parts.append(d.timeline(states, d.Blocks(*self.span_us, bins)))
        return d.collected(d.union(parts))


class _Assembly:
    """Puts the figures of every scope together."""

    def __init__(self, site: str, flows: Sequence[Flow], table: Table, cells: Sequence[Cell], horizon_s: float) -> None:
        self._site, self._flows, self._table, self._horizon_s = site, flows, table, horizon_s
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
        first=notes.moment(min(flow.first_us for flow in flows)),
        last=notes.moment(max(flow.last_us for flow in flows)),
        samples=sum(looks.values()),
        covered_s=round(table.seconds(TOTAL, COVERED), 3),
    )
