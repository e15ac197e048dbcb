"""Acts of `fence`: clients kept out of a site, and proven to be; for a lost site, the debt written down."""

from collections.abc import Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.topologies.common.baseline import started_since
from dr_ctl.topologies.common.effects import holds, left_of, still
from dr_ctl.topologies.common.tools import ROLES, Tools
from dr_ctl.topologies.common.view import Broker


def act(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    # The end of the quiesce was a look; every moment from here on keeps clients waiting.
    before = [access.names() for access in tools.observer.at(move.source)]
    if not any(view.open for view in before):
        return NotNeeded(f"{move.source} is closed to clients already", {"proof": "flag"})
    outcomes = tools.change([call for call in step.calls if not holds(call, before)], hand)
    # A refused call will not come true by waiting, and clients wait too.
    within_s = 0.0 if any(isinstance(each, Refused) for each in outcomes) else tools.patience.fence_s
    return tools.doors.closed(move.source, hand, within_s)


def by_itself(tools: Tools[Broker], step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
    closes, strikes = step.part(""), step.part("strikes")
    proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
    if not step.cut_off:
        outcomes = tools.change(closes, hand)
        within_s = 0.0 if any(isinstance(each, Refused) for each in outcomes) else tools.patience.fence_s
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
    tools.cut_off = step.cut_off
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
    """Let clients in again at the source, pair by pair: a silent pair is named, and keeps no other one shut. `sent`:
    the run has tried to open the other site."""
    seen = tools.observer.look_once()
    views = seen.views(move.source)
    here = {view.pair for view in views}
    inverse = [call for call in step.inverse if call.site == move.source and call.goal in (*ROLES, Goal.OPEN)]
    left = [call for call in inverse if call.unit in here and not holds(call, views)]
    # Every call that lets clients in looks at the other site first.
    beside = {call.unit: seen.view(move.target, call.unit) for call in left}
    opened = sorted(pair for pair, view in beside.items() if view is not None and view.open)
    unseen = sorted(pair for pair, view in beside.items() if view is None and sent)
    here_now = {view.pair: view for view in views}
    served = sorted(
        pair
        for pair, view in beside.items()
        if view is not None and pair not in opened and sent and _may_have_served(here_now[pair], view, move)
    )
    why = _opened(tools, [call for call in left if call.unit not in (*opened, *unseen, *served)], move, hand)
    if why is not None:
        return Refused(f"{move.source}: {why}")
    if opened:
        text = f"{_named(tools, move.target, opened)} open: what was closed at {move.source} stays closed"
        return Refused(text, code=ExitCode.STRANDED)
    if served:
        text = (
            f"{_named(tools, move.target, served)} closed, and may have served before a new start: what clients did "
            f"there is not known at {move.source}, which stays closed"
        )
        return Refused(text, code=ExitCode.STRANDED)
    if unseen:
        text = f"{_named(tools, move.target, unseen)} silent, and may have been opened: {move.source} stays closed"
        return Unknown(text)
    if away := sorted({call.unit for call in inverse} - here):
        return Refused(f"{_named(tools, move.source, away)} silent: whether clients are let in there is not known")
    return Done(f"{move.source} lets clients in again") if left else NotNeeded(f"{move.source} is open")


def _may_have_served(source: Broker, target: Broker, move: Move) -> bool:
    """Say whether clients may have worked at a target that the run tried to open, and that was started anew since, so
    that its closed doors prove nothing: unless all that they did there has come over."""
    if not started_since(move, target):
        return False
    back = target.link.tells_consumed and source.link.unapplied == 0 and not [*target.link.left_to_ship()]
    return not back


def _opened(tools: Tools[Broker], calls: Sequence[Call], move: Move, hand: Hand) -> str | None:
    """Say why these calls do not let clients in, or None."""
    if (why := tools.admit(move.source, [call for call in calls if call.goal in ROLES], hand)) is not None:
        return why
    doors = [call for call in calls if call.goal is Goal.OPEN]
    tools.change(doors, hand)
    return tools.doors.why_not_open_again(move.source, doors) if doors else None


def _named(tools: Tools[Broker], site: str, pairs: Sequence[str]) -> str:
    """The site where it has one broker, else those that are meant."""
    whole = len(tools.observer.brokers[site]) == 1
    return f"{site} is" if whole else f"{site}: {some(pairs)} {'is' if len(pairs) == 1 else 'are'}"
