"""Plans `fence`: clients out of a site, by doors and roles; for a lost site, a debt. Pure."""

from collections.abc import Iterable, Sequence

from dr_ctl.core.model import Role
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.debts import document, owe_again, pay
from dr_ctl.topologies.common.drafts.quarantine import debt
from dr_ctl.topologies.common.failover import came_back_open
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker, Peer


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    del rules, step
    views = seen.views(move.source)
    return Draft(move.source, _clients_out(views), tuple(shut(views)), tuple(_opened(views, move)))


def _clients_out(views: Sequence[Broker]) -> str:
    """How the fence is shown; a greeting that is refused proves it, where one can be tried."""
    if any(view.greets for view in views):
        return "clients out, proven"
    return "clients out, shown by the doors' flags only: the settings name no `stomp:`"


def by_itself(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Close the doors; strike out that the fence is owed, once it is proven."""
    del rules
    owed = [
        view for view in seen.views(move.target) if document(DebtKind.FENCE, move.source, view.site) in view.documents
    ]
    views = seen.views(move.source)
    struck = in_part("strikes", (call for view in owed for call in pay(view, DebtKind.FENCE, move.source)))
    again = [owe_again(view, DebtKind.FENCE, move.source) for view in owed]
    return Draft(
        move.source,
        _clients_out(views),
        (*shut(views), *struck),
        (*_opened(views, move), *again),
        cut_off=bool(step.words.get(CUT_OFF)),
    )


def of_lost(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """A site that is away cannot be fenced at its doors: the brokers that go on note the fence as owed, unless a hook
    has cut the site off before. A lost site that serves again is closed."""
    if seen.roles[move.source] is Role.SERVING:
        return draft(rules, step, seen, move)
    if seen.roles[move.source] is Role.STANDBY:
        return Draft(move.source, "its doors are closed already")
    if step.words.get(CUT_OFF):
        return Draft(move.source, "clients kept out by the hook before it")
    calls, inverse = debt(seen, move, DebtKind.FENCE)
    return Draft(move.source, "clients cannot be shown to be kept out: the fence is owed", calls, inverse)


def of_returned(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Count what the returned site still holds for the other; an open one is closed first."""
    del rules, step
    views = seen.views(move.target) if came_back_open(seen, move) else []
    about = "what it still holds is counted; if it is open, it is closed first"
    return Draft(move.target, about, tuple(shut(views)))


def shut(views: Iterable[Broker]) -> list[Call]:
    """Close every door that is open and keep the clients' roles out."""
    calls: list[Call] = []
    for view in views:
        calls += view.fence.closing(door for door in view.doors if door.started)
        calls += view.fence.shutting_out()
    return calls


def _opened(views: Iterable[Broker], move: Move) -> list[Call]:
    """Put back what a fence changes, as it was before the run."""
    calls: list[Call] = []
    for view in views:
        was = before(move, view)
        calls += [] if was["shut_out"] else view.fence.admitting("they are kept out")
        opened = (door for door in view.doors if was["doors"].get(door.name))
        calls += view.fence.opening(opened, Peer.NOT_DRAINED, "it is closed")
    return calls
