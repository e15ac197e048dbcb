"""What is decided for `drain`: pauses lifted beside it, links that hang restarted. Pure."""

from __future__ import annotations

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror.drafts.links import restarts, starts
from dr_ctl.topologies.mirror.view import MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    del step
    views = [*seen.views(move.source), *seen.views(move.target)]
    return Draft(
        move.target,
        "everything shipped and applied, in both directions; pauses lifted beside it",
        calls=(*lifts_planned(rules, seen, move), *restarts(views)),
        inverse=tuple(starts(views)),
        limits={"within": rules.within(move), "stall": rules.drain.stall},
    )
