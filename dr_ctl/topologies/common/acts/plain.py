"""Two acts that every topology shares: a step that changes nothing, and the undo of a step at the source."""

from dr_ctl.engine.outcome import NotNeeded, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def nothing(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    del tools, move, hand
    return NotNeeded(step.about)


def put_back(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """The undo of a step all of whose inverse is at the source."""
    return tools.put_back(step, move.source, hand)
