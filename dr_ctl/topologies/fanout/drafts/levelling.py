"""Plans the verbs that make the waiting site hold the serving site's messages: `catch-up`, `drain`, `trim`, and
`settle` where the serving site is lost. No verb has an undo: removed messages were consumed, copied ones lie at both
sites. Pure."""

from dataclasses import replace
from typing import Final

from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.classic.operations import PAUSES
from dr_ctl.topologies.common.calls import pause, resume
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned, to_pause, while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.fanout.calls import may_copy, may_remove
from dr_ctl.topologies.fanout.view import FanoutSeen

REST: Final = "rest"
GO_ON: Final = "go on"


def catch_up(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    """Remove consumed messages, so that the drain has only those that are consumed in between."""
    about = f"{while_serving(seen, move)}what was consumed at {move.source} is removed at {move.target} by its ids"
    limits = {"within": step.limits.get("within", rules.patience.catch_up_s)}
    return Draft(move.target, about, tuple(may_remove(seen.views(move.target))), limits=limits)


def drain(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    del step
    views = seen.views(move.target)
    about = f"both compared by id: what was consumed is removed at {move.target}, what it lacks is copied there"
    calls = (*lifts_planned(rules, seen, move), *may_remove(views), *may_copy(views))
    return Draft(move.target, f"{about}; pauses lifted beside it", calls, limits={"within": rules.within(move)})


def trim(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    del step
    about = f"what was consumed at {move.target} is removed at {move.source} by its ids"
    rests, go_on = resting(rules, seen, replace(move, source=move.target))
    return Draft(move.source, about, (*rests, *may_remove(seen.views(move.source)), *go_on), go_on)


def resting(rules: Rules, seen: FanoutSeen, move: Move) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Stop dispatch at the serving site while both are compared, and begin it again. Not where a store of ids tells
    what was consumed, or the console refuses pauses."""
    views = [view for view in seen.views(move.source) if view.open and not view.own.stored]
    if any(PAUSES in view.denied for view in views):
        return (), ()
    queues = [(view, queue) for view in views for queue in to_pause(rules, view, move)]
    rests = [pause(view, queue, "clients take messages while both sites are compared") for view, queue in queues]
    go_on = [resume(view, queue, "it is paused") for view, queue in queues]
    return tuple(in_part(REST, rests)), tuple(in_part(GO_ON, go_on))


def settle(rules: Rules, step: RunbookStep, seen: FanoutSeen, move: Move) -> Draft:
    """Before clients are let in: messages that the store of ids knows are removed and listed by id."""
    del rules, step
    about = f"what consumers of {move.source} had done, as their store of ids says, is removed at {move.target}"
    return Draft(move.target, about, tuple(may_remove(seen.views(move.target))))
