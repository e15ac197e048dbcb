"""Plans the waits on bridges, which start a stopped bridge, and the restart by an operator. Pure."""

from collections.abc import Iterable
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis.operations import START, STOP
from dr_ctl.topologies.bridges.view import Bridge, BrokerView, Chosen
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.drafts.quiesce import while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.console.requests import request

STOPPED: Final = "it is stopped"
STOPS_S: Final = 75.0  # a bridge whose link had failed takes no start for a minute after its stop


def starts(views: Iterable[BrokerView], chosen: Chosen) -> list[Call]:
    """Start stopped bridges of the queues that are asked for and of the ids. A bridge that is not connected is left to
    its own retries: after a failed link a stop takes ten seconds, and for a minute no start is taken."""
    return [_start(view, bridge, STOPPED) for view in views for bridge in _bridges(view, chosen)]


def _bridges(view: BrokerView, chosen: Chosen) -> list[Bridge]:
    return [bridge for flow in view.carrying_among(chosen) for bridge in flow.bridges]


def _stop(view: BrokerView, bridge: Bridge) -> Call:
    asked = request(bridge.bean, STOP)
    return call(view, Goal.LINK_DOWN, bridge.name, asked, f"stop bridge {bridge.name}")


def _start(view: BrokerView, bridge: Bridge, when: str | None) -> Call:
    asked = request(bridge.bean, START)
    return call(view, Goal.LINK_UP, bridge.name, asked, f"start bridge {bridge.name}", when)


def catch_up(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    views = seen.views(move.source)
    return Draft(
        move.source,
        f"{while_serving(seen, move)}the bridges connected, the buffers small",
        tuple(starts(views, move.moves)),
        tuple(starts(views, move.moves)),
        {"within": step.limits.get("within", rules.patience.catch_up_s)},
    )


def drain(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del step
    views = seen.views(move.source)
    return Draft(
        move.target,
        "all messages shipped, all processed ids applied",
        tuple(starts(views, move.moves)),
        tuple(starts(views, move.moves)),
        {"within": rules.within(move), "stall": rules.drain.stall},
    )


def restart(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Restart connected bridges too: a bridge that hangs may say that it is connected."""
    del rules, step
    views = seen.views(move.source)
    every = [(view, bridge) for view in views for bridge in _bridges(view, move.ask.includes)]
    return Draft(
        move.source,
        f"stop and start the bridges of {move.source}, until they are connected; clients stay where they are",
        (*(_stop(view, bridge) for view, bridge in every if bridge.started), *(_start(*each, None) for each in every)),
        tuple(starts(views, move.ask.includes)),
        {"within": move.ask.timeout_s or STOPS_S},
    )
