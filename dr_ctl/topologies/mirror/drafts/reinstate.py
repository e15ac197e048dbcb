"""Plans `reinstate` and `reconcile`: residue let in while delivery is paused, leftovers at one side. Pure."""

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import CREATE_QUEUE
from dr_ctl.topologies.artemis.operations import MOVE
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import call, close_door, open_door, pause_lasting, resume
from dr_ctl.topologies.common.drafts.quarantine import owed_again, paid
from dr_ctl.topologies.common.names import quarantine_queue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.drafts.shipping import start_link
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Pause the serving site's delivery (lasting: a restart must not let residue meet consumers), let the residue in,
    resume, strike the debts."""
    del step
    held: list[Call] = []
    let_in: list[Call] = []
    inverse: list[Call] = []
    resumed: list[Call] = []
    for view in seen.views(move.source):
        was = before(move, view)
        paused_before = set(was["paused"])
        # Pause every queue, whatever the settings narrow: a queue that goes on delivering would meet the residue.
        for queue in view.business.values():
            if not queue.paused:
                held.append(pause_lasting(view, queue))
            if queue.name not in paused_before:
                resumed.append(resume(view, queue))
                inverse.append(resume(view, queue, "it is paused"))
        let_in += _doors(view)
        kept_out = [door for door in view.link.doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        inverse += owed_again(view, move.target, move)
    for view in seen.views(move.target):
        # Where both sites were lost in turn, the one that returns still keeps the other out.
        let_in += _doors(view)
        if view.broker_connection is not None and not view.broker_connection.started:
            let_in.append(start_link(view, view.broker_connection))
    return Draft(
        move.target,
        "its residue is let in while nothing is delivered; both directions drain",
        calls=(
            *in_part("hold", held),
            *in_part("let in", let_in),
            *in_part("deliver", resumed),
            *in_part("strikes", paid(seen, move)),
        ),
        inverse=tuple(inverse),
        limits=rules.while_moving(move),
    )


def _doors(view: BrokerView) -> list[Call]:
    """Open the door of the link where it is closed."""
    return [open_door(view, door) for door in view.link.doors if not door.started]


def reconcile(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Compare both sites once all of it has arrived; take out what lies only at the returned one."""
    del rules, step
    calls: list[Call] = []
    for view in seen.views(move.target):
        name = quarantine_queue(view.site, "…")
        when = f"messages lie only at {view.site} for longer than anything explains"
        server, up_to = beans.server(view.broker), parity.ORIGINS_UP_TO
        created, moved = (request(server, operation, (name,)) for operation in (CREATE_QUEUE, MOVE))
        calls.append(call(view, Goal.WRITE, name, created, f"create {name}", when, len(view.business)))
        calls.append(call(view, Goal.MOVE, ALL, moved, f"move each of them to {name}", when, up_to))
    return Draft(move.source, "what was recovered, came twice, is left over at one side", tuple(calls))
