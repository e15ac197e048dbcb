"""The act of `residue`: close an open returned site, and count what it still holds for the other."""

from dataclasses import replace

from dr_ctl.core.model import Finding, some
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.effects import holds, left_of
from dr_ctl.topologies.common.findings import TRAFFIC_WHILE_OPEN
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.mirror.origins import residue
from dr_ctl.topologies.mirror.tools import MirrorTools


def act(tools: MirrorTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    findings: list[Finding] = []
    views = tools.observer.look_at(move.target)
    if shut := [call for call in step.calls if not holds(call, views)]:
        tools.change(shut, hand)
        views = tools.observer.look_at(move.target)
        if left := left_of(shut, views):
            return Refused(f"{move.target} could not be fenced: {some(left)}")
        done = [
            f"{queue.name}: {queue.added} added, {queue.acked} acknowledged"
            for view in views
            for queue in view.business.values()
            if queue.added or queue.acked
        ]
        changes = some(done) or "nothing came or went"
        text = f"{move.target} came back open; since its start, by its clients and by the mirror: {changes}"
        remedy = "Its clients may have worked beside those of the other site: compare what they did."
        findings.append(TRAFFIC_WHILE_OPEN(text, remedy))
    for access in tools.observer.at(move.target):
        counted = residue(access.reader(), access.look())
        # Where its clients were let in, what it wrote since its start may be their work.
        tools.residue[access.pair] = replace(counted, since={}) if shut else counted
    total = Residue.together(tools.residue.values())
    since = sum(len(ids) for each in tools.residue.values() for ids in each.since.values())
    text = f"{total.messages} message(s) and {total.acks} acknowledgement(s)"
    text += f", {since} of these written since it is back" if since else ""
    hand.notice(f"{move.target} still holds for the other site: {text}")
    return Done(text, total.figures(), tuple(findings))
