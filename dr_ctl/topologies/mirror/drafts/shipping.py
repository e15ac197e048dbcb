"""Plans the waits on links, which restart a hanging link, and the restart that an operator asks for. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from dr_ctl.core.model import Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.common.drafts.quiesce import lifts_planned, while_serving
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.mirror.view import BrokerView, Link, MirrorSeen

STOP_LINK: Final = "stopBrokerConnection(java.lang.String)"
START_LINK: Final = "startBrokerConnection(java.lang.String)"
NOT_ATTACHED: Final = "the link is not attached, or ships nothing, although the peer answers"
LINK_RESTARTS: Final = 3


def stop_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, Goal.LINK_DOWN, link.name, _asked(view, STOP_LINK, link), f"stop link {link.name}", when, at_most)


def start_link(view: BrokerView, link: Link, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, Goal.LINK_UP, link.name, _asked(view, START_LINK, link), f"start link {link.name}", when, at_most)


def _asked(view: BrokerView, operation: str, link: Link) -> Mapping[str, Json]:
    return request(beans.server(view.broker), operation, (link.name,))


def restarts(views: Sequence[BrokerView]) -> list[Call]:
    """Stop and start links: a hung handshake is otherwise waited out, which takes a minute."""
    return [
        make(view, view.broker_connection, NOT_ATTACHED, LINK_RESTARTS)
        for view in views
        if view.broker_connection is not None
        for make in (stop_link, start_link)
    ]


def starts(views: Sequence[BrokerView]) -> list[Call]:
    """Start those again that were started."""
    links = [(view, view.broker_connection) for view in views if view.broker_connection is not None]
    return [start_link(view, link, "it is stopped") for view, link in links if link.started]


def catch_up(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    views = [*seen.views(move.source), *seen.views(move.target)]
    return Draft(
        move.source,
        f"{while_serving(seen, move)}both links attached, the outflow small",
        calls=tuple(restarts(views)),
        inverse=tuple(starts(views)),
        limits={"within": step.limits.get("within", rules.patience.catch_up_s)},
    )


def drain(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    del step
    views = [*seen.views(move.source), *seen.views(move.target)]
    return Draft(
        move.target,
        "everything shipped and applied, in both directions; pauses lifted beside it",
        calls=(*lifts_planned(rules, seen, move), *restarts(views)),
        inverse=tuple(starts(views)),
        limits={"within": rules.within(move), "stall": rules.drain.stall},
    )


def restart(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Restart an attached link too: a link that hangs may say that it is attached."""
    del step
    links = [(view, view.broker_connection) for view in seen.views(move.source) if view.broker_connection is not None]
    stops = [stop_link(view, link) for view, link in links if link.started]
    return Draft(
        move.source,
        f"stop and start the link of {move.source}, until it is attached; clients stay where they are",
        calls=(*stops, *(start_link(view, link) for view, link in links)),
        inverse=tuple(starts([view for view, _ in links])),
        limits={"within": move.ask.timeout_s or rules.patience.link_attach_s},
    )
