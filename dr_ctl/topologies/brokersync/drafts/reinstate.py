"""Plans `reinstate` and `reconcile`: a returned site's messages are compared by id before they come in. Pure."""

from typing import Final

from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.brokersync.calls import may_move, may_remove, restarts
from dr_ctl.topologies.brokersync.view import BrokerView, SyncSeen
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import close_door, open_door
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.rules import Rules

HERE: Final = "the serving site's counters prove that they were consumed there since"


def draft(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    """Move aside what would come twice, by id, while nothing can come in, then let the rest in, and ship the serving
    site's copies. An undo shuts the way again: no client has consumed what came in."""
    del step
    done = [call for view in seen.views(move.target) for call in in_part("done", _aside(view))]
    let_in: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.source):
        done += in_part("done", (may_move(view, view.named[name]) for name in view.copying if name in view.named))
        was = before(move, view)
        let_in += [open_door(view, door) for door in view.link.doors if not door.started]
        kept_out = [door for door in view.link.doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        inverse += owed_again(view, move.target, move)
    for view in seen.views(move.target):
        let_in += [open_door(view, door) for door in view.link.doors if not door.started]
    let_in += restarts([*seen.views(move.source), *seen.views(move.target)])
    about = "what was consumed before the loss is kept aside by id; the rest is let in, and both directions ship"
    calls = (*done, *in_part("let in", let_in), *in_part("strikes", paid(seen, move)))
    return Draft(move.target, about, calls, tuple(inverse), rules.while_moving(move))


def _aside(view: BrokerView) -> list[Call]:
    return [may_move(view, each) for each in view.copying.values()]


def reconcile(rules: Rules, step: RunbookStep, seen: SyncSeen, move: Move) -> Draft:
    """Remove messages that were consumed meanwhile once more, while both directions ship."""
    del rules, step
    views = seen.views(move.target)
    calls = [may_remove(view, view.named[name], HERE) for view in views for name in view.copying if name in view.named]
    return Draft(move.target, "copies of what was consumed meanwhile removed; both sites compared", tuple(calls))
