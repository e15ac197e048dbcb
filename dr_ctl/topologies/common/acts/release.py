"""What is done for `release`: clients let in again at one site, pauses lifted."""

from __future__ import annotations

from dr_ctl.core.model import some
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.acts.admit import admit
from dr_ctl.topologies.common.effects import left_of, to_undo
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    opens, admits, rest = step.part("doors"), step.part("admit"), step.part("")
    if (opens or admits) and any(view.open for view in tools.observer.look_at(move.target)):
        return Refused(f"{move.target} is open: a second site is never opened")
    if (kept_out := admit(tools, move.source, admits, hand)) is not None:
        return Refused(kept_out)
    tools.change(opens, hand)
    if opens:
        why = tools.doors.why_not_open_again(move.source, opens)
        if why is not None:
            return Refused(f"{move.source}: {why}")
    tools.change(rest, hand)
    views = [*tools.observer.look_at(move.source), *tools.observer.look_at(move.target)]
    left = left_of(rest, views)
    if left:
        return Refused(f"has not come true: {some(left)}")
    return Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views = tools.observer.look_at(move.source)
    calls = to_undo(step.inverse, views)
    if not calls:
        return NotNeeded("as it was")
    tools.change(calls, hand)
    left = left_of(calls, tools.observer.look_at(move.source))
    return Refused(f"has not come true: {some(left)}") if left else Done("as it was")
