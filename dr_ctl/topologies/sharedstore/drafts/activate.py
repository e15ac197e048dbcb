"""Plans `activate`: the holder gives up the store, and the target takes it. Pure."""

from typing import Final

from dr_ctl.engine.operations import FAILOVER
from dr_ctl.engine.plan import in_part
from dr_ctl.engine.ports import Draft, Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.sharedstore.calls import hand_over, start
from dr_ctl.topologies.sharedstore.view import BrokerView

HANDOVER: Final = "handover"
BESIDE: Final = "beside"
RESCUE: Final = "rescue"
ENDED: Final = "it has ended"


def draft(rules: Rules, step: RunbookStep, seen: Seen[BrokerView], move: Move) -> Draft:
    """Plan no undo, because a stop cannot be taken back. A lost site gets no call: the target takes the store once the
    lock lets it."""
    del step
    here, there = seen.views(move.source), seen.views(move.target)
    fails_over = move.ask.operation == FAILOVER
    gives_up = [] if fails_over else [hand_over(view, move.target) for view in here if view.answered]
    waits_again = [] if fails_over else [call for view in here for call in start(view, ENDED)]
    rescues = [] if fails_over else [call for view in there for call in start(view, ENDED)]
    takes_s = max((view.takes_s for view in (*here, *there)), default=0.0)
    about = "the target takes the store" if fails_over else f"{move.source} gives up the store, the target takes it"
    proven = "the lock and a client's greeting" if any(view.greets for view in there) else "the lock"
    return Draft(
        move.target,
        f"{about}; proven by {proven}",
        (
            *in_part(HANDOVER, gives_up),
            *in_part("strikes", receipts.strikes(seen)),
            *in_part(BESIDE, waits_again),
            *in_part(RESCUE, rescues),
        ),
        limits={"within": takes_s + rules.patience.activate_s},
    )
