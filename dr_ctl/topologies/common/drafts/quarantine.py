"""What is decided for `quarantine`: what a lost site still holds must not meet live consumers. Pure."""

from __future__ import annotations

from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import close_door, open_door
from dr_ctl.topologies.common.drafts.debt import debt
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Close the door that the lost site's link uses."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.target):
        was = before(move, view)
        for door in view.mirror_doors:
            if door.started:
                calls.append(close_door(view, door))
            if was["mirror"].get(door.name):
                inverse.append(open_door(view, door, "it is closed"))
    written, struck = debt(seen, move, DebtKind.QUARANTINE)
    about = f"what {move.source} still holds is kept out until it is asked for"
    return Draft(move.source, about, (*written, *calls), (*inverse, *struck))
