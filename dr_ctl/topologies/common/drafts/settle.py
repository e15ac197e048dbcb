"""What is decided for `settle`: how long the target may apply what reached it. Pure."""

from __future__ import annotations

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """For a moment only: a lost site sends nothing more."""
    del seen
    limits = {"within": step.limits.get("within", rules.patience.settle_s)}
    return Draft(move.target, "what has arrived is applied", limits=limits)
