"""Plans the waits before a move: the target's process waits, and a replica of the store follows. Pure."""

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quiesce import while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.sharedstore.view import BrokerView
from dr_ctl.topologies.topology import keeps_one_store

NOTHING = "nothing to ship: both sites use one store"


def catch_up(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    if keeps_one_store(seen):
        return Draft(move.source, NOTHING)
    limits = {"within": step.limits.get("within", rules.patience.catch_up_s)}
    return Draft(move.source, f"{while_serving(seen, move)}the replica of the store not far behind", limits=limits)


def drain(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del step
    if keeps_one_store(seen):
        return Draft(move.target, NOTHING)
    limits = {"within": rules.within(move), "stall": rules.drain.stall}
    return Draft(move.target, "the replica of the store has all of it", limits=limits)
