"""`quarantine`: no live consumer may get what a lost site still holds; and the debts."""

from dr_ctl.core.findings import found
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import close_listener, open_listener
from dr_ctl.topologies.common.debts import document, owe, owe_again, pay
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, snapshot: Snapshot[Broker], move: Move) -> StepPlan:
    """Close the listener that the lost site's link uses."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in snapshot.views(move.target):
        was = before(move, view)
        for listener in view.link.listeners:
            if listener.started:
                calls.append(close_listener(view, listener))
            if was["mirror"].get(listener.name):
                inverse.append(open_listener(view, listener, "it is closed"))
    written, struck = debt(snapshot, move, DebtKind.QUARANTINE)
    about = f"what {move.source} still holds is kept out until it is asked for"
    return StepPlan(move.source, about, (*written, *calls), (*inverse, *struck))


def debt(snapshot: Snapshot[Broker], move: Move, kind: DebtKind) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Write one down about the source, and strike it out again."""
    views = snapshot.views(move.target)
    written = tuple(call for view in views for call in owe(view, kind, move.source, lasting=_outlasts(view)))
    struck = tuple(
        call for view in views if _new(view, kind, move) for call in pay(view, kind, move.source, "it stands there")
    )
    return written, struck


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


def owed_again(view: Broker, about: str, move: Move) -> list[Call]:
    """Write down again what was owed of a site before the run."""
    debts = before(move, view)["debts"]
    return [owe_again(view, kind, about) for kind in DebtKind if document(kind, about, view.site) in debts]


def _outlasts(view: Broker) -> bool:
    """Say whether the closed listener of the link stays closed when the broker is restarted."""
    return bool(view.link.listeners) and not any(listener.opens_at_boot for listener in view.link.listeners)


def _new(view: Broker, kind: DebtKind, move: Move) -> bool:
    return document(kind, move.source, view.site) not in before(move, view)["debts"]


def act(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if (refused := tools.make(step.calls, context, move.target)) is not None:
        return refused
    if open_to := [view.site for view in tools.views(move.target) if not view.link.can_be_shut]:
        return Done.of(found("DR-RETURN-009", source=move.source, site=open_to[0]))
    return Done(f"what {move.source} still holds cannot reach {move.target}")


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    return tools.put_back(step, move.target, context)
