"""`quarantine`: no live consumer may get what a lost site still holds; and the debts."""

from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import debts, way_in
from dr_ctl.topologies.common.calls import close_listener
from dr_ctl.topologies.common.debts import document, owe, pay
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """Close the listener that the lost site's link uses."""
    del rules, step
    ways_in = [(view, each) for view in snapshot.views(move.target) for each in view.link.listeners if each.started]
    about = f"what {move.source} still holds is kept out until it is asked for"
    calls = (*debt(snapshot, move, DebtKind.QUARANTINE), *(close_listener(*each) for each in ways_in))
    return StepPlan(move.source, about, calls)


UNDO: Final = Undo(target=(way_in, debts))


def debt(snapshot: Snapshot[Broker], move: Move, kind: DebtKind) -> tuple[Call, ...]:
    """Write one down about the source."""
    views = snapshot.views(move.target)
    return tuple(call for view in views for call in owe(view, kind, move.source, lasting=_outlasts(view)))


def paid(snapshot: Snapshot[Broker], move: Move) -> list[Call]:
    """Strike out, at each of both sites, all that is owed of the other."""
    return [
        call
        for here, about in ((move.source, move.target), (move.target, move.source))
        for view in snapshot.views(here)
        for kind in DebtKind
        if document(kind, about, view.site) in view.documents
        for call in pay(view, kind, about)
    ]


def _outlasts(view: Broker) -> bool:
    """Say whether the closed listener of the link stays closed when the broker is restarted."""
    return bool(view.link.listeners) and not any(listener.opens_at_boot for listener in view.link.listeners)


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if (refused := tools.make(step.calls, context, move.target)) is not None:
        return refused
    if open_to := [view.site for view in tools.views(move.target) if not view.link.can_be_shut]:
        return Done.of(found("DR-RETURN-009", source=move.source, site=open_to[0]))
    return Done(f"what {move.source} still holds cannot reach {move.target}")
