"""What is decided for `residue`: a returned site that is open is closed before anything else. Pure."""

from __future__ import annotations

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.fence import shut
from dr_ctl.topologies.common.failover import came_back_open
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror.view import MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Count what the returned site still holds for the other; an open one is closed first."""
    del rules, step
    views = seen.views(move.target) if came_back_open(seen, move) else []
    about = "what it still holds is counted; if it is open, it is closed first"
    return Draft(move.target, about, tuple(shut(views)))
