"""Plans `activate`:"""

from dr_ctl.core.model import Role
from dr_ctl.engine.operations import ACTIVATE, FAILBACK, FAILOVER
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import resume
from dr_ctl.topologies.common.drafts.proving import shown_open
from dr_ctl.topologies.common.drafts.quiesce import to_lift
from dr_ctl.topologies.common.failover import came_back_open
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.single import paused_at
from dr_ctl.topologies.common.view import Broker, Peer


def peer_of(operation: str) -> Peer:
    """Say how the other site stands when an operation opens its target. A single step has no gate of its own."""
    return {FAILOVER: Peer.AWAY, ACTIVATE: Peer.CLOSED}.get(operation, Peer.DRAINED)


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del step
    # A target that came back open is closed before anything else. The undo of the move back leaves it closed.
    returns = move.ask.operation == FAILBACK
    closed_first = returns and came_back_open(seen, move)
    kept_out = "they were kept out when it came back" if closed_first else None
    peer = peer_of(move.ask.operation)
    calls, inverse = list[Call](), list[Call]()
    for view in seen.views(move.target):
        was = before(move, view)
        calls += in_part("admit", view.fence.admitting(kept_out))
        closed = (door for door in view.doors if closed_first or not door.started)
        calls += in_part("doors", view.fence.opening(closed, peer))
        shut = [door for door in view.doors if returns or not was["doors"].get(door.name)]
        inverse += view.fence.closing(shut, "it is open")
        inverse += view.fence.shutting_out("they are let in") if returns or was["shut_out"] else []
    if seen.roles[move.target] is Role.SERVING and move.ask.operation != FAILOVER:
        # A resumed run that had passed the gate: only the pauses of quiesce are left.
        calls += [resume(view, queue) for view in seen.views(move.source) for queue in to_lift(rules, view, move)]
    # Queues that runs have left paused there would deliver nothing.
    calls += [resume(view, queue) for view, queue in paused_at(seen, move.target)]
    calls += in_part("strikes", receipts.strikes(seen))
    return Draft(move.target, f"the doors open, {shown_open(seen, move)}", tuple(calls), tuple(inverse))
