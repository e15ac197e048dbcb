"""What is decided for `catch-up`: links that hang are restarted. Pure."""

from __future__ import annotations

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror.drafts.links import restarts, starts
from dr_ctl.topologies.mirror.view import MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    views = [*seen.views(move.source), *seen.views(move.target)]
    return Draft(
        move.source,
        "still serving: both links attached, the outflow small",
        calls=tuple(restarts(views)),
        inverse=tuple(starts(views)),
        limits={"within": step.limits.get("within", rules.patience.catch_up_s)},
    )
