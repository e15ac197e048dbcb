"""Plans `fence` and `residue`: the clients of the queues that move are kept out of a site. Pure."""

from dr_ctl.core.model import Role
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.topologies.bridges.calls import closes, opens_again
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.debts import document, owe_again, pay
from dr_ctl.topologies.common.drafts.quarantine import debt
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del rules, step
    return _closing(seen, move, move.moves)


def _closing(seen: Seen[BrokerView], move: Move, chosen: Chosen) -> Draft:
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.source):
        units = view.among(chosen)
        calls += closes(view, units)
        inverse += opens_again(view, units, before(move, view))
    return Draft(move.source, "the clients of each queue are kept out, restarts included", tuple(calls), tuple(inverse))


def by_itself(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Close queues too that the other site serves, where nothing kept clients out. Strike the debt once the fence is
    proven for every queue of it."""
    del rules
    made, cut_off = _closing(seen, move, move.ask.includes), bool(step.words.get(CUT_OFF))
    paid = cut_off or all(
        move.ask.includes(unit) or view.kept_out(unit)
        for view in seen.views(move.source)
        for unit in view.fence.matches
    )
    owed = [view for view in seen.views(move.target) if paid and _owes(view, move.source)]
    struck = in_part("strikes", (call for view in owed for call in pay(view, DebtKind.FENCE, move.source)))
    again = [owe_again(view, DebtKind.FENCE, move.source) for view in owed]
    return Draft(move.source, made.about, (*made.calls, *struck), (*made.inverse, *again), cut_off=cut_off)


def _owes(view: BrokerView, site: str) -> bool:
    return document(DebtKind.FENCE, site, view.site) in view.documents


def of_lost(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """A site that is away cannot be fenced: the fence is owed, unless a hook has cut the site off before."""
    role = part_of(seen, move.ask).roles[move.source]
    if role is Role.SERVING:
        return draft(rules, step, seen, move)
    if role is Role.STANDBY:
        return Draft(move.source, "its queues are closed already")
    if step.words.get(CUT_OFF):
        return Draft(move.source, "clients kept out by the hook before it")
    calls, inverse = debt(seen, move, DebtKind.FENCE)
    return Draft(move.source, "clients cannot be shown to be kept out: the fence is owed", calls, inverse)


def of_returned(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Close the returned site's queues one by one, even behind closed doors: the doors open before the return ends, so
    that the ids are applied. A queue that nobody asked for and the serving site keeps closed stays as it is."""
    del rules, step
    calls: list[Call] = []
    for view in seen.views(move.target):
        serving = seen.view(move.source, view.pair)
        units = [
            unit for unit in view.fence.matches if serving is None or serving.units.get(unit) or move.ask.includes(unit)
        ]
        calls += closes(view, units)
    return Draft(move.target, "what it still holds is counted; its queues are closed first", tuple(calls))
