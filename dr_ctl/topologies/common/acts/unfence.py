"""The act of `unfence`: clients let in again at one site, pauses lifted."""

from collections.abc import Sequence

from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.effects import still
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    opens, admits, rest = step.part("doors"), step.part("admit"), step.part("")
    beside = tools.observer.look_at(move.target, {call.unit for call in (*opens, *admits)})
    if any(view.open for view in beside):
        return Refused(f"{move.target} is open: a second site is never opened")
    if (kept_out := tools.admit(move.source, admits, hand)) is not None:
        return Refused(kept_out)
    tools.change(opens, hand)
    if opens and (why := _why_not_open(tools, move.source, opens, hand)) is not None:
        return Refused(f"{move.source}: {why}")
    tools.change(rest, hand)
    done = Done(f"{move.source} lets clients in, and delivers" if opens or admits else "pauses lifted")
    return still(rest, tools.views_of(rest)) or done


def _why_not_open(tools: Tools[Broker], site: str, opens: Sequence[Call], hand: Hand) -> str | None:
    patience = tools.observer.patience

    if tools.opening_s:
        hand.notice(f"{site} may keep clients waiting for {tools.opening_s:g} s, until all of its peer has come")
    return until(
        hand,
        lambda: tools.doors.why_not_open_again(site, opens),
        holds=lambda why: why is None,
        within_s=patience.opened_s + tools.opening_s,
        poll_s=patience.poll_s,
    ).look
