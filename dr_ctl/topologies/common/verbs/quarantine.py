"""`quarantine`: no live consumer may get what a lost site still holds; and the debts."""

from typing import Any

from dr_ctl.core.findings import found
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call, Goal, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, StepContext
from dr_ctl.topologies.common.calls import close_listener
from dr_ctl.topologies.common.recipe import Row, Undo
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.wants import (
    SOURCE,
    TARGET,
    AtBroker,
    Want,
    debt_recorded,
    debts_as_before,
    link_access_as_before,
    planning,
)


def shut(at: AtBroker) -> list[Call]:
    """The listener that the lost site's link uses is closed, and rights keep the link out where they can: a restart
    opens the listener again, and so does another node that takes over."""
    closed = (close_listener(at.view, listener) for listener in at.view.link.listeners)
    return at.missing([*closed, *at.view.link.barring(Goal.SHUT_OUT)])


def row(*more: Want, about: str = "", undo: tuple[Want, ...] = ()) -> Row[Any, Any]:
    """What else keeps out what the lost site holds, and undoes it, is the topology's own."""
    wants = tuple((want, TARGET) for want in (debt_recorded(DebtKind.QUARANTINE), shut, *more))
    about = f"what {{source}} still holds is kept out until it is asked for{about}"

    def act(tools: Tools[Any], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
        if not step.calls:
            return NotNeeded(step.about)
        refused, views = tools.reach(wants, move, context), tools.views(move.target)
        # Without the rights it ends with a restart, as the debt says; while it holds, nothing else is missing of it.
        if refused is not None and any(call.goal is not Goal.SHUT_OUT for call in tools.missing(wants, move)[0]):
            return refused
        if open_to := [view.site for view in views if not view.link.can_be_shut]:
            return Done.of(found("DR-RETURN-009", source=move.source, site=open_to[0]))
        return Done(f"what {move.source} still holds cannot reach {move.target}")

    return Row(planning(SOURCE, about, *wants), act, Undo(target=(*undo, link_access_as_before, debts_as_before)))
