"""Findings that the reader of an estimate has to know beside its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding
from dr_ctl.rpo.estimate.scope import looked, pair_of
from dr_ctl.rpo.findings import (
    AGE_AT_LEAST,
    CLASS_NOT_READ,
    INTERVAL_ABOVE_LIMIT,
    LOOK_IN_FUTURE,
    LOOKS_WITH_GAPS,
    NEWEST_LOOK_OLD,
    OUTFLOW_NOT_READ,
    PAIR_NOT_READ,
    SERVING_SITE_UNKNOWN,
    SITE_DOES_NOT_SERVE,
    UNEXPLAINED_SHARE,
)
from dr_ctl.rpo.history.row import moment
from dr_ctl.settings.durations import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dr_ctl.rpo.core.rows import Rows
    from dr_ctl.rpo.estimate.coverage import Coverage
    from dr_ctl.rpo.estimate.listing import File
    from dr_ctl.rpo.estimate.result import Estimate, Figures, LossClass, LossLimit, Objectives, SeenWindow
    from dr_ctl.rpo.estimate.scope import Scope

STALE_POLLS: Final = 5
STALE_AT_LEAST_S: Final = 30.0
UNEXPLAINED: Final = 0.01
UNCOVERED: Final = 0.01


def nothing_of(site: str | None, known: set[str]) -> Finding:
    others = ", ".join(sorted(known)) or "no site"
    if site is None:
        return SERVING_SITE_UNKNOWN(
            f"the history does not say which site serves; it holds files of {others}", "Name the site with --site."
        )
    return OUTFLOW_NOT_READ(
        f"the history holds no look at an outflow of {site}; it holds files of {others}",
        "Widen --since and --until, name another site with --site, or run `dr-ctl monitor` against this one.",
    )


def waiting(site: str, serving: str | None) -> list[Finding]:
    """Tell of a site that does not serve: things in its outflow came from the other, since that serves."""
    if serving in (None, site):
        return []
    text = (
        f"{serving} serves, not {site}: what {site} got to ship since then are echoes of what {serving} did, and no "
        "message is lost with these"
    )
    return [SITE_DOES_NOT_SERVE(text, f"What is at stake: the same with --site {serving}.")]


def stale(rows: Rows, window: SeenWindow, stale_s: float) -> list[Finding]:
    remedy = "See that `dr-ctl monitor` runs and reaches the site; read the figures as of that moment."
    spacing_us = max((int(rows.part("spacing", flow).most.max(initial=0)) for flow in rows.flows), default=0)
    limit_s = max(STALE_AT_LEAST_S, STALE_POLLS * spacing_us / 1e6)
    found = []
    if stale_s > limit_s:
        text = f"the newest look is {stale_s:.0f} s old ({stamp(window.last)})"
        found.append(NEWEST_LOOK_OLD(text, remedy))
    for pair in sorted({pair_of(flow) for flow in rows.flows}):
        last = moment(max(looked(rows, flow)[1] for flow in rows.flows if pair_of(flow) == pair))
        behind_s = (window.last - last).total_seconds()
        if behind_s > limit_s:
            text = f"pair {pair} was last read {behind_s:.0f} s before the newest look ({stamp(last)})"
            found.append(PAIR_NOT_READ(text, f"{remedy} Leave out a pair that is gone with --since."))
    return found


def ahead(window: SeenWindow, now: datetime, files: Sequence[File]) -> list[Finding]:
    """Tell of looks in the future of this machine's clock: of those that are left out, or else of the newest."""
    if files:
        last = max(moment(file.last_us) for file in files)
        text = (
            f"looks in {len(files)} file(s) lie in the future of this machine's clock, as far as {stamp(last)}: "
            "they are left out"
        )
        return [LOOK_IN_FUTURE(text, "Set the clocks of this machine and of the monitor's.")]
    ahead_s = (window.last - now).total_seconds()
    if ahead_s <= STALE_AT_LEAST_S:
        return []
    text = f"the newest look lies {ahead_s:.0f} s in the future of this machine's clock ({stamp(window.last)})"
    remedy = "Set the clocks of this machine and of the monitor's; leave such looks out with --until."
    return [LOOK_IN_FUTURE(text, remedy)]


def uncertain(total: Scope, unexplained: float | None) -> list[Finding]:
    found = []
    uncertain_s = total.weight("floor") / 1e6
    if uncertain_s:
        text = (
            f"for {duration(uncertain_s)} the age is at least what is shown: "
            "something was under way from before the first look, or from before the clock was put back"
        )
        remedy = "Begin the window earlier, or later, than that stall."
        found.append(AGE_AT_LEAST(text, remedy))
    if unexplained is not None and unexplained > UNEXPLAINED:
        text = f"{unexplained:.1%} of what went into the outflow is not in the queues' counters"
        remedy = "Figures of single queues and of classes are upper bounds; the total is bounded by the outflow itself."
        found.append(UNEXPLAINED_SHARE(text, remedy))
    return found


def uncovered(seen: Coverage) -> list[Finding]:
    """Time for which nobody can say what was under way: often that in which most was."""
    if seen.uncovered <= UNCOVERED or seen.late_us + seen.unseen_us <= STALE_AT_LEAST_S * 1e6:
        return []
    late = f", for {duration(seen.late_us / 1e6)} because looks came late" if seen.late_us else ""
    text = f"{seen.uncovered:.0%} of the time in which the site served is not covered by looks{late}"
    remedy = "Let `dr-ctl monitor` run all the time, once, near the site; objectives are met by covered time alone."
    return [LOOKS_WITH_GAPS(text, remedy)]


def without_queues(classes: Sequence[tuple[LossClass, Scope]]) -> list[Finding]:
    """Classes that no queue of the history belongs to."""
    names = [", ".join(each.queues) for each, scope in classes if not scope.has_queues]
    text = "no queue that was ever read belongs to this class of the objectives, so nothing is known of it: {}"
    remedy = "Check the spelling of its patterns, and that `dr-ctl monitor` may read its queues."
    return [CLASS_NOT_READ(text.format(name), remedy) for name in names]


def inside(estimated: Estimate, objectives: Objectives | None) -> list[Finding]:
    """Limits that the history does not settle: the 99th percentile keeps them, its interval does not."""
    if objectives is None:
        return []
    told = [("in total", estimated.total, objectives.loss)]
    told += [(", ".join(e.queues), f.figures, e.loss) for e, f in zip(objectives.classes, estimated.classes, strict=True)]  # fmt: skip  # noqa: E501
    remedy = "A longer history tells more: widen --since, or let `dr-ctl monitor` run on."
    return [
        INTERVAL_ABOVE_LIMIT(f"{name}: the limit on {what} lies within what the history leaves open", remedy)
        for name, figures, limit in told
        for what in _open(figures, limit)
    ]  # fmt: skip


def _open(figures: Figures, limit: LossLimit) -> list[str]:
    asked = (("the loss", figures.loss, limit.messages), ("the age", figures.age_s, limit.age_s))
    found = []
    for what, figure, most in asked:
        ends = figure.ci95.get("p99")
        if most is None or ends is None or figure.p99 is None or figure.p99 > most:
            continue
        top = ends[1] if ends[1] is not None else figure.max
        if top is None or top > most:
            found.append(what)
    return found
