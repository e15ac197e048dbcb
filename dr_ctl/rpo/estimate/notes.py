"""What the reader of an estimate has to know beside its figures, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import stamp
from dr_ctl.core.model import Finding, Severity
from dr_ctl.rpo.estimate.cells import AGE_FLOOR, TOTAL
from dr_ctl.rpo.history.row import moment
from dr_ctl.settings.durations import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dr_ctl.rpo.estimate.facts import Flow
    from dr_ctl.rpo.estimate.figures import Table
    from dr_ctl.rpo.estimate.result import SeenWindow

STALE_POLLS: Final = 5
STALE_AT_LEAST_S: Final = 30.0
UNEXPLAINED: Final = 0.01


def nothing_of(site: str | None, known: set[str]) -> Finding:
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


def waiting(site: str, serving: str | None) -> list[Finding]:
    """Of a site that does not serve: what lies in its outflow came from the other, since that serves."""
    if serving in (None, site):
        return []
    text = (
        f"{serving} serves, not {site}: what {site} got to ship since then are echoes of what {serving} did, and no "
        "message is lost with these"
    )
    return [Finding("DR-RPO-023", Severity.WARNING, text, f"What is at stake: the same with --site {serving}.")]


def stale(flows: Sequence[Flow], window: SeenWindow, stale_s: float) -> list[Finding]:
    remedy = "See that `dr-ctl monitor` runs and reaches the site; read the figures as of that moment."
    limit_s = max(STALE_AT_LEAST_S, STALE_POLLS * max(flow.spacing_us or 0 for flow in flows) / 1e6)
    found = []
    if stale_s > limit_s:
        text = f"the newest look is {stale_s:.0f} s old ({stamp(window.last)})"
        found.append(Finding("DR-RPO-003", Severity.WARNING, text, remedy))
    for pair in sorted({flow.pair for flow in flows}):
        last = moment(max(flow.last_us for flow in flows if flow.pair == pair))
        behind_s = (window.last - last).total_seconds()
        if behind_s > limit_s:
            text = f"pair {pair} was last read {behind_s:.0f} s before the newest look ({stamp(last)})"
            found.append(
                Finding("DR-RPO-006", Severity.WARNING, text, f"{remedy} Leave out a pair that is gone with --since.")
            )
    return found


def ahead(window: SeenWindow, now: datetime) -> list[Finding]:
    ahead_s = (window.last - now).total_seconds()
    if ahead_s <= STALE_AT_LEAST_S:
        return []
    text = f"the newest look lies {ahead_s:.0f} s in the future of this machine's clock ({stamp(window.last)})"
    remedy = "Set the clocks of this machine and of the monitor's; leave such looks out with --until."
    return [Finding("DR-RPO-020", Severity.WARNING, text, remedy)]


def uncertain(table: Table) -> list[Finding]:
    found = []
    uncertain_s = table.seconds(TOTAL, AGE_FLOOR)
    if uncertain_s:
        text = (
            f"for {duration(uncertain_s)} the age is at least what is shown: "
            "something was under way from before the first look"
        )
        remedy = "Begin the window earlier, or later, than that stall."
        found.append(Finding("DR-RPO-007", Severity.INFO, text, remedy))
    share = table.unexplained(TOTAL)
    if share is not None and share > UNEXPLAINED:
        text = f"{share:.1%} of what went into the outflow is not in the queues' counters"
        remedy = "Figures of single queues and of classes are upper bounds; the total is bounded by the outflow itself."
        found.append(Finding("DR-RPO-019", Severity.INFO, text, remedy))
    return found
