"""The act of `quarantine`: a lost site's residue kept out of the target."""

from __future__ import annotations

from dr_ctl.engine.outcome import Done, NotNeeded, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    done = Done(f"what {move.source} still holds cannot reach {move.target}")
    return tools.make(step.calls, hand, move.target) or done


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return tools.put_back(step, move.target, hand)
