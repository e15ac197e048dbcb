"""Plans `reinstate` and `reconcile`: a returned source becomes the replica, compared by id. Pure."""

from __future__ import annotations

from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.replica.calls import gives_way, may_set_aside
from dr_ctl.topologies.replica.view import BrokerView

GIVES_WAY = "gives way"
STRIKES = "strikes"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """The undo leaves the target the replica: a second source would open its doors."""
    del step
    parts = [gives_way(view) for view in seen.views(move.target) if not view.is_replica]
    inverse = [call for view in seen.views(move.source) for call in owed_again(view, move.target, move)]
    about = f"{move.target} becomes the replica of {move.source}, and fetches what happened since"
    calls = (*in_part(GIVES_WAY, parts), *in_part(STRIKES, paid(seen, move)))
    return Draft(move.target, about, calls, tuple(inverse), rules.while_moving(move))


def reconcile(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Once the replica has done all that the source did, what only one of the two has is from before the loss."""
    del rules, step
    calls = [may_set_aside(view, queue) for view in seen.views(move.target) for queue in view.business.values()]
    return Draft(move.target, f"what only {move.target} has is set aside there; both compared", tuple(calls))
