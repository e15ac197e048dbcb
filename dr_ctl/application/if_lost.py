"""What the loss of the serving site would cost now, as `status` heads with it: the figure of a failover, by the same
reading. Where nothing reaches the other site, since when."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from dr_ctl.application.down_since import Since
from dr_ctl.application.installation import Opened
from dr_ctl.application.verdicts import Judge
from dr_ctl.core.model import Finding, Severity
from dr_ctl.core.notation import duration
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.ending import price_text
from dr_ctl.engine.operations import SWAPOVER
from dr_ctl.engine.ports import Move
from dr_ctl.topologies.topology import Snapshot


def headline(judge: Judge, site: str, away: Collection[Since], now: datetime) -> str:
    """`away`: since when each link of the site is away that is. Empty where no monitor has looked and all are there."""
    bounds: Mapping[str, Any] = judge.if_lost(site).bounds()
    cost = f"if {site} died now: {price_text(bounds)}{_age(bounds, now)}"
    if not away:
        return cost if bounds["lost"]["read_at"] is not None else ""
    since = [each.at for each in away if each.at is not None]
    when = f"since {min(since)}" if len(since) == len(away) else "for a time that nobody knows"
    return f"nothing has reached {judge.opened.other(site)} {when}; {cost}"


def _age(bounds: Mapping[str, Any], now: datetime) -> str:
    read_at = bounds["lost"]["read_at"]
    if read_at is None:
        return ""
    age_s = max(0.0, (now - datetime.fromisoformat(read_at)).total_seconds())
    return f" (reading of {duration(round(age_s, 1))} ago)"


def differing(opened: Opened, snapshot: Snapshot, site: str, by_history: Sequence[Finding]) -> Sequence[Finding]:
    """That the sites differ by more than what was on its way, by this look; where it does not tell, by the history."""
    move = Move(Ask(SWAPOVER, opened.other(site)), site, {})
    found = [each for check in opened.topology.recipe.checks(snapshot, move) for each in check.found]
    own = [replace(each, severity=Severity.WARNING) for each in found if each.id == "DR-PARITY-001"]
    return own or by_history
