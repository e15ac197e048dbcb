"""The first act of `residue` where clients may be at work at a returned site: close it, and report that."""

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.outcome import Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.effects import holds, left_of
from dr_ctl.topologies.common.findings import TRAFFIC_WHILE_OPEN
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def closed_first(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> list[Finding] | Refused:
    """Close what is open of the returned site, and look whether it is closed; a finding where anything was open.

    Raises `BrokerError`.
    """
    views = tools.views(move.target)
    shut = [call for call in step.calls if not holds(call, views)]
    if not shut:
        return []
    tools.change(shut, hand)
    if left := left_of(shut, tools.views(move.target)):
        return Refused(f"{move.target} could not be fenced: {some(left)}")
    text = f"{move.target} came back open: its clients may have worked beside those of {move.source}"
    return [TRAFFIC_WHILE_OPEN(text, "Compare what they did.")]
