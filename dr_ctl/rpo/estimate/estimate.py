"""The estimate: from a history to figures and a verdict, and the findings that its reader has to know beside them. The
backtest compares the estimate that each past moment would have given with the truth. Neither contacts a broker.

The history shows what would shorten a loss: where most of it lay, when, and what limited its way across. A sentence of
advice stands only where the rows show its reason."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role
from dr_ctl.core.notation import duration, if_known
from dr_ctl.core.system import stamp, system
from dr_ctl.rpo.core.arrays import SECOND_US
from dr_ctl.rpo.core.calibration import CalibrationResult
from dr_ctl.rpo.core.quantities import Figures, Horizon, Quantity
from dr_ctl.rpo.core.rows import TOTAL, class_name
from dr_ctl.rpo.core.scope import Facts, ScopeFigures, ScopeQuery, pair_of
from dr_ctl.rpo.estimate.request import Request, store
from dr_ctl.rpo.estimate.result import (
    Backtest,
    BacktestAnswer,
    ClassEstimate,
    Estimate,
    EstimateAnswer,
    FlowEstimate,
    Objectives,
    Outage,
    QueueShare,
    SeenWindow,
    Span,
    Verdict,
    judged,
    limited,
)
from dr_ctl.rpo.history.row import micros, moment

TOP: Final = 5
MOST: Final = 0.5
"""A queue with this share of the likely loss is named as its main source."""
WIDE: Final = 3
"""A bound that is so many times the likely figure is wide because readings are far apart."""
NEAR_US: Final = SECOND_US


def shares(facts: Facts) -> tuple[QueueShare, ...]:
    weights: dict[tuple[str, str], tuple[int, int]] = {}
    for flow, name, weight, most in facts.shares:
        before = weights.get((pair_of(flow), name), (0, 0))
        weights[pair_of(flow), name] = before[0] + weight, max(before[1], most)
    whole = sum(weight for weight, _ in weights.values())
    order = sorted((key for key in weights if key[1]), key=lambda key: (-weights[key][0], key))
    largest = ((*key, *weights[key]) for key in order[:TOP])
    return tuple(QueueShare(pair, name, round(weight / whole, 4), most) for pair, name, weight, most in largest)


def advice(
    scopes: Mapping[str, ScopeFigures], facts: Facts, queues: Sequence[QueueShare], objectives: Objectives | None
) -> Iterator[str]:
    total = scopes[TOTAL]
    bound, likely, peak = total.figures.loss.p99, total.figures.loss.likely.p99, total.peak
    is_wide = bound is not None and likely is not None and bound > WIDE * max(likely, 1)
    if not queues and not is_wide:
        return
    if peak is not None and not peak.times:
        at = stamp(moment(peak.at_us))
        yield f"Worst moment: about {at}. A failure then would likely lose {peak.most} message(s)."
    elif peak is not None:  # the likely loss was above the limit
        limit = objectives.loss.messages if objectives is not None else None
        times = "once" if peak.times == 1 else f"{peak.times} times"
        longest, since = duration(float(peak.longest_us) / SECOND_US), stamp(moment(peak.from_us))
        yield (
            f"A failure would likely have lost more than {if_known(limit)} {times} in the history, the longest time "
            f"for about {longest} from {since} on: check link and consumers at that time."
        )
    for flow in facts.flows:  # links that carried less than came while something waited
        scope = scopes[flow]
        if scope.shipped is not None and scope.came is not None and scope.shipped < scope.came:
            yield (
                f"With a backlog, the outflow of pair {pair_of(flow)} shipped {scope.shipped:.0f} a second or less "
                f"for a tenth of the time, while up to {scope.came:.0f} a second arrived: a faster link "
                "reduces the loss."
            )
    if queues and queues[0].share >= MOST:
        first = queues[0]
        yield (
            f"{first.share:.0%} of what was likely lost lay in {first.name} of pair {first.pair}, at most {first.most} "
            "in one sample: faster consumers there reduce it, because a consumed message is not lost."
        )
    if is_wide and facts.spacing_us >= NEAR_US:  # a shorter interval narrows the bound, not the loss
        apart = duration(facts.spacing_us / SECOND_US)
        yield (
            f"The bound is far above the likely value because samples are {apart} apart: a shorter `history.every` "
            "narrows the bound, and does not change the loss."
        )


BINS: Final = 200
STALE_POLLS: Final = 5
MIN_STALE_S: Final = 30.0
UNEXPLAINED: Final = 0.01
UNCOVERED: Final = 0.01


def nothing_of(site: str | None, known: set[str]) -> Finding:
    others = ", ".join(sorted(known)) or "no site"
    if site is None:
        return found("DR-RPO-004", others=others)
    return found("DR-RPO-005.nothing_of_site", site=site, others=others)


@dataclass(frozen=True, slots=True)
class LoadedHistory:
    """A history that was read: `site` is the one it is of, `serving` the one that serves, and `end_us` its end
    (exclusive). `findings` name files that are left out; `ahead` counts those with readings from far in the future of
    the clock, and has the last of these readings."""

    site: str
    serving: str | None
    end_us: int
    facts: Facts
    figures: Callable[[ScopeQuery], Mapping[str, ScopeFigures]]
    backtested: Callable[[ScopeQuery], CalibrationResult]
    findings: tuple[Finding, ...] = ()
    ahead: tuple[int, int] | None = None


LoadHistory = Callable[[Request, int], LoadedHistory | Finding]
"""Reads a history; the finding says why there is nothing to tell."""
SILENT_US: Final = 30 * SECOND_US


def estimate(request: Request, make: LoadHistory, *, charted: bool = False) -> EstimateAnswer:
    """Say what would be lost if the site died: at the last reading, and at a random moment of the history.

    `charted` adds the curves of a page. Raises EnvironmentFault where Spark cannot start or finish, or the estimate
    cannot be stored.
    """
    now_us = micros(system().now())
    loaded = make(request, now_us)
    answer = (
        EstimateAnswer(None, (loaded,)) if isinstance(loaded, Finding) else _answer(request, loaded, now_us, charted)
    )
    if request.store:
        store(request.location, answer, system().now())
    return answer


def _answer(request: Request, loaded: LoadedHistory, now_us: int, charted: bool) -> EstimateAnswer:
    facts, objectives = loaded.facts, request.objectives
    if not facts.flows:
        return EstimateAnswer(None, (*loaded.findings, nothing_of(loaded.site, {loaded.site})))
    scopes = loaded.figures(scope_query(request, loaded, BINS if charted else 0))
    total, queues, classes = scopes[TOTAL], shares(facts), tuple(_classes(request, facts, scopes))
    stale_s = round(max(0.0, (now_us - facts.span_us[1]) / 1e6), 3)
    first, last = map(moment, facts.span_us)
    samples = sum(max(flow.readings for flow in own) for own in facts.pairs.values())
    verdict = None
    if objectives is not None:
        verdict = Verdict.worst([judged(total, objectives.loss), *(of.verdict for of in classes)])
    estimated = Estimate(
        loaded.site,
        last,
        stale_s,
        SeenWindow(first, last, samples, round(total.covered_us / 1e6, 3)),
        verdict,
        total.figures,
        tuple(_flows(loaded.site, scopes, facts)),
        classes,
        queues,
        tuple(advice(scopes, facts, queues, objectives)),
        _outage(facts),
    )
    findings = (*_of_readings(loaded, stale_s), *_of_figures(total, estimated, facts, objectives))
    return EstimateAnswer(estimated, (*loaded.findings, *findings), total.curves)


def _of_readings(loaded: LoadedHistory, stale_s: float) -> Iterator[Finding]:
    facts, newest_us = loaded.facts, loaded.facts.span_us[1]
    if loaded.serving not in (None, loaded.site):  # things in its outflow came from the other, since that serves
        yield found("DR-RPO-023", serving=loaded.serving, site=loaded.site)
    limit_s = max(MIN_STALE_S, STALE_POLLS * facts.spacing_us / 1e6)
    if stale_s > limit_s:
        yield found("DR-RPO-003.newest", age=f"{stale_s:.0f}", at=stamp(moment(newest_us)))
    for pair, flows in sorted(facts.pairs.items()):
        last_us = max(flow.last_us for flow in flows)
        behind_s = (newest_us - last_us) / 1e6
        if behind_s > limit_s:
            yield found("DR-RPO-006", pair=pair, behind=f"{behind_s:.0f}", at=stamp(moment(last_us)))
    ahead_s = (newest_us - micros(system().now())) / 1e6  # the monitor went on while Spark started and read
    if loaded.ahead is not None:
        yield found("DR-RPO-020.left_out", files=loaded.ahead[0], last=stamp(moment(loaded.ahead[1])))
    elif ahead_s > MIN_STALE_S:
        yield found("DR-RPO-020.newest", ahead=f"{ahead_s:.0f}", at=stamp(moment(newest_us)))


def _of_figures(
    total: ScopeFigures, estimated: Estimate, facts: Facts, objectives: Objectives | None
) -> Iterator[Finding]:
    if total.floor_us:
        yield found("DR-RPO-007", time=duration(total.floor_us / 1e6))
    if total.taken_over_us:
        yield found("DR-RPO-033", time=duration(total.taken_over_us / 1e6))
    if total.uncompared_us > UNCOVERED * total.covered_us:
        yield found("DR-RPO-034", time=duration(total.uncompared_us / 1e6))
    unexplained = total.figures.unexplained
    if unexplained is not None and unexplained > UNEXPLAINED:
        yield found("DR-RPO-019", unexplained=f"{unexplained:.1%}")
    # Time for which nobody can say what was under way is often that in which most was.
    if total.uncovered > UNCOVERED and total.late_us + total.unseen_us > MIN_STALE_S * 1e6:
        late = f", for {duration(total.late_us / 1e6)} because samples came late" if total.late_us else ""
        yield found("DR-RPO-024", uncovered=f"{total.uncovered:.0%}", late=late)
    if objectives is None:
        return
    for number, loss_class in enumerate(objectives.classes):
        if class_name(number) not in facts.classes:
            yield found("DR-RPO-025", queues=", ".join(loss_class.queues))
    limits = [("in total", estimated.total, objectives.loss)]
    for of_class, loss_class in zip(estimated.classes, objectives.classes, strict=True):
        limits.append((", ".join(loss_class.queues), of_class.figures, loss_class.loss))
    for name, figures, limit in limits:
        for figure, (quantity, most) in zip(limit.by_figure, limited(figures, limit), strict=True):
            ends = quantity.ci95.get("p99")
            if ends is None or quantity.p99 is None or quantity.p99 > most:
                continue
            top = ends[1] if ends[1] is not None else quantity.max
            if top is None or top > most:  # the 99th percentile keeps the limit, its interval does not
                what = {"loss": "the loss", "age_s": "the age"}[figure]
                yield found("DR-RPO-026", name=name, what=what)


def scope_query(request: Request, loaded: LoadedHistory, bins: int, horizons_s: tuple[float, ...] = ()) -> ScopeQuery:
    facts, objectives = loaded.facts, request.objectives
    limits = {} if objectives is None else {TOTAL: objectives.loss} | {
        class_name(number): loss_class.loss for number, loss_class in enumerate(objectives.classes)
    }  # fmt: skip
    by_scope = {name: limit.by_figure for name, limit in limits.items()}
    times = (*facts.span_us, facts.hour_us, loaded.end_us, facts.away_us)
    return ScopeQuery(*times, request.horizon_s, by_scope, bins, horizons_s)


def _flows(site: str, scopes: Mapping[str, ScopeFigures], facts: Facts) -> list[FlowEstimate]:
    is_single = len(facts.flows) == 1  # the total says all of it
    return [
        FlowEstimate(site, pair_of(flow), json.loads(flow)[1], scopes[TOTAL if is_single else flow].figures)
        for flow in facts.flows
    ]


def _classes(request: Request, facts: Facts, scopes: Mapping[str, ScopeFigures]) -> list[ClassEstimate]:
    estimates = []
    for number, loss_class in enumerate(request.objectives.classes if request.objectives is not None else ()):
        # If nobody ever read a queue of it the figure is unknown, and not zero.
        verdict = Verdict.UNKNOWN
        figures = Figures(Quantity(), Quantity(), Quantity(), Quantity(), Horizon(request.horizon_s))
        if (name := class_name(number)) in facts.classes:
            verdict, figures = judged(scopes[name], loss_class.loss), scopes[name].figures
        estimates.append(ClassEstimate(loss_class.queues, verdict, figures))
    return estimates


def _outage(facts: Facts) -> Outage | None:
    """Return the outage of a site that was seen to be away after it served last; a site that waits is not away."""
    served_us, waited_us = (facts.roles.get(role.value, -1) for role in (Role.SERVING, Role.STANDBY))
    away = {role.value: facts.roles.get(role.value, -1) for role in (Role.DOWN, Role.SICK, Role.UNKNOWN)}
    role = max(away, key=away.__getitem__)
    least_us = 0 if role == Role.DOWN.value else SILENT_US  # a broker that is late now and then is no outage
    if served_us < max(0, waited_us) or away[role] <= served_us + least_us:
        return None
    return Outage(moment(served_us), role, moment(away[role]))


HORIZONS_S: Final = (60.0, 300.0, 900.0)


def backtest(request: Request, make: LoadHistory, *, horizons_s: Sequence[float] = HORIZONS_S) -> BacktestAnswer:
    """Test the estimate that is asked for on its own past, whatever its objectives. Contacts no broker."""
    request = replace(request, objectives=None, from_summaries=False, store=False, is_backtest=True)
    request = replace(request, horizons_s=tuple(horizons_s))
    loaded = make(request, micros(system().now()))
    if isinstance(loaded, Finding):
        return BacktestAnswer(None, (loaded,))
    if not loaded.facts.flows:
        return BacktestAnswer(None, (*loaded.findings, nothing_of(loaded.site, {loaded.site})))
    query = scope_query(request, loaded, 0, request.horizons_s)
    tested, span = loaded.backtested(query), Span(*map(moment, query.span_us))
    return BacktestAnswer(Backtest(loaded.site, span, tested.bound, tested.rows), loaded.findings)
