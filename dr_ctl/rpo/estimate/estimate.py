"""The estimate: from a history to figures and a verdict. Contacts no broker."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from dr_ctl.core.clock import Clock, SystemClock
from dr_ctl.core.model import Finding, Role
from dr_ctl.rpo.core.calendar import SECOND
from dr_ctl.rpo.core.facts import Facts, Made, pair_of
from dr_ctl.rpo.core.quantities import Figures, Horizon, Quantity
from dr_ctl.rpo.core.rows import TOTAL, class_name
from dr_ctl.rpo.core.scope import Ask, OfScope
from dr_ctl.rpo.estimate import notes
from dr_ctl.rpo.estimate.notes import advice, shares
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import (
    BINS,
    ClassEstimate,
    Coverage,
    Estimate,
    EstimateAnswer,
    FlowEstimate,
    Outage,
    SeenWindow,
    Verdict,
    curves_of,
    judged,
)
from dr_ctl.rpo.estimate.stored import store
from dr_ctl.rpo.history.row import micros, moment

Make = Callable[[Request, int], Made | Finding]
"""Reads a history; the finding says why there is nothing to tell."""
SILENT_US: Final = 30 * SECOND


def estimate(asked: Request, make: Make, *, charted: bool = False, clock: Clock | None = None) -> EstimateAnswer:
    """Say what would be lost if the site died: at the last look, and at a random moment of the history.

    `charted` adds the curves of a page. Raises EnvironmentFault where Spark cannot start or finish, or the estimate
    cannot be stored.
    """
    clock = clock or SystemClock()
    now_us = micros(clock.now())
    made = make(asked, now_us)
    answer = EstimateAnswer(None, (made,)) if isinstance(made, Finding) else _answer(asked, made, now_us, charted)
    if asked.store:
        store(asked.place, answer, clock.now())
    return answer


def _answer(asked: Request, made: Made, now_us: int, charted: bool) -> EstimateAnswer:
    facts, objectives = made.facts, asked.objectives
    if not facts.flows:
        return EstimateAnswer(None, (*made.findings, notes.nothing_of(made.site, {made.site})))
    scopes = made.figures(ask_of(asked, made, BINS if charted else 0))
    total, queues, classes = scopes[TOTAL], shares(facts), tuple(_classes(asked, facts, scopes))
    coverage, stale_s = Coverage.of(total, facts.span_us), round(max(0.0, (now_us - facts.span_us[1]) / 1e6), 3)
    first, last = map(moment, facts.span_us)
    samples = sum(max(each.looks for each in own) for own in facts.pairs.values())
    verdict = None
    if objectives is not None:
        verdict = Verdict.worst([judged(total, coverage, objectives.loss), *(each.verdict for each in classes)])
    estimated = Estimate(
        made.site,
        last,
        stale_s,
        SeenWindow(first, last, samples, round(coverage.covered_us / 1e6, 3)),
        verdict,
        total.figures,
        tuple(_flows(made.site, scopes, facts)),
        classes,
        queues,
        advice(scopes, facts, queues, objectives),
        _outage(facts),
    )
    found = [
        *notes.waiting(made.site, made.serving),
        *notes.stale(facts, stale_s),
        *notes.ahead(facts.span_us[1], now_us, made.ahead),
        *notes.uncertain(total),
        *notes.uncovered(coverage),
        *notes.without_queues(objectives, facts),
        *notes.inside(estimated, objectives),
    ]
    drawn = None if total.drawn is None else curves_of(total.drawn, facts.span_us)
    return EstimateAnswer(estimated, (*made.findings, *found), drawn)


def ask_of(asked: Request, made: Made, bins: int, horizons_s: tuple[float, ...] = ()) -> Ask:
    facts, objectives = made.facts, asked.objectives
    limits = {} if objectives is None else {TOTAL: objectives.loss} | {
        class_name(number): each.loss for number, each in enumerate(objectives.classes)
    }  # fmt: skip
    return Ask(
        *facts.span_us,
        facts.hour_us,
        made.end_us,
        facts.away_us,
        asked.horizon_s,
        {name: (limit.messages, limit.age_s) for name, limit in limits.items()},
        bins,
        horizons_s,
    )


def _flows(site: str, scopes: Mapping[str, OfScope], facts: Facts) -> list[FlowEstimate]:
    is_alone = len(facts.flows) == 1  # the total says all of it
    return [
        FlowEstimate(site, pair_of(flow), json.loads(flow)[1], scopes[TOTAL if is_alone else flow].figures)
        for flow in facts.flows
    ]


def _classes(asked: Request, facts: Facts, scopes: Mapping[str, OfScope]) -> list[ClassEstimate]:
    found = []
    for number, told in enumerate(asked.objectives.classes if asked.objectives is not None else ()):
        name = class_name(number)
        if name in facts.classes:
            scope = scopes[name]
            verdict = judged(scope, Coverage.of(scope, facts.span_us), told.loss)
            found.append(ClassEstimate(told.queues, verdict, scope.figures))
        else:  # nobody ever read a queue of it: the figure is unknown, and not zero
            nothing = Figures(Quantity(), Quantity(), Quantity(), Quantity(), Horizon(asked.horizon_s))
            found.append(ClassEstimate(told.queues, Verdict.UNKNOWN, nothing))
    return found


def _outage(facts: Facts) -> Outage | None:
    """Whether the site was seen to be away after it served last; a site that waits is not."""
    served_us, waited_us = (facts.roles.get(role.value, -1) for role in (Role.SERVING, Role.STANDBY))
    away = {role.value: facts.roles.get(role.value, -1) for role in (Role.DOWN, Role.SICK, Role.UNKNOWN)}
    role = max(away, key=away.__getitem__)
    least_us = 0 if role == Role.DOWN.value else SILENT_US  # a broker that is late now and then is no outage
    if served_us < max(0, waited_us) or away[role] <= served_us + least_us:
        return None
    return Outage(moment(served_us), role, moment(away[role]))
