"""`quarantine`: no live consumer may get what a lost site still holds; and the debts."""

from dr_ctl.core.findings import found
from dr_ctl.engine.debts import DebtKind
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Draft, Hand, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import close_door, open_door
from dr_ctl.topologies.common.debts import document, owe, owe_again, pay
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Close the door that the lost site's link uses."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.target):
        was = before(move, view)
        for door in view.link.doors:
            if door.started:
                calls.append(close_door(view, door))
            if was["mirror"].get(door.name):
                inverse.append(open_door(view, door, "it is closed"))
    written, struck = debt(seen, move, DebtKind.QUARANTINE)
    about = f"what {move.source} still holds is kept out until it is asked for"
    return Draft(move.source, about, (*written, *calls), (*inverse, *struck))


def debt(seen: Seen[Broker], move: Move, kind: DebtKind) -> tuple[tuple[Call, ...], tuple[Call, ...]]:
    """Write one down about the source, and strike it out again."""
    views = seen.views(move.target)
    written = tuple(call for view in views for call in owe(view, kind, move.source, lasting=_outlasts(view)))
    struck = tuple(
        call for view in views if _new(view, kind, move) for call in pay(view, kind, move.source, "it stands there")
    )
    return written, struck


def paid(seen: Seen[Broker], move: Move) -> list[Call]:
    """Strike out, at each of both sites, all that is owed of the other."""
    return [
        call
        for here, about in ((move.source, move.target), (move.target, move.source))
        for view in seen.views(here)
        for kind in DebtKind
        if document(kind, about, view.site) in view.documents
        for call in pay(view, kind, about)
    ]


def owed_again(view: Broker, about: str, move: Move) -> list[Call]:
    """Write down again what was owed of a site before the run."""
    debts = before(move, view)["debts"]
    return [owe_again(view, kind, about) for kind in DebtKind if document(kind, about, view.site) in debts]


def _outlasts(view: Broker) -> bool:
    """Say whether the closed door of the link stays closed when the broker is restarted."""
    return bool(view.link.doors) and not any(door.opens_at_boot for door in view.link.doors)


def _new(view: Broker, kind: DebtKind, move: Move) -> bool:
    return document(kind, move.source, view.site) not in before(move, view)["debts"]


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if (refused := tools.make(step.calls, hand, move.target)) is not None:
        return refused
    if open_to := [view.site for view in tools.views(move.target) if not view.link.can_be_shut]:
        text = f"{open_to[0]} has no acceptor for links alone, so nothing keeps out what {move.source} still holds"
        remedy = (
            f"Keep the brokers of {move.source} down, or without their link, until `dr-ctl reinstate {move.source}`."
        )
        return Done(text, findings=(found("DR-RETURN-009", text, remedy),))
    return Done(f"what {move.source} still holds cannot reach {move.target}")


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return tools.put_back(step, move.target, hand)
