"""The act of `activate`: the queues that move deliver at the target and let clients in, proven by a look."""

from __future__ import annotations

from collections.abc import Sequence

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import Role, some
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.operations import ACTIVATE, FAILOVER
from dr_ctl.engine.outcome import Done, NotNeeded, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Hand, Move
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.effects import holds, left_of, still, to_undo
from dr_ctl.topologies.common.receipts import changes


def act(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views, why = _may_open(tools, move)
    if why is not None:
        return Refused(why)
    admits, doors, strikes = step.part("admit"), step.part("doors"), step.part("strikes")
    missing = [call for call in (*admits, *doors) if call.thing != ALL and not holds(call, views)]
    if (why := _admitted(tools, admits, missing, move, hand)) is not None:
        return Refused(why)
    starts = [call for call in doors if call in missing]
    tools.opened = tools.opened or bool(missing)
    outcomes = tools.change(starts, hand)
    if outcomes and all(isinstance(each, Refused) for each in outcomes):
        return Refused(f"{move.target} could not be opened: {outcomes[0].text}")
    if (failed := _until_held(tools, (*admits, *doors), move.target, hand)) is not None:
        return failed
    tools.change(strikes, hand)
    return Done(f"{move.target} lets clients in") if missing else NotNeeded(f"{move.target} serves already")


def _admitted(
    tools: BridgesTools, admits: Sequence[Call], missing: Sequence[Call], move: Move, hand: Hand
) -> str | None:
    """Let the clients' roles in; gives the reason why nothing may be opened after it. Clients may send already, so the
    other site is looked at again, also after a second try."""
    gives = [call for call in admits if call in missing and call.goal is Goal.ADMIT]
    if not gives:
        return None
    tools.change(gives, hand)
    there, here, _ = _sides(tools, move)
    whole = [*gives, *(call for call in admits if call.goal is Goal.RESTORE)]
    if (opened := _open_beside(here, move)) is not None or not left_of(whole, there):
        return opened
    return tools.admit(move.target, admits, hand) or _open_beside(_sides(tools, move)[1], move)


def _until_held(tools: BridgesTools, calls: Sequence[Call], site: str, hand: Hand) -> Outcome | None:
    """Wait until all calls are seen to hold; gives None once they do."""
    wanted = [call for call in calls if call.thing != ALL]

    def look() -> list[str]:
        try:
            return left_of(wanted, tools.observer.look_at(site))
        except BrokerError as error:
            return [str(error)]

    within_s, poll_s = tools.patience.activate_s, tools.patience.poll_s
    waited = until(hand, look, holds=lambda left: not left, within_s=within_s, poll_s=poll_s)
    if waited.held:
        return None
    return Unknown(f"{site}: has not come true: {some(waited.look)}; look at {site} first")


def _may_open(tools: BridgesTools, move: Move) -> tuple[list[BrokerView], str | None]:
    """Gives the target's brokers, and why nothing may be opened."""
    there, here, lives = _sides(tools, move)
    if lives and not any(view.open_among(move.moves) for view in there):
        return there, f"{move.source} lives and cannot be managed: it may serve clients"
    if (opened := _open_beside(here, move)) is not None:
        return there, opened
    by_pair = {view.pair: view for view in here}
    closed = [view for view in there if view.pair in by_pair and not view.open_among(move.moves)]
    moved = [why for view in closed for why in _moved(tools, by_pair[view.pair], view, move)]
    return there, some(moved) if moved else None


def _open_beside(here: Sequence[BrokerView], move: Move) -> str | None:
    opened = sorted({unit for view in here for unit in view.open_among(move.moves)})
    return f"{move.source} has {some(opened)} open: a second site is never opened" if opened else None


def _sides(tools: BridgesTools, move: Move) -> tuple[list[BrokerView], list[BrokerView], bool]:
    """Look at both sites in the same moment: the target's brokers, the source's, and whether that one lives and does
    not answer."""
    if move.ask.operation == FAILOVER:
        # A lost site that does not answer is not seen open.
        there, seen = tools.observer.look_at(move.target), tools.observer.look_once(least_s=tools.patience.last_look_s)
        lives = seen.roles[move.source] is Role.SICK or (not tools.cut_off and bool(seen.hints[move.source].signs))
        return there, seen.views(move.source), lives
    sites = [tools.observer.at(site) for site in (move.target, move.source)]
    views = tools.observer.together(lambda access: access.look(), [each for site in sites for each in site])
    return views[: len(sites[0])], views[len(sites[0]) :], False


def _moved(tools: BridgesTools, here: BrokerView, there: BrokerView, move: Move) -> list[str]:
    """Name the counts that changed since the run's own gate; for a step by itself, since the receipt."""
    if (sample := tools.gate.seen.get(there.pair)) is not None:
        pairs = ((sample.source, here), (sample.target, there))
        return [why for was, now in pairs for why in changes(was, now, move.moves)]
    receipt = receipts.held_at(there) if move.ask.operation == ACTIVATE else None
    return receipts.moved(receipt, (here, there), move.ask) if receipt is not None else []


def undo(tools: BridgesTools, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    views = tools.observer.look_at(move.target)
    calls = [call for call in to_undo(step.inverse, views) if call.goal is not Goal.SHUT_OUT or not holds(call, views)]
    if not calls:
        return NotNeeded(f"{move.target} is closed")
    tools.change(calls, hand)
    # A client that came between the look and the roles would wait there for ever: the next try cuts that client.
    cuts = [call for call in step.inverse if call.goal is Goal.CUT and call not in calls]
    return still([*calls, *cuts], tools.observer.look_at(move.target)) or Done(f"{move.target} closed")
