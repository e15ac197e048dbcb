"""Plans `reinstate` and `reconcile`: messages let in, then acknowledgements, then the rest. Pure.

The order is the point. Messages of the lost site come in first, while delivery from staging is held; then its
acknowledgements, which remove messages that were done there. Let in together, acknowledgements overtake their messages,
and the copies are delivered. The plugin starts its deliveries by itself when the other site talks to it: the queues
before them are paused as well, because the plugin leaves such a pause alone.
"""

from typing import Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_FILTERED
from dr_ctl.topologies.artemis.operations import START, STOP
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import call, close_door, open_door, pause, resume
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.view import Bridge, ContinuitySeen, SiteView

REMOVE_ALL: Final = "removeAllMessages()"
NOT_IN: Final = "its messages are not all shipped"


def draft(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    """Hold what is staged at the serving site; remove the commands of the outage; messages in, then acknowledgements;
    deliver again; strike the debts."""
    del step
    calls: list[Call] = []
    inverse: list[Call] = []
    returned = seen.views(move.target)
    for view in seen.views(move.source):
        was = before(move, view)
        # Bridges stop first: messages that a bridge has taken could not be removed from a queue that is only paused.
        calls += in_part("hold", (stop(view, flow.target_bridge) for flow in view.flows))
        calls += in_part("hold", (pause(view, flow.in_mirror) for flow in view.flows))
        calls += _without_commands(view)
        calls += in_part("doors", (open_door(view, door) for door in view.link.doors if not door.started))
        # Closed first: nothing more comes in that would be delivered with what is held.
        kept_out = [door for door in view.link.doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        inverse += _removing(view, move)
        inverse += in_part("deliver", (resume(view, flow.in_mirror, "it is paused") for flow in view.flows))
        again = "deliver again by"
        inverse += in_part("deliver", (start(view, flow.target_bridge, again, "it is stopped") for flow in view.flows))
        inverse += owed_again(view, move.target, move)
    for view in returned:
        calls += in_part("hold acks", (stop(view, flow.acks_bridge, NOT_IN) for flow in view.flows))
        calls += _without_commands(view)
        calls += in_part("doors", (open_door(view, door) for door in view.link.doors if not door.started))
        shipped = [start(view, flow.acks_bridge, "ship by", "it is stopped") for flow in view.flows]
        calls += in_part("ship acks", shipped)
        inverse += shipped
    for view in seen.views(move.source):
        calls += _removing(view, move)
        calls += in_part("deliver", (resume(view, flow.in_mirror) for flow in view.flows))
        calls += in_part("deliver", (start(view, flow.target_bridge, "deliver again by") for flow in view.flows))
    # Each site may have been lost: either may keep commands for the other.
    for view in (*seen.views(move.source), *returned):
        if view.commands is not None and view.commands.out.paused:
            calls += in_part("talk", [resume(view, view.commands.out)])
    return Draft(
        move.target,
        "its messages are let in, then its acknowledgements; only what was never done is delivered",
        calls=(*calls, *in_part("strikes", paid(seen, move))),
        inverse=tuple(inverse),
        limits={"within": rules.within(move)},
    )


def start(view: SiteView, bridge: Bridge, about: str, when: str | None = None) -> Call:
    return call(view, Goal.LINK_UP, bridge.name, request(bridge.bean, START), f"{about} {bridge.name}", when)


def stop(view: SiteView, bridge: Bridge, when: str | None = None) -> Call:
    return call(view, Goal.LINK_DOWN, bridge.name, request(bridge.bean, STOP), f"hold {bridge.name}", when)


def _removing(view: SiteView, move: Move) -> list[Call]:
    """Plan the removals from staging, before anything was compared."""
    when = f"it was acknowledged at {move.target}, or lies at {view.site} twice"
    return [copies.may_remove(view, flow.in_mirror, when) for flow in view.flows]


def _without_commands(view: SiteView) -> list[Call]:
    """Remove the plugin's commands of the outage: obeyed now, they could leave both sites inactive."""
    if view.commands is None or not view.commands.out.depth:
        return []
    out = view.commands.out
    text = f"remove the commands of the outage from {out.name}"
    return in_part("forget", [call(view, Goal.REMOVE, out.name, request(out.bean, REMOVE_ALL), text)])


def reconcile(rules: Rules, step: RunbookStep, seen: ContinuitySeen, move: Move) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del step
    calls: list[Call] = []
    for view in seen.views(move.target):
        when = f"messages lie only at {view.site}: it did them, or they were done at {move.source}"
        name = quarantine_queue(view.site, "…")
        most = len(view.flows)
        server = beans.server(view.broker)
        created, moved = request(server, CREATE_FILTERED, (name,)), request(server, copies.MOVE_ALL, ("…", name))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, most))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move to {name}", when, most))
    about = "what was recovered, what comes twice, what is left over at one side"
    return Draft(move.source, about, tuple(calls), limits={"within": rules.within(move)})
