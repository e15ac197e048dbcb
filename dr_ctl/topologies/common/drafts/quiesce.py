"""What is decided for `quiesce`: which queues are paused, and which pauses are lifted later. Pure."""

from __future__ import annotations

from collections.abc import Callable

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import of_new_queues, pause, resume
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker, Queue

NEW_QUEUES = 100


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.source):
        calls += _of_each(rules, view, move, pause, Goal.PAUSE)
        was = set(before(move, view)["paused"])
        inverse += [resume(view, queue, "it is paused") for queue in meant(rules, view, move) if queue.name not in was]
    return Draft(
        move.source,
        "dispatch stops; clients finish what they hold",
        tuple(calls),
        tuple(inverse),
        {"within": step.limits.get("within", rules.patience.quiesce_s)},
    )


def meant(rules: Rules, view: Broker, move: Move) -> list[Queue]:
    """Queues that a quiesce is for: those the settings speak of, of the units that are asked for."""
    queues = selected(view, rules.queues).values()
    return [queue for queue in queues if move.ask.includes(view.unit_of(queue.name))]


def to_pause(rules: Rules, view: Broker, move: Move) -> list[Queue]:
    """Those of them that deliver now."""
    return [queue for queue in meant(rules, view, move) if not queue.paused]


def lifts(rules: Rules, view: Broker, move: Move) -> list[Call]:
    """Resume what is paused now and was not before the run."""
    was = set(before(move, view)["paused"])
    return [resume(view, queue) for queue in meant(rules, view, move) if queue.paused and queue.name not in was]


def lifts_planned(rules: Rules, seen: Seen[Broker], move: Move) -> list[Call]:
    """What quiesce will have paused, and what an interrupted run left paused."""
    calls: list[Call] = []
    for view in seen.views(move.source):
        calls += [*_of_each(rules, view, move, resume, Goal.RESUME), *lifts(rules, view, move)]
    return calls


def _of_each(rules: Rules, view: Broker, move: Move, make: Callable[[Broker, Queue], Call], goal: Goal) -> list[Call]:
    """The call for each queue that a quiesce is for, and for those that are created meanwhile."""
    queues = to_pause(rules, view, move) if view.open else []
    calls = [make(view, queue) for queue in queues]
    return [*calls, of_new_queues(view, goal, NEW_QUEUES)] if queues else calls


def while_serving(seen: Seen[Broker], move: Move) -> str:
    """Begins what is said of a wait beside clients; of a run that goes on with nobody served it says nothing."""
    return "still serving: " if seen.roles[move.source] is Role.SERVING else ""
