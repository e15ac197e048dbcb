"""What is decided for `reinstate`: delivery paused, the residue let in, delivery again, the debts struck. Pure."""

from __future__ import annotations

from dr_ctl.engine.plan import Call, in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common.baseline import before
from dr_ctl.topologies.common.calls import close_door, open_door, pause_lasting, resume
from dr_ctl.topologies.common.drafts.debt import owed_again, paid
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.mirror.operations import start_link
from dr_ctl.topologies.mirror.view import BrokerView, MirrorSeen


def draft(rules: Rules, step: RunbookStep, seen: MirrorSeen, move: Move) -> Draft:
    """Pause the serving site's delivery (lasting: a restart must not let residue meet consumers), let the residue in,
    resume, strike the debts."""
    del step
    held: list[Call] = []
    let_in: list[Call] = []
    inverse: list[Call] = []
    resumed: list[Call] = []
    struck: list[Call] = []
    for view in seen.views(move.source):
        was = before(move, view)
        # All of them, whatever the settings narrow: one that goes on delivering would meet the residue.
        for queue in view.business.values():
            if not queue.paused:
                held.append(pause_lasting(view, queue))
            if queue.name not in was["paused"]:
                resumed.append(resume(view, queue))
                inverse.append(resume(view, queue, "it is paused"))
        let_in += _doors(view)
        kept_out = [door for door in view.mirror_doors if not was["mirror"].get(door.name)]
        inverse += [close_door(view, door, "it is open") for door in kept_out]
        struck += paid(view, move.target)
        inverse += owed_again(view, move.target, move)
    for view in seen.views(move.target):
        # Where both sites were lost in turn, the one that returns still keeps the other out.
        let_in += _doors(view)
        struck += paid(view, move.source)
        if view.link is not None and not view.link.started:
            let_in.append(start_link(view, view.link))
    return Draft(
        move.target,
        "its residue is let in while nothing is delivered; both directions drain",
        calls=(
            *in_part("hold", held),
            *in_part("let in", let_in),
            *in_part("deliver", resumed),
            *in_part("strikes", struck),
        ),
        inverse=tuple(inverse),
        limits={"within": rules.within(move)},
    )


def _doors(view: BrokerView) -> list[Call]:
    """Open the door of the link where it is closed."""
    return [open_door(view, door) for door in view.mirror_doors if not door.started]
