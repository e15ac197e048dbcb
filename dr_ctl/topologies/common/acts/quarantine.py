"""The act of `quarantine`: a lost site's residue kept out of the target."""

from dr_ctl.engine.outcome import Done, NotNeeded, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.findings import NOT_KEPT_OUT
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if (refused := tools.make(step.calls, hand, move.target)) is not None:
        return refused
    if open_to := [view.site for view in tools.views(move.target) if not view.link.can_be_shut]:
        text = f"{open_to[0]} has no acceptor for links alone, so nothing keeps out what {move.source} still holds"
        remedy = (
            f"Keep the brokers of {move.source} down, or without their link, until `dr-ctl reinstate {move.source}`."
        )
        return Done(text, findings=(NOT_KEPT_OUT(text, remedy),))
    return Done(f"what {move.source} still holds cannot reach {move.target}")


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return tools.put_back(step, move.target, hand)
