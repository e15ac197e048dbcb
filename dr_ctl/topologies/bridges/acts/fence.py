"""Acts of `fence` and `residue`: clients of the queues that move kept out, proven, and let in again."""

from collections.abc import Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView, Chosen
from dr_ctl.topologies.common.effects import holds, left_of, still
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.tools import ROLES


def act(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    return _closed(tools, move.source, step.part(""), move.moves, hand)


def _closed(tools: BridgesTools, site: str, calls: Sequence[Call], chosen: Chosen, hand: Hand) -> Outcome:
    views = tools.observer.look_at(site)
    if not (missing := [call for call in calls if not holds(call, views)]):
        return NotNeeded(f"{site} is closed to clients already", {"proof": "flag"})
    refused = any(isinstance(outcome, Refused) for outcome in tools.change(missing, hand))

    def cut(views: Sequence[BrokerView]) -> None:
        """Cut the clients that came between the look and the roles."""
        tools.change([call for call in calls if call.goal is Goal.CUT and not holds(call, views)], hand)

    waited = until(
        hand,
        lambda: tools.observer.look_at(site),
        holds=lambda views: not _still_in(views, chosen),
        # A call that was refused will not come true by waiting, and clients wait too.
        within_s=0.0 if refused else tools.patience.fence_s,
        poll_s=tools.patience.poll_s,
        meanwhile=cut,
    )
    if not waited.held:
        return Refused(f"{site}: {some(_still_in(waited.look, chosen))}")
    return Done(
        "no client's role may send or consume, nothing is in delivery", {"proof": "flag", "roles_kept_out": True}
    )


def _still_in(views: Sequence[BrokerView], chosen: Chosen) -> list[str]:
    found = []
    for view in views:
        units = view.among(chosen)
        found += [f"clients are not kept out of {unit}" for unit in units if not view.kept_out(unit)]
        queues = [queue for unit in units for queue in view.queues_of(unit)]
        found += [f"{queue.name} delivers still" for queue in queues if not queue.paused]
        found += [f"{queue.name} has {queue.consumers} consumer(s)" for queue in queues if queue.consumers]
        found += [f"{queue.delivering} of {queue.name} in delivery" for queue in queues if queue.delivering]
    return found


def by_itself(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close what is open and prove it; a site that does not answer was cut off by the hook before this step."""
    strikes = step.part("strikes")
    proof: Outcome = Done(f"a hook keeps clients out of {move.source}", {"proof": "hook"})
    if not step.cut_off:
        proof = _closed(tools, move.source, step.part(""), move.ask.includes, hand)
    if isinstance(proof, Refused | Unknown) or not strikes:
        return proof
    tools.change(strikes, hand)
    return still(strikes, tools.views(move.target)) or proof


def owe(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    if not step.calls:
        return NotNeeded(step.about)
    if any(call.site == move.source for call in step.calls):
        return act(tools, step, move, hand)
    return tools.make(step.calls, hand, move.target) or Done(f"{move.source} cannot be fenced now: the fence is owed")


def undo_by_itself(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    owed = [call for call in step.inverse if call.site == move.target]
    tools.change([call for call in owed if left_of([call], tools.observer.look_at(move.target))], hand)
    return undo(tools, step, move, hand)


def undo(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Let the clients of each queue in again, where the other site is seen to have it closed."""
    inverse = [call for call in step.inverse if call.site == move.source]
    if not inverse:
        return tools.put_back(step, move.target, hand)
    views = tools.observer.look_at(move.source)
    if not (left := [call for call in inverse if not _as_before(call, views)]):
        return NotNeeded(f"{move.source} is open")
    beside = _beside(tools, move)
    if isinstance(beside, BrokerError) and (tools.opened or move.sent):
        return Unknown(f"{move.target} is silent, and may have been opened: {move.source} stays closed")
    opened = (
        [] if isinstance(beside, BrokerError) else [unit for view in beside for unit in view.open_among(move.moves)]
    )
    if opened:
        text = f"{move.target} has {some(opened)} open: what was closed at {move.source} stays closed"
        return Refused(text, code=ExitCode.STRANDED)
    doors = [call for call in left if call.goal is Goal.OPEN]
    tools.change(doors, hand)
    if (why := tools.admit(move.source, [call for call in left if call.goal in ROLES], hand)) is not None:
        return Refused(why)
    return still(doors, tools.observer.look_at(move.source)) or Done(f"{move.source} lets clients in again")


def _as_before(call: Call, views: Sequence[BrokerView]) -> bool:
    """Read the whole file again only where the other calls show the roles still kept out."""
    return holds(call, views) if call.thing else True


def _beside(tools: BridgesTools, move: Move) -> list[BrokerView] | BrokerError:
    try:
        return tools.observer.look_at(move.target)
    except BrokerError as error:
        return error


def residue(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """Close those of the returned site's queues that were decided, and count what it still holds for the other."""
    units = {call.thing for call in step.calls if call.goal is Goal.CUT}
    closed = _closed(tools, move.target, step.calls, units.__contains__, hand)
    if isinstance(closed, Refused):
        return closed
    for view in tools.observer.look_at(move.target):
        if (held := view.link.residue) is None:
            return Refused(f"what {view.site}/{view.pair} still holds was not read")
        tools.residue[view.pair] = held
    total = Residue.together(tools.residue.values())
    text = f"{total.messages} message(s) and {total.acks} processed id(s)"
    hand.notice(f"{move.target} still holds {text} for the other site")
    return Done(text, total.figures())
