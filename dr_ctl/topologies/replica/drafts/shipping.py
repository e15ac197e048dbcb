"""Plans the waits on events that the replica lacks. Pure."""

from __future__ import annotations

from typing import Final

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.durations import duration
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned, while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.replica.view import BrokerView

LAG: Final = "lag"


def catch_up(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    lag_s = min(view.own.lag_s for view in seen.views(move.source))
    about = f"{while_serving(seen, move)}the replica fetches, and is at most {duration(lag_s)} behind"
    limits = {"within": step.limits.get("within", rules.patience.catch_up_s), LAG: lag_s}
    return Draft(move.source, about, limits=limits)


def drain(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del step
    limits = {"within": rules.within(move), "stall": rules.drain.stall}
    about = "the replica has every event; pauses lifted beside it"
    return Draft(move.target, about, tuple(lifts_planned(rules, seen, move)), limits=limits)
