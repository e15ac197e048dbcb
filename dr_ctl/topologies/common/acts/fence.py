"""What is done for `fence`: clients out of a site, proven; of a lost one, the debt written down."""

from __future__ import annotations

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.effects import holds, left_of, still
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    # The end of the quiesce was a look; every moment from here on keeps clients waiting.
    before = [access.names() for access in tools.observer.at(move.source)]
    if not any(view.open for view in before):
        return NotNeeded(f"{move.source} is closed to clients already", {"proof": "flag"})
    told = tools.change([call for call in step.calls if not holds(call, before)], hand)
    # What was refused will not come true by waiting, and clients wait too.
    within_s = 0.0 if any(isinstance(each, Refused) for each in told) else tools.patience.fence_s
    return tools.doors.closed(move.source, hand, within_s)


def by_itself(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
    closes, strikes = step.part(""), step.part("strikes")
    proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
    if not step.cut_off:
        told = tools.change(closes, hand)
        within_s = 0.0 if any(isinstance(each, Refused) for each in told) else tools.patience.fence_s
        proof = tools.doors.closed(move.source, hand, within_s)
    elif _answers(tools, move.source):
        return Refused(f"{move.source} answers again: a hook was to keep clients out of a site that does not")
    if not isinstance(proof, Done) or not strikes:
        return proof
    tools.change(strikes, hand)
    return still(strikes, tools.views(move.target)) or proof


def _answers(tools: Tools[Broker], site: str) -> bool:
    try:
        tools.observer.look_at(site)
    except BrokerError:
        return False
    return True


def owe(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if any(call.site == move.source for call in step.calls):
        return act(tools, step, move, hand)
    done = Done(f"{move.source} cannot be fenced now: the fence is owed")
    return tools.make(step.calls, hand, move.target) or done


def undo(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return _open_again(tools, step, move, hand, sent=tools.opened or move.sent)


def undo_by_itself(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    owed = [call for call in step.inverse if call.site == move.target]
    tools.change([call for call in owed if left_of([call], tools.observer.look_at(move.target))], hand)
    return _open_again(tools, step, move, hand, sent=False)


def _open_again(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand, *, sent: bool) -> Outcome:
    """Let clients in again at the source. `sent`: the run has tried to open the other site."""
    views = tools.observer.look_at(move.source)
    admits = [call for call in step.inverse if call.goal is Goal.ADMIT]
    calls = [call for call in step.inverse if call.goal is Goal.OPEN and not holds(call, views)]
    if not calls and all(holds(call, views) for call in admits):
        return NotNeeded(f"{move.source} is open")
    # Every call that lets clients in looks at the other site first.
    try:
        if any(view.open for view in tools.observer.look_at(move.target)):
            return Refused(f"{move.target} is open: {move.source} stays closed", code=ExitCode.STRANDED)
    except BrokerError as error:
        if sent:
            return Unknown(f"{move.target} does not answer, and it may have been opened: {error}")
    why = tools.admit(move.source, admits, hand)
    if why is None:
        tools.change(calls, hand)
        why = tools.doors.why_not_open_again(move.source, calls)
    return Refused(f"{move.source}: {why}") if why is not None else Done(f"{move.source} lets clients in again")
