"""Plans `unfence`: the clients of closed queues let in again at one site. Pure."""

from collections.abc import Iterator, Mapping

from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.bridges.calls import closes_again, opens
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import open_door, pause, resume
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.single import paused_at


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Queues that the other site serves stay closed; pauses of runs are lifted."""
    del rules, step
    calls: list[Call] = []
    inverse: list[Call] = []
    for view in seen.views(move.source):
        peer = seen.view(move.target, view.pair)
        served = peer.units if peer is not None else None
        units = [unit for unit in view.among(move.ask.includes) if served is not None and not served.get(unit)]
        shut = [unit for unit in units if not view.units[unit]]
        calls += opens(view, shut)
        calls += in_part("doors", _doors(view, served or {}) if shut else ())
        inverse += closes_again(view, shut, before(move, view))
    paused = [(view, queue) for view, queue in paused_at(seen, move.source) if queue.name in view.paused]
    calls += receipts.strikes(seen) if calls else []
    return Draft(
        move.source,
        "clients let in again, and what runs have paused lifted",
        (*calls, *(resume(view, queue) for view, queue in paused)),
        (*inverse, *(pause(view, queue, "it is not paused") for view, queue in paused)),
    )


def _doors(view: BrokerView, served: Mapping[str, bool]) -> Iterator[Call]:
    """The doors that a restart has closed, unless one of them would open a queue that the other site serves."""
    loose = [flow.unit for flow in view.flows if not (view.kept_out(flow.unit) or view.gated(flow.unit))]
    if not any(served.get(unit) for unit in loose):
        yield from (open_door(view, door) for door in view.doors if not door.started)
