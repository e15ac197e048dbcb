"""Plans `reinstate` and `reconcile`: a returned site is compared by id and evened out. Pure."""

from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.fanout.calls import may_copy, may_remove
from dr_ctl.topologies.fanout.drafts.levelling import resting
from dr_ctl.topologies.fanout.view import FanoutSeen


def draft(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    """Remove messages there that were consumed since, copy messages there that came since, then strike the debts.
    Messages stay copied and removed when it is undone: copies lie at both sites, and the rest was consumed."""
    del step
    rests, go_on = resting(rules, seen, move)
    inverse = [*go_on, *(call for view in seen.views(move.source) for call in owed_again(view, move.target, move))]
    views = seen.views(move.target)
    calls = (*rests, *may_remove(views), *may_copy(views), *go_on, *in_part("strikes", paid(seen, move)))
    about = f"compared by id: what was consumed since is removed at {move.target}, what came since is copied there"
    return Draft(move.target, about, calls, tuple(inverse), rules.while_moving(move))


def reconcile(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    """Compare once more: remove messages that were consumed meanwhile, copy those that came."""
    del rules, step
    views = seen.views(move.target)
    calls = (*may_remove(views), *may_copy(views))
    return Draft(move.target, "what was consumed meanwhile removed; both sites compared", calls)
