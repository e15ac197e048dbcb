"""Plans `unfence`: clients let in again, and pauses of runs lifted. Pure."""

from dr_ctl.core.model import Role
from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import pause, resume
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.single import paused_at
from dr_ctl.topologies.common.view import Broker, Peer


def draft(rules: Rules, step: RunbookStep, seen: Seen[Broker], move: Move) -> Draft:
    """Open the doors again, unless the other site serves, then lift the pauses of runs. The undo closes and pauses as
    it was before."""
    del rules, step
    views = seen.views(move.source)
    opens = seen.roles[move.target] is not Role.SERVING
    # A pair whose other broker is silent is left as it is.
    views = [view for view in views if view.open or seen.view(move.target, view.pair) is not None]
    shut = [(view, [door for door in view.doors if opens and not door.started]) for view in views]
    paused = paused_at(seen, move.source)
    kept_out = [view for view in views if opens and view.fence.shut_out]
    calls = [
        *in_part("admit", (call for view in kept_out for call in view.fence.admitting())),
        *in_part("doors", (call for view, doors in shut for call in view.fence.opening(doors, Peer.CLOSED))),
        *(receipts.strikes(seen) if opens else ()),
    ]
    inverse = [call for view, doors in shut for call in view.fence.closing(doors, "it is open")]
    inverse += [call for view in kept_out for call in view.fence.shutting_out("they are let in")]
    return Draft(
        move.source,
        "clients let in again, and what runs have paused lifted",
        (*calls, *(resume(view, queue) for view, queue in paused)),
        (*inverse, *(pause(view, queue, "it is not paused") for view, queue in paused)),
    )
