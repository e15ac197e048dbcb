"""Waits before a move and after a return: the other process waits for the store, and a replica follows."""

from collections.abc import Callable
from typing import Final

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.recipe import Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.wants import PAID, SOURCE, TARGET, Limits, Site, debts, planning
from dr_ctl.topologies.sharedstore.lock import Lag
from dr_ctl.topologies.sharedstore.tools import StoreTools
from dr_ctl.topologies.sharedstore.view import BrokerView

NOTHING = "nothing to ship: both sites use one store"
SMALL: Final = 1_000_000  # bytes of the database's journal: less than a second's


def _planning(
    site: Site, about: str, limits: Limits
) -> Callable[[Rules, RunbookStep, Snapshot[BrokerView], Move], StepPlan]:
    nothing, waits = planning(site, NOTHING), planning(site, about, limits=limits)
    return lambda rules, step, snapshot, move: (nothing if snapshot.one_store else waits)(rules, step, snapshot, move)


draft_catch_up: Final = _planning(SOURCE, "{serving}the replica of the store not far behind", Rules.catching_up)
draft_drain: Final = _planning(TARGET, "the replica of the store has all of it", Rules.draining)
# The debts only: the returned broker waits by itself.
draft_reinstate: Final = planning(TARGET, "{target} waits for the store; debts are cleared", *PAID)


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
    del step
    for view in tools.observer.look_at(move.target):
        if view.role is not Role.STANDBY:
            state = "its process does not run" if view.runs is False else f"it is {view.role.value}"
            return Refused(f"{move.target} does not wait for the store: {state}")
    return tools.reach(PAID, move, context) or Done(f"{move.target} waits for the store")


UNDO: Final = Undo(source=(debts,))
