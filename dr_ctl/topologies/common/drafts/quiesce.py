"""Plans `quiesce`: which queues are paused, and which pauses are lifted later. Pure."""

from collections.abc import Mapping, Sequence

from dr_ctl.core.model import Role
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.beginnings import beginnings
from dr_ctl.topologies.common.calls import (
    TOGETHER,
    of_new_queues,
    of_those_left,
    pause,
    queues_of,
    resume,
    together,
)
from dr_ctl.topologies.common.queues import selected
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Broker, Queue

NEW_QUEUES = 100


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.source):
        calls += _planned(rules, view, move, Goal.PAUSE)
        was = set(before(move, view)["paused"])
        mine = [queue for queue in meant(rules, view, move) if queue.name not in was]
        inverse += _calls(rules, view, move, Goal.RESUME, mine, "it is paused")
    return Draft(
        move.source,
        "dispatch stops; clients finish what they hold",
        tuple(calls),
        tuple(inverse),
        {"within": step.limits.get("within", rules.patience.quiesce_s)},
    )


def meant(rules: Rules, view: Broker, move: Move) -> list[Queue]:
    """The queues of the quiesce: named by the settings, and part of the units that are asked for."""
    queues = selected(view, rules.queues).values()
    return [queue for queue in queues if move.ask.includes(view.unit_of(queue.name))]


def to_pause(rules: Rules, view: Broker, move: Move) -> list[Queue]:
    """The queues of the quiesce that deliver now."""
    return [queue for queue in meant(rules, view, move) if not queue.paused]


def pauses(rules: Rules, view: Broker, move: Move) -> list[Call]:
    """Pause them: where the broker can, those whose names begin alike together."""
    return _calls(rules, view, move, Goal.PAUSE, to_pause(rules, view, move))


def to_lift(rules: Rules, view: Broker, move: Move) -> list[Queue]:
    """The queues that are paused now and were not before the run."""
    was = set(before(move, view)["paused"])
    return [queue for queue in meant(rules, view, move) if queue.paused and queue.name not in was]


def lifts(rules: Rules, view: Broker, move: Move) -> list[Call]:
    """Resume it, in the same way."""
    return _calls(rules, view, move, Goal.RESUME, to_lift(rules, view, move))


def lifts_planned(rules: Rules, seen: Seen[Broker], move: Move) -> list[Call]:
    """Lift the pauses that quiesce will have made, and those of an interrupted run."""
    calls: list[Call] = []
    for view in seen.views(move.source):
        calls += [*_planned(rules, view, move, Goal.RESUME), *lifts(rules, view, move)]
    return calls


def _planned(rules: Rules, view: Broker, move: Move, goal: Goal) -> list[Call]:
    """The calls for the queues that a quiesce is for, more calls for queues created meanwhile, and single calls where
    one call for many left queues out."""
    queues = to_pause(rules, view, move) if view.open else []
    if not queues:
        return []
    calls = _calls(rules, view, move, goal, queues)
    alike = sum(len(queues_of(each, view)) for each in calls if each.part == TOGETHER)
    left = [of_those_left(view, goal, alike)] if alike else []
    return [*calls, *left, of_new_queues(view, goal, NEW_QUEUES)]


def _calls(
    rules: Rules, view: Broker, move: Move, goal: Goal, queues: Sequence[Queue], when: str | None = None
) -> list[Call]:
    """Only what was not paused before the run is called together with others: a pause by somebody else stays."""
    alike: Mapping[str, Sequence[str]] = {}
    if view.takes_beginnings:
        was = set(before(move, view)["paused"])
        mine = {queue.name for queue in meant(rules, view, move)} - was
        others = (queue.name for queue in view.queues if queue.name not in mine)
        alike = beginnings((queue.name for queue in queues), others, rules.selects_all)
    found = {name for names in alike.values() for name in names}
    make = pause if goal is Goal.PAUSE else resume
    return [
        *(together(view, goal, beginning, len(names), when) for beginning, names in sorted(alike.items())),
        *(make(view, queue, when) for queue in queues if queue.name not in found),
    ]


def while_serving(seen: Seen[Broker], move: Move) -> str:
    """Begins what is said of a wait beside clients; of a run that goes on with nobody served it says nothing."""
    return "still serving: " if seen.roles[move.source] is Role.SERVING else ""
