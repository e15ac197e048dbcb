"""Whether a call's effect is seen: a door open or closed, a queue paused or not, a document there or gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dr_ctl.engine.plan import Call
from dr_ctl.topologies.artemis.operations import (
    KEEPS_OUT,
    LET_IN,
    PAUSE,
    PAUSE_LASTING,
    RELOAD,
    RESUME,
    START,
    STOP,
)
from dr_ctl.topologies.artemis.papers import CREATING, DESTROY_QUEUE, created
from dr_ctl.topologies.artemis.view import Broker


def to_undo(calls: Sequence[Call], views: Sequence[Broker]) -> list[Call]:
    """Those of these calls that undo something: what is not seen to hold, and roles that were kept out. That these are
    kept out in this life of the broker does not say that a restart keeps them out too."""
    return [call for call in calls if call.operation in KEEPS_OUT or not holds(call, views)]


def left_of(calls: Sequence[Call], views: Sequence[Broker]) -> list[str]:
    """What of these calls is not seen to hold, in words."""
    return [call.about for call in calls if not holds(call, views)]


def holds(call: Call, views: Iterable[Broker]) -> bool:
    """Say whether a call's effect was seen at its broker; raises KeyError for a call whose effect has no look here."""
    view = next(each for each in views if (each.site, each.pair) == (call.site, call.pair))
    if (own := view.shows(call)) is not None:
        return own
    if call.operation in (START, STOP):
        door = next((each for each in view.acceptors if each.bean == call.bean), None)
        return door is not None and door.started is (call.operation == START)
    if call.operation in (PAUSE, PAUSE_LASTING, RESUME):
        paused = any(queue.bean == call.bean and queue.paused for queue in view.queues)
        return paused is (call.operation != RESUME)
    if call.operation in (*KEEPS_OUT, LET_IN):
        return view.lets_in(str(call.arguments[0])) is (call.operation == LET_IN)
    if call.operation == RELOAD:
        return not view.shut_out
    if call.operation == DESTROY_QUEUE:
        return str(call.arguments[0]) not in view.documents
    if call.operation in CREATING:
        return created(call.operation, call.arguments) in view.documents
    raise KeyError(call.operation)
