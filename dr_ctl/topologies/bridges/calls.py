"""The calls that close one queue to its clients and open it again: by their roles, and by its dispatch. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.console.requests import request

CUT: Final = "closeConsumerConnectionsForAddress(java.lang.String)"
NOT_PAUSED: Final = "it is not paused"
PAUSED: Final = "it is paused"


def closes(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Keep the clients' roles out of the addresses first, so that no client that is cut comes back; stop dispatch for
    good; end the connections of consumers. The bridges' role keeps working: a refused bridge stops all of them. Queues
    that a quiesce has paused stay paused."""
    pauses = [
        _dispatch(view, Goal.CLOSE, queue, when or NOT_PAUSED) for unit in units for queue in view.queues_of(unit)
    ]
    return [*view.fence.keeping_out(units, when), *pauses, *(_cut(view, unit) for unit in units)]


def opens(view: BrokerView, units: Sequence[str], when: str | None = None) -> list[Call]:
    """Let the queues deliver, as part `doors`; let the clients' roles in, as part `admit`, which comes last: then each
    unit is closed until it is open whole."""
    queues = [queue for unit in units for queue in view.queues_of(unit)]
    resumes = [_dispatch(view, Goal.OPEN, queue, when) for queue in queues if when is not None or queue.paused]
    return [*in_part("doors", resumes), *in_part("admit", view.fence.letting_in(units, when))]


def closes_again(view: BrokerView, units: Sequence[str], was: Mapping[str, Any]) -> Iterator[Call]:
    """What undoes an opening: each unit as it was before the run."""
    yield from view.fence.keeping_out([unit for unit in units if _of(was, unit)["kept_out"]], "they are let in")
    for unit in units:
        for queue in view.queues_of(unit):
            if queue.name in (*_of(was, unit)["gated"], *was["paused"]):
                yield _dispatch(view, Goal.CLOSE, queue, NOT_PAUSED)
        if _of(was, unit)["kept_out"]:
            yield _cut(view, unit)  # a client that came meanwhile would wait there for ever


def opens_again(view: BrokerView, units: Sequence[str], was: Mapping[str, Any]) -> Iterator[Call]:
    for unit in units:
        for queue in view.queues_of(unit):
            if queue.name not in (*_of(was, unit)["gated"], *was["paused"]):
                yield from in_part("doors", [_dispatch(view, Goal.OPEN, queue, PAUSED)])
    let_in = [unit for unit in units if not _of(was, unit)["kept_out"]]
    yield from in_part("admit", view.fence.letting_in(let_in, "they are kept out"))


def _of(was: Mapping[str, Any], unit: str) -> Mapping[str, Any]:
    """A unit that was not there before the run was closed to nobody."""
    state: Mapping[str, Any] = was["units"].get(unit, {"kept_out": False, "gated": []})
    return state


def _dispatch(view: BrokerView, goal: Goal, queue: Queue, when: str | None) -> Call:
    made, about = (
        (view.requests.resume(queue), f"let {queue.name} deliver")
        if goal is Goal.OPEN
        else (view.requests.pause_lasting(queue), f"let {queue.name} deliver nothing")
    )
    return call(view, goal, queue.name, made, about, when)


def _cut(view: BrokerView, unit: str) -> Call:
    asked = request(beans.server(view.broker), CUT, (unit,))
    return call(view, Goal.CUT, unit, asked, f"end the connections that consume {unit}", "somebody consumes it")
