"""What is decided for `catch-up`: nothing is changed. Pure."""

from __future__ import annotations

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.continuity.view import ContinuitySeen


def draft(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    del seen
    return Draft(
        move.source,
        "still serving: all bridges connected, the outflow small, nothing left to deliver from staging",
        limits={"within": step.limits.get("within", rules.patience.catch_up_s)},
    )
