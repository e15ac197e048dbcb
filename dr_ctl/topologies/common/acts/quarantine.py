"""What is done for `quarantine`: a lost site's residue kept out of the target."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.effects import holds, left_of
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    return made(tools, step.calls, move, hand) or Done(f"what {move.source} still holds cannot reach {move.target}")


def made(tools: Tools[Broker], calls: Sequence[Call], move: Move, hand: Hand) -> Refused | None:
    """Make those calls whose effect does not hold, and look whether it does; None when all of it holds."""
    views = tools.observer.look_at(move.target)
    tools.change([call for call in calls if not holds(call, views)], hand)
    views = tools.observer.look_at(move.target)
    left = left_of(calls, views)
    return Refused(f"has not come true: {some(left)}") if left else None


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views = tools.observer.look_at(move.target)
    if not left_of(step.inverse, views):
        return NotNeeded("as it was")
    return made(tools, step.inverse, move, hand) or Done("as it was")
