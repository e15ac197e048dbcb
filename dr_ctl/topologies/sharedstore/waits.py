"""Waits before a move and after a return: the other process waits for the store, and a replica follows."""

from typing import Final

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.baseline import debts
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.verbs.quarantine import paid
from dr_ctl.topologies.common.verbs.quiesce import while_serving
from dr_ctl.topologies.sharedstore.lock import Lag
from dr_ctl.topologies.sharedstore.tools import StoreTools
from dr_ctl.topologies.sharedstore.view import BrokerView
from dr_ctl.topologies.topology import keeps_one_store

NOTHING = "nothing to ship: both sites use one store"
SMALL: Final = 1_000_000  # bytes of the database's journal: less than a second's


def draft_catch_up(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    if keeps_one_store(snapshot):
        return StepPlan(move.source, NOTHING)
    limits = {"within": step.limits.get("within", rules.timeouts.catch_up_s)}
    return StepPlan(
        move.source, f"{while_serving(snapshot, move)}the replica of the store not far behind", limits=limits
    )


def draft_drain(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    del step
    if keeps_one_store(snapshot):
        return StepPlan(move.target, NOTHING)
    limits = {"within": rules.within(move), "stall": rules.drain.stall}
    return StepPlan(move.target, "the replica of the store has all of it", limits=limits)


def draft_reinstate(rules: Rules, step: RunbookStep, snapshot: Snapshot[BrokerView], move: Move) -> StepPlan:
    """Strike the debts only: the returned broker waits by itself."""
    del rules, step
    about = f"{move.target} waits for the store; debts are cleared"
    return StepPlan(move.target, about, tuple(paid(snapshot, move)))


def catch_up(tools: StoreTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    del move
    return _replicated(tools, step, context, SMALL, tools.timeouts.link_poll_s)


def drain(tools: StoreTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    del move
    return _replicated(tools, step, context, 0, tools.rules.drain.poll)


def _replicated(tools: StoreTools, step: PlannedStep, context: StepContext, small: int, poll_s: float) -> Outcome:
    """Wait until the replica lacks no more than that."""
    if tools.shared.settings.replica is None:
        return NotNeeded(step.about)

    def show(lag: Lag | None) -> None:
        size = lag.size if lag is not None else None
        context.sample({"replica": {"bytes": size}})
        context.waiting("bytes that the replica has not got", size, None)

    waited = until(
        context,
        tools.shared.lag,
        holds=lambda lag: lag is not None and lag.size <= small,
        within_s=step.limits["within"],
        poll_s=poll_s,
        meanwhile=show,
    )
    lag = waited.look
    if waited.held and lag is not None:
        return Done(f"{lag.size} byte(s) to replicate", {"bytes": lag.size, "messages": lag.messages})
    left = f"{lag.size} byte(s)" if lag is not None else "an unknown number of bytes"
    text = f"not drained after {duration(step.limits['within'])}: {left} to replicate"
    return Refused(text, code=ExitCode.DRAIN_TIMEOUT)


def reinstate(tools: StoreTools, step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """See that the broker waits. Where no command tells of its process, its closed ports are the only sign."""
    for view in tools.observer.look_at(move.target):
        if view.role is not Role.STANDBY:
            state = "its process does not run" if view.runs is False else f"it is {view.role.value}"
            return Refused(f"{move.target} does not wait for the store: {state}")
    if (refused := tools.make(step.calls, context, move.source, move.target)) is not None:
        return refused
    return Done(f"{move.target} waits for the store")


UNDO: Final = Undo(source=(debts,))
