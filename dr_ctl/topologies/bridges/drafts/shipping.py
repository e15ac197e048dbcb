"""What is decided for the waits on bridges, which restart one that hangs, and for a restart that is asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis.operations import START, STOP, request
from dr_ctl.topologies.bridges.view import Bridge, BrokerView, Chosen
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.drafts.quiesce import while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen

NOT_CONNECTED: Final = "it is not connected although the peer answers"
STOPPED: Final = "it is stopped"
AT_MOST: Final = 3


def restarts(views: Iterable[BrokerView], chosen: Chosen, when: str | None = NOT_CONNECTED) -> list[Call]:
    """Stop and start the bridges of the queues that are asked for, and that of the ids."""
    most = AT_MOST if when is not None else 1
    return [
        make
        for view in views
        for bridge in _bridges(view, chosen)
        for make in (_stop(view, bridge, when, most), _start(view, bridge, when, most))
    ]


def starts(views: Iterable[BrokerView], chosen: Chosen, when: str | None = STOPPED) -> list[Call]:
    """Start those of them that are stopped."""
    return [_start(view, bridge, when) for view in views for bridge in _bridges(view, chosen)]


def _bridges(view: BrokerView, chosen: Chosen) -> list[Bridge]:
    return [bridge for flow in view.carrying_among(chosen) for bridge in flow.bridges]


def _stop(view: BrokerView, bridge: Bridge, when: str | None, most: int) -> Call:
    asked = request(bridge.bean, STOP)
    return call(view, Goal.LINK_DOWN, bridge.name, asked, f"stop bridge {bridge.name}", when, most)


def _start(view: BrokerView, bridge: Bridge, when: str | None, most: int = 1) -> Call:
    asked = request(bridge.bean, START)
    return call(view, Goal.LINK_UP, bridge.name, asked, f"start bridge {bridge.name}", when, most)


def catch_up(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    views = seen.views(move.source)
    return Draft(
        move.source,
        f"{while_serving(seen, move)}the bridges connected, the buffers small",
        tuple(restarts(views, move.moves)),
        tuple(starts(views, move.moves)),
        {"within": step.limits.get("within", rules.patience.catch_up_s)},
    )


def drain(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    del step
    views = seen.views(move.source)
    return Draft(
        move.target,
        "all messages shipped, all processed ids applied",
        tuple(restarts(views, move.moves)),
        tuple(starts(views, move.moves)),
        {"within": rules.within(move), "stall": rules.drain.stall},
    )


def restart(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Also of bridges that are connected: one that hangs may say so."""
    del step
    views = seen.views(move.source)
    return Draft(
        move.source,
        f"stop and start the bridges of {move.source}, until they are connected; clients stay where they are",
        tuple(restarts(views, move.ask.includes, None)),
        tuple(starts(views, move.ask.includes)),
        {"within": move.ask.timeout_s or rules.patience.link_attach_s},
    )
