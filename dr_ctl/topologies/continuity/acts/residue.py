"""The act of `residue`: close an open returned site, and count what it still holds for the other."""

from dr_ctl.core.model import Finding, some
from dr_ctl.core.printable import if_known
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.effects import left_of
from dr_ctl.topologies.common.findings import TRAFFIC_WHILE_OPEN
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity.access import Access
from dr_ctl.topologies.continuity.tools import ContinuityTools


def act(tools: ContinuityTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    findings: list[Finding] = []
    if shut := step.calls:
        tools.change(shut, hand)
        if left := left_of(shut, tools.observer.look_at(move.target)):
            return Refused(f"{move.target} could not be fenced: {some(left)}")
        text = f"{move.target} came back open, and was closed: its clients may have worked beside the others'"
        findings.append(TRAFFIC_WHILE_OPEN(text, "Compare what both sites' clients did meanwhile."))
    counted = [_residue(access) for access in tools.observer.at(move.target)]
    known = [each for each in counted if each is not None]
    if len(known) < len(counted):
        return Refused(f"what {move.target} still holds was not read: the continuity plugin has not started")
    residue = Residue.together(known)
    text = f"{residue.messages} message(s) and {residue.acks} acknowledgement(s)"
    hand.notice(
        f"{move.target} still holds {text} for the other site; at most {if_known(residue.duplicates)} come twice"
    )
    return Done(f"{text}; at most {if_known(residue.duplicates)} come twice", residue.figures(), tuple(findings))


def _residue(access: Access) -> Residue | None:
    """Count the messages and acknowledgements that a closed broker holds for its peer, or give None if unread. Ids show
    which messages to ship lie in their queue unacknowledged; the counts are an upper bound where ids cannot be had."""
    view = access.look()
    counted = view.link.residue
    if counted is None:
        return None
    flows = [flow for flow in view.flows if flow.out_mirror.depth and flow.queue in view.business]
    queues = [queue for flow in flows for queue in (flow.out_mirror, view.business[flow.queue])]
    if any(queue.depth > copies.IDS_UP_TO for queue in queues):
        return counted
    ids = copies.ids(access.reader(), queues)
    duplicates = 0
    for to_ship, there in zip(ids[::2], ids[1::2], strict=True):
        if to_ship is None or there is None:
            return counted
        duplicates += len(to_ship & there)
    return Residue(counted.messages, counted.acks, duplicates)
