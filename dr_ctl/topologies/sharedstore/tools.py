"""The gate of brokers that share a store, and the waits: the other process waits for it, and a replica follows."""

from collections.abc import Callable
from typing import Final

from dr_ctl.core.model import ExitCode, Json, Role
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Done, Move, NotNeeded, Outcome, Refused, StepContext, StepPlan
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.gate import Sample, Verifier
from dr_ctl.topologies.common.recipe import Recipe, Undo
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.tools import Sender, Tools
from dr_ctl.topologies.common.wants import PAID, SOURCE, TARGET, Limits, Site, debts, planning
from dr_ctl.topologies.sharedstore.checks import not_in_store
from dr_ctl.topologies.sharedstore.lock import Lag
from dr_ctl.topologies.sharedstore.reading import Observer
from dr_ctl.topologies.sharedstore.view import BrokerView

NOTHING = "nothing to ship: both sites use one store"
SMALL: Final = 1_000_000  # bytes of the database's journal: less than a second's


class StoreVerifier(Verifier[BrokerView]):
    observer: Observer

    def why_not_yet(self, now: Sample[BrokerView], before: Sample[BrokerView] | None, move: Move) -> list[str]:
        found = super().why_not_yet(now, before, move)
        source = now.source
        # In a run that goes on, the source may have given up the store already, and is closed by then.
        if not source.has_the_store and not (move.sent and not source.answered):
            lock = source.lock.text if source.lock is not None else "the lock was not read"
            found.append(f"{source.site} does not hold the store: {lock}")
        return found

    def differing(self, _now: Sample[BrokerView], _move: Move) -> list[str]:
        return []

    def same(self, now: Sample[BrokerView], move: Move) -> Outcome:
        """Messages that are not in the store are in its holder's memory alone, and go with it."""
        source = now.source
        depths: dict[str, Json] = {name: queue.depth for name, queue in source.business.items() if queue.depth}
        stored = self.observer.all()[0].shared.counts() if source.answered else None
        if stored is None:
            return Done("the gate holds", {"depths": depths})
        if wrong := not_in_store(source.lacking(stored), move.ask.accept_difference):
            return Refused(wrong[0].text, findings=tuple(wrong))
        return Done("the gate holds, and the store has all of it", {"depths": depths})


class StoreTools(Tools[BrokerView]):
    observer: Observer

    def __init__(self, observer: Observer, recipe: Recipe[BrokerView], sender: Sender) -> None:
        super().__init__(observer, recipe, sender, StoreVerifier(observer, recipe.rules.drain.poll))
        self.shared = observer.all()[0].shared

    def by_hand(self, site: str, _by_console: str) -> str:
        """A broker that has ended has no console: the first broker that starts takes the store and serves."""
        others = [access for name in self.observer.brokers if name != site for access in self.observer.at(name)]
        starts = [access.own.start for access in (*others, *self.observer.at(site))]
        return f"{' or '.join(starts)}: the first that starts takes the store and serves"


def _planning(
    site: Site, about: str, limits: Limits
) -> Callable[[Rules, RunbookStep, Snapshot[BrokerView], Move], StepPlan]:
    nothing, waits = planning(site, NOTHING), planning(site, about, limits=limits)
    return lambda rules, step, snapshot, move: (nothing if snapshot.one_store else waits)(rules, step, snapshot, move)


draft_catch_up: Final = _planning(SOURCE, "{serving}the replica of the store not far behind", Rules.catching_up)
draft_drain: Final = _planning(TARGET, "the replica of the store has all of it", Rules.draining)
# The debts only: the returned broker waits by itself.
draft_reinstate: Final = planning(TARGET, "{target} waits for the store; debts are cleared", *PAID)


def catch_up(tools: StoreTools, step: PlannedStep, _move: Move, context: StepContext) -> Outcome:
    return _replicated(tools, step, context, SMALL, tools.timeouts.link_poll_s)


def drain(tools: StoreTools, step: PlannedStep, _move: Move, context: StepContext) -> Outcome:
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


def reinstate(tools: StoreTools, _step: PlannedStep, move: Move, context: StepContext) -> Outcome:
    """See that the broker waits. Where no command tells of its process, its closed ports are the only sign."""
    for view in tools.observer.look_at(move.target):
        if view.role is not Role.STANDBY:
            state = "its process does not run" if view.runs is False else f"it is {view.role.value}"
            return Refused(f"{move.target} does not wait for the store: {state}")
    return tools.reach(PAID, move, context) or Done(f"{move.target} waits for the store")


UNDO: Final = Undo(source=(debts,))
