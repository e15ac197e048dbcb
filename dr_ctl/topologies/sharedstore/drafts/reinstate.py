"""Plans `reinstate`: a broker that came back waits for the store. Pure."""

from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.sharedstore.view import BrokerView


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Strike the debts only: the returned broker waits by itself."""
    del rules, step
    inverse = [call for view in seen.views(move.source) for call in owed_again(view, move.target, move)]
    about = f"{move.target} waits for the store; what was owed is struck out"
    return Draft(move.target, about, tuple(paid(seen, move)), tuple(inverse))
