"""What is decided for `activate`: the queues that move deliver at the target, and their clients are let in. Pure."""

from __future__ import annotations

from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.bridges.calls import closes, closes_again, opens
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import open_door
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Its doors, which stay open once they are: a door alone lets nobody in to a queue that is closed."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    # One that came back is closed before anything else, and stays closed where the move back is undone.
    returns = move.ask.operation == FAILBACK
    for view in seen.views(move.target):
        source = seen.view(move.source, view.pair)
        # Only what the fence closes there; a lost site that does not answer is owed its fence as a whole.
        units = [unit for unit in view.among(move.moves) if source is None or source.flow(unit) is not None]
        calls += opens(view, units, "it was closed when it came back" if returns else None)
        calls += in_part("doors", (open_door(view, door) for door in view.doors if not door.started))
        inverse += closes(view, units, "it is open") if returns else closes_again(view, units, before(move, view))
    calls += in_part("strikes", receipts.strikes(seen))
    return Draft(move.target, "the queues deliver, their clients are let in", tuple(calls), tuple(inverse))
