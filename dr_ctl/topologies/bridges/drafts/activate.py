"""Plans `activate`: the queues that move deliver at the target, and their clients are let in. Pure."""

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
    """Open queues and doors. Doors stay open afterwards: an open door lets no client use a closed queue."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    # A target that came back is closed before anything else. The undo of the move back leaves it closed.
    returns = move.ask.operation == FAILBACK
    for view in seen.views(move.target):
        source = seen.view(move.source, view.pair)
        # Open only queues that the fence closes there; a lost site that does not answer is owed its whole fence.
        units = [unit for unit in view.among(move.moves) if source is None or source.flow(unit) is not None]
        calls += opens(view, units, "it was closed when it came back" if returns else None)
        again = "it is closed" if returns else None  # the return has opened them
        calls += in_part("doors", (open_door(view, door, again) for door in view.doors if not door.started))
        inverse += closes(view, units, "it is open") if returns else closes_again(view, units, before(move, view))
    calls += in_part("strikes", receipts.strikes(seen))
    return Draft(move.target, "the queues deliver, their clients are let in", tuple(calls), tuple(inverse))
