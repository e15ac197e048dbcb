"""`activate`: the queues that move deliver at the target and let clients in, proven by a look."""

from typing import Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import some
from dr_ctl.engine.goals import ALL
from dr_ctl.engine.operations import FAILBACK
from dr_ctl.engine.plan import Call, PlannedStep, in_part
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan, Unknown
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.bridges.fence import clients, opens
from dr_ctl.topologies.bridges.tools import BridgesTools
from dr_ctl.topologies.bridges.view import BrokerView
from dr_ctl.topologies.common import receipts
from dr_ctl.topologies.common.calls import holds, left_of, open_listener
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.verbs.activate import may_open, open_beside, sides


def draft(_rules: Rules, _step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Open queues and listeners. Listeners stay open afterwards: an open listener lets no client use a closed queue."""
    calls: list[Call] = []
    # A target that came back is closed before anything else.
    returns = move.ask.operation == FAILBACK
    for view in snapshot.views(move.target):
        source = snapshot.view(move.source, view.pair)
        # Open only queues that the fence closes there; a lost site that does not answer is owed its whole fence.
        units = [unit for unit in view.among(move.moves) if source is None or source.flow(unit) is not None]
        calls += opens(view, units, "it was closed when it came back" if returns else None)
        again = "it is closed" if returns else None  # the return has opened them
        calls += in_part(
            "listeners", (open_listener(view, listener, again) for listener in view.listeners if not listener.started)
        )
    calls += in_part("strikes", receipts.strikes(snapshot))
    return StepPlan(move.target, "the queues deliver, their clients are let in", tuple(calls))


UNDO: Final = Undo(target=(clients,))


def act(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    views, why = may_open(tools, move)
    if why is not None:
        return Refused(why)
    admits, listeners, strikes = step.part("admit"), step.part("listeners"), step.part("strikes")
    missing = [call for call in (*listeners, *admits) if call.thing != ALL and not holds(call, views)]
    starts = [call for call in missing if call in listeners]
    tools.opened = tools.opened or bool(missing)
    outcomes = tools.change(starts, context)
    if outcomes and all(isinstance(each, Refused) for each in outcomes):
        return Refused(f"{move.target} could not be opened: {outcomes[0].text}")
    if (why := _admitted(tools, step, move, context)) is not None:
        return Refused(why)
    if (failed := _until_held(tools, step, move, context)) is not None:
        return failed
    tools.change(strikes, context)
    return Done(f"{move.target} lets clients in") if missing else NotNeeded(f"{move.target} serves already")


def _admitted(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> str | None:
    """Let the clients' roles in where the queues deliver; gives the reason why they are not let in. By them clients are
    in, so the other site is looked at right before."""
    there, here, _ = sides(tools, move)
    paused = {view.unit_of(call.thing) for view in there for call in step.part("listeners") if not holds(call, there)}
    admits = [call for call in step.part("admit") if call.thing not in paused]
    if not left_of([call for call in admits if call.thing != ALL], there):
        return None
    return open_beside(tools, here, move) or tools.admit(move.target, admits, context, again=True)


def _until_held(tools: BridgesTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome | None:
    """Wait until all calls are seen to hold; gives None once they do. What does not hold is asked for again: what is
    opened twice is opened once."""
    listeners = step.part("listeners")
    wanted = [call for call in (*step.part("admit"), *listeners) if call.thing != ALL]
    again_at = context.monotonic() + tools.timeouts.again_s

    def look() -> list[str]:
        nonlocal again_at
        try:
            if context.monotonic() > again_at:
                again_at = context.monotonic() + tools.timeouts.again_s
                there, here, _ = sides(tools, move)
                if open_beside(tools, here, move) is None:
                    tools.change([call for call in listeners if not holds(call, there)], context)
                    _admitted(tools, step, move, context)
            return left_of(wanted, tools.observer.look_at(move.target))
        except BrokerError as error:
            return [str(error)]

    within_s, poll_s = tools.timeouts.activate_s, tools.timeouts.poll_s
    waited = until(context, look, holds=lambda left: not left, within_s=within_s, poll_s=poll_s)
    if waited.held:
        return None
    if step.part("admit") and _shut(tools, move):
        return Refused(f"{move.target} could not be opened: effect not seen: {some(waited.look)}")
    return Unknown(f"{move.target}: effect not seen: {some(waited.look)}; look at {move.target} first")


def _shut(tools: BridgesTools, move: Move) -> bool:
    """Whether the roles are seen to be kept out still: a queue that comes to deliver after all lets nobody in."""
    try:
        return all(
            view.kept_out(unit) for view in tools.observer.look_at(move.target) for unit in view.among(move.moves)
        )
    except BrokerError:
        return False
