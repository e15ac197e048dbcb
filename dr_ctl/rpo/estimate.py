"""The estimate: from a history to figures and a verdict. Contacts no broker.

Spark is started only once there is something to read, and imported only then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import SystemClock, stamp
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.rpo.history import usable_files
from dr_ctl.rpo.result import (
    PROBABILITIES,
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    Figures,
    FlowEstimate,
    Horizon,
    Number,
    Objectives,
    Quantity,
    SeenWindow,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from dr_ctl.core.clock import Clock

SHORT_WORK_BYTES: Final = 256 * 1024 * 1024
TINY_WORK_BYTES: Final = 4 * 1024 * 1024
STALE_POLLS: Final = 5
STALE_AT_LEAST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Flow:
    """What is known of one outflow over the whole history."""

    site: str
    pair: str
    flow: str
    first_us: int
    last_us: int
    looks: int
    spacing_us: int | None
    sends_rate: float | None
    acks_rate: float | None


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
) -> EstimateAnswer:
    """Say what would be lost if `site` died: at the last look, and at a random moment of the history.

    `site` defaults to the one serving at the end. Raises EnvironmentFault where Spark cannot start or finish.
    """
    files, findings = usable_files(history, since=since, until=until)
    if not files:
        return EstimateAnswer(None, (*findings, _no_history(history)))

    from dr_ctl.rpo import spark as starting  # noqa: PLC0415 - Spark is imported by those who need it only

    size = sum(file.stat().st_size for file in files)
    conf = {**(starting.TINY_WORK_CONF if size < TINY_WORK_BYTES else {}), **(conf or {})}
    with starting.session(master=master, conf=conf, is_short=size < SHORT_WORK_BYTES) as session:
        return estimate_in(
            session,
            [str(file) for file in files],
            str(history),
            site=site,
            since=since,
            until=until,
            horizon_s=horizon_s,
            objectives=objectives,
            include=include,
            exclude=exclude,
            findings=findings,
            clock=clock or SystemClock(),
        )


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
) -> EstimateAnswer:
    """Do the same in a session that is already there."""
    from dr_ctl.rpo import transforms  # noqa: PLC0415

    found = list(findings)
    rows = transforms.read(spark, files, root, since=since, until=until)
    # Kept as they are from here on: what follows reads them several times, and planning it all anew takes longer.
    outflows = transforms.outflow_looks(rows).localCheckpoint()
    seen = [_Flow(**row.asDict()) for row in transforms.outflow_facts(outflows).collect()]
    site = site or _serving([(row.site, row.role, row.last_us) for row in transforms.roles(rows).collect()])
    flows = sorted((flow for flow in seen if flow.site == site), key=lambda flow: (flow.pair, flow.flow))
    if site is None or not flows:
        return EstimateAnswer(None, (*found, _nothing_of(site, {flow.site for flow in seen})))

    histogram = _histogram(
        rows.where(rows.site == site),
        outflows.where(outflows.site == site),
        flows,
        classes=[each.queues for each in objectives.classes] if objectives else [],
        include=include,
        exclude=exclude,
    )
    window = _window(flows, histogram)
    stale_s = round(max(0.0, (clock.now() - window.last).total_seconds()), 3)
    found += [*_stale(flows, window, stale_s), *_uncertain_age(histogram)]
    return EstimateAnswer(
        _assembled(site, flows, histogram, window, stale_s, horizon_s=horizon_s, objectives=objectives), tuple(found)
    )


@dataclass(slots=True)
class _Histogram:
    """Weights by value per scope and metric, and the state at the last look."""

    weights: dict[tuple[str, str], list[tuple[int, int]]]
    now: dict[tuple[str, str], int | None]

    def quantity(self, scope: str, metric: str, *, per: float = 1.0) -> Quantity:
        buckets = sorted(self.weights.get((scope, metric), []))
        whole = sum(weight for _, weight in buckets)

        def scaled(value: int | None) -> Number | None:
            return value if value is None or per == 1.0 else round(value / per, 3)

        def quantile(probability: float) -> Number | None:
            so_far = 0
            for value, weight in buckets:
                so_far += weight
                if so_far >= probability * whole:
                    return scaled(value)
            return None

        return Quantity(
            now=scaled(self.now.get((scope, metric))),
            max=scaled(buckets[-1][0]) if buckets else None,
            p50=quantile(PROBABILITIES["p50"]),
            p95=quantile(PROBABILITIES["p95"]),
            p99=quantile(PROBABILITIES["p99"]),
        )

    def seconds(self, scope: str, metric: str) -> float:
        return sum(weight for _, weight in self.weights.get((scope, metric), [])) / 1e6


def _histogram(
    rows: DataFrame,
    outflows: DataFrame,
    flows: Sequence[_Flow],
    *,
    classes: Sequence[Sequence[str]],
    include: Sequence[str],
    exclude: Sequence[str],
) -> _Histogram:
    from dr_ctl.rpo import transforms as t  # noqa: PLC0415

    gaps: dict[tuple[str, ...], int] = {(flow.pair,): _gap_us(flows, flow.pair) for flow in flows}
    looks = t.cut_looks(t.queue_looks(rows, outflows))
    parts = t.contributions(looks, gap_us=t.per_key(gaps, "pair"))
    kept = t.by_flow(
        parts,
        classes=classes,
        include=include,
        exclude=exclude,
        sends_rate=t.per_key({(flow.pair, flow.flow): flow.sends_rate for flow in flows}, "pair", "flow"),
        acks_rate=t.per_key({(flow.pair, flow.flow): flow.acks_rate for flow in flows}, "pair", "flow"),
    ).localCheckpoint()
    states = t.by_scope(kept, t.intervals(outflows))
    collected = t.histograms(states).unionByName(t.at_last_look(kept)).collect()
    weights: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    now: dict[tuple[str, str], int | None] = {}
    for row in collected:
        if row.is_now:
            now[row.scope, row.metric] = row.value
        else:
            weights[row.scope, row.metric].append((row.value, row.weight_us))
    return _Histogram(dict(weights), now)


def _gap_us(flows: Sequence[_Flow], pair: str) -> int:
    from dr_ctl.rpo.transforms import GAP_POLLS  # noqa: PLC0415

    return GAP_POLLS * max((flow.spacing_us or 0 for flow in flows if flow.pair == pair), default=0)


def _assembled(
    site: str,
    flows: Sequence[_Flow],
    histogram: _Histogram,
    window: SeenWindow,
    stale_s: float,
    *,
    horizon_s: float,
    objectives: Objectives | None,
) -> Estimate:
    from dr_ctl.rpo import transforms as t  # noqa: PLC0415

    def figures(scope: str) -> Figures:
        return Figures(
            loss=histogram.quantity(scope, "loss"),
            age_s=histogram.quantity(scope, "age_ms", per=1000),
            duplicates=histogram.quantity(scope, "duplicates"),
            drain_s=histogram.quantity(scope, "drain_ms", per=1000),
            horizon=Horizon(horizon_s),
        )

    total = figures(t.TOTAL)
    classes = []
    for number, each in enumerate(objectives.classes if objectives else ()):
        judged = figures(f"{t.CLASS}{number}")
        classes.append(ClassEstimate(each.queues, judged.verdict(each.loss), judged))
    verdict = None
    if objectives is not None:
        verdict = Verdict.worst([total.verdict(objectives.loss), *(each.verdict for each in classes)])
    return Estimate(
        site=site,
        read_at=window.last,
        stale_s=stale_s,
        window=window,
        verdict=verdict,
        total=total,
        flows=tuple(
            FlowEstimate(site, flow.pair, flow.flow, figures(f"{t.FLOW}{flow.pair}\n{flow.flow}")) for flow in flows
        ),
        classes=tuple(classes),
    )


def _window(flows: Sequence[_Flow], histogram: _Histogram) -> SeenWindow:
    from dr_ctl.rpo.transforms import COVERED, TOTAL  # noqa: PLC0415

    looks: dict[str, int] = defaultdict(int)
    for flow in flows:
        looks[flow.pair] = max(looks[flow.pair], flow.looks)
    return SeenWindow(
        first=_moment(min(flow.first_us for flow in flows)),
        last=_moment(max(flow.last_us for flow in flows)),
        samples=sum(looks.values()),
        covered_s=round(histogram.seconds(TOTAL, COVERED), 3),
    )


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def _serving(seen: Iterable[tuple[str, str, int]]) -> str | None:
    """Pick the site whose newest role is serving; failing that, the one seen serving last."""
    newest: dict[str, tuple[int, str]] = {}
    served: dict[str, int] = {}
    for site, role, last in seen:
        newest[site] = max(newest.get(site, (last, role)), (last, role))
        if role == Role.SERVING.value:
            served[site] = last
    serves_now = {site: last for site, last in served.items() if newest[site][1] == Role.SERVING.value}
    candidates = serves_now or served
    return max(candidates, key=lambda site: candidates[site], default=None)


def _no_history(history: Path) -> Finding:
    return Finding(
        "DR-RPO-001",
        Severity.WARNING,
        f"there is no history to estimate from in {history}",
        "Run `dr-ctl monitor` for a while, then ask again; until then the loss is not known.",
    )


def _nothing_of(site: str | None, known: set[str]) -> Finding:
    others = ", ".join(sorted(known)) or "no site"
    if site is None:
        return Finding(
            "DR-RPO-004",
            Severity.WARNING,
            f"the history does not say which site serves; it holds outflows of {others}",
            "Name the site with --site.",
        )
    return Finding(
        "DR-RPO-005",
        Severity.WARNING,
        f"the history holds no look at an outflow of {site}; it holds those of {others}",
        "Widen --since and --until, name another site with --site, or run `dr-ctl monitor` against this one.",
    )


def _stale(flows: Sequence[_Flow], window: SeenWindow, stale_s: float) -> list[Finding]:
    remedy = "See that `dr-ctl monitor` runs and reaches the site; read the figures as of that moment."
    limit_s = max(STALE_AT_LEAST_S, STALE_POLLS * max(flow.spacing_us or 0 for flow in flows) / 1e6)
    found = []
    if stale_s > limit_s:
        text = f"the newest look is {stale_s:.0f} s old ({stamp(window.last)})"
        found.append(Finding("DR-RPO-003", Severity.WARNING, text, remedy))
    for pair in sorted({flow.pair for flow in flows}):
        last = _moment(max(flow.last_us for flow in flows if flow.pair == pair))
        behind_s = (window.last - last).total_seconds()
        if behind_s > limit_s:
            text = f"pair {pair} was last read {behind_s:.0f} s before the newest look ({stamp(last)})"
            found.append(
                Finding("DR-RPO-006", Severity.WARNING, text, f"{remedy} Leave out a pair that is gone with --since.")
            )
    return found


def _uncertain_age(histogram: _Histogram) -> list[Finding]:
    from dr_ctl.rpo.transforms import AGE_FLOOR, TOTAL  # noqa: PLC0415

    uncertain_s = histogram.seconds(TOTAL, AGE_FLOOR)
    if not uncertain_s:
        return []
    return [
        Finding(
            "DR-RPO-007",
            Severity.INFO,
            f"for {uncertain_s:.0f} s the age is at least what is shown: "
            "something was under way from before the first look",
            "Begin the window earlier, or later, than that stall.",
        )
    ]
