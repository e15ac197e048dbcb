"""Plans the calls for workloads around the topology's plans for its brokers: stopped with the quiesce, started after
activation. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.model import Finding, Json, Role, Severity
from dr_ctl.engine import ports
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.operations import ACTIVATE, FAILOVER, MOVING, REINSTATING, UNFENCE
from dr_ctl.engine.parts import part_of
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Check, Move, StepPlan
from dr_ctl.engine.roles import whole_at
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.parts import Workload
from dr_ctl.topologies.topology import PartState, Snapshot, WorkloadSnapshot
from dr_ctl.topologies.workloads import calls
from dr_ctl.topologies.workloads.checks import Beside

S = TypeVar("S", bound=Snapshot)
# The unit of a baseline for facts of a whole site: no broker has this name.
OF_SITE: Final = ""
STARTED_AGAIN: Final = "it was started again since"


class RecipeWithWorkloads(Generic[S]):
    """Implements `Recipe`."""

    def __init__(self, bare: ports.Recipe[S], workloads: Mapping[tuple[str, str], Workload]) -> None:
        """`workloads` are the workloads of the settings, by site and name."""
        self._bare, self._workloads = bare, workloads

    @property
    def moves_parts(self) -> bool:
        return self._bare.moves_parts

    def verbs(self) -> frozenset[str]:
        return self._bare.verbs()

    def baseline(self, snapshot: S) -> Mapping[str, Json]:
        """The parts of each workload that ran stand beside the brokers, under a name that no broker has."""
        found: dict[str, Any] = {**self._bare.baseline(snapshot)}
        for site in snapshot.roles:
            if ran := {each.name: _running(each) for each in _at(snapshot, site) if each.runs is not None}:
                found[site] = {**found.get(site, {}), OF_SITE: {"workloads": ran}}
        return found

    def basis(self, snapshot: S) -> Mapping[str, Json]:
        states: Json = {site: {each.name: each.state for each in _at(snapshot, site)} for site in snapshot.roles}
        return {**self._bare.basis(snapshot), "workloads": states}

    def why_not(self, snapshot: S, move: Move) -> Sequence[Finding]:
        found = [*self.against(snapshot, move), *self._bare.why_not(snapshot, move)]
        return sorted(found, key=lambda each: each.severity is not Severity.ERROR)

    def against(self, snapshot: S, move: Move) -> Sequence[Finding]:
        return list(self._beside(snapshot, move).against(self._moving(snapshot, move.ask)))

    def checks(self, snapshot: S, move: Move) -> Sequence[Check]:
        mine = self._beside(snapshot, move).named(self._moving(snapshot, move.ask))
        return [*mine, *self._bare.checks(snapshot, move)]

    def _beside(self, snapshot: S, move: Move) -> Beside:
        part = part_of(snapshot, move.ask)
        closed = part.roles[move.source] is not Role.SERVING
        already = move.ask.operation in MOVING and whole_at(part, move.target) and closed
        return Beside(move, part.roles, already)

    def holds_already(self, snapshot: S, move: Move) -> str | None:
        waits = move.ask.operation == UNFENCE and self._starts(snapshot, move.ask, move.source)
        return None if waits else self._bare.holds_already(snapshot, move)

    def not_replicated(self, snapshot: S, move: Move) -> Sequence[str]:
        there = {each.name for each in _at(snapshot, move.target)}
        alone = [each.name for each in _at(snapshot, move.source) if each.name not in there]
        lacks = [f"workloads that {move.target} has none of: {', '.join(alone)}"] if alone else []
        return [*self._bare.not_replicated(snapshot, move), *(lacks if move.ask.operation in MOVING else ())]

    def cannot_know(self, move: Move) -> Sequence[str]:
        return self._bare.cannot_know(move)

    def draft(self, step: RunbookStep, snapshot: S, move: Move) -> StepPlan:
        bare = self._bare.draft(step, snapshot, move)
        ask, source, target = move.ask, move.source, move.target
        match step.verb:
            case "quiesce":
                # Workloads stop before dispatch does: they must be able to finish the messages they hold.
                alone = self._stops(snapshot, ask, source, alone=True)
                if ask.operation in REINSTATING:
                    alone = [replace(call, when=STARTED_AGAIN) for call in alone]
                return _first(bare, [*self._stops(snapshot, ask, source), *alone], self._ran(move, snapshot, source))
            case "residue":
                return _first(bare, self._stops(snapshot, ask, target), [])
            case "reconcile":
                return _last(bare, self._stops(snapshot, ask, source, alone=True), [])
            case "fence" if part_of(snapshot, ask).roles[target] is Role.SERVING:
                # Not to be undone: beside a site that serves nothing of it is wanted back.
                return _last(bare, self._stops(snapshot, ask, source), [])
            case "activate":
                # No quiesce came before: a workload that answers there, beside brokers that do not serve, must stop.
                stops = self._stops(snapshot, ask, source) if ask.operation in (FAILOVER, ACTIVATE) else []
                return _last(bare, [*stops, *self._starts(snapshot, ask, target)], self._rested(move, snapshot, target))
            case "unfence" if part_of(snapshot, ask).roles[target] is not Role.SERVING:
                return _last(bare, self._starts(snapshot, ask, source), self._rested(move, snapshot, source))
            case _:
                return bare

    def _moving(self, snapshot: S, ask: Ask) -> list[WorkloadSnapshot]:
        return [
            each
            for each in snapshot.workloads
            if calls.concerned(self._workloads[each.site, each.name], ask, snapshot.units)
        ]

    def _at(self, snapshot: S, ask: Ask, site: str) -> list[tuple[Workload, WorkloadSnapshot]]:
        return [(self._workloads[site, each.name], each) for each in self._moving(snapshot, ask) if each.site == site]

    def _stops(self, snapshot: S, ask: Ask, site: str, *, alone: bool = False) -> list[Call]:
        """Stop parts that were not seen to be stopped; a workload that was not read has no known parts. Workloads that
        run while a site serves `alone` are stopped by a call of their own."""
        return [
            _by_itself(calls.call(site, workload, part, Goal.STOP), state)
            for workload, each in self._at(snapshot, ask, site)
            for part, state in each.parts.items()
            if state is not PartState.STOPPED and workload.alone is alone
        ]

    def _starts(self, snapshot: S, ask: Ask, site: str) -> list[Call]:
        """Start what was not seen to run, or what a return stops first."""
        return [
            _by_itself(calls.call(site, workload, part, Goal.START), each.parts.get(part))
            for workload, each in self._at(snapshot, ask, site)
            for part in each.parts or calls.known_parts(workload)
            if (not workload.alone or ask.operation == FAILOVER)
            and (ask.operation in REINSTATING or each.parts.get(part) is not PartState.RUNNING)
        ]

    def _ran(self, move: Move, snapshot: S, site: str) -> list[Call]:
        """Start again what ran before the run, and no more."""
        return self._back(move, snapshot, site, Goal.START)

    def _rested(self, move: Move, snapshot: S, site: str) -> list[Call]:
        """Stop again what did not run before the run."""
        return self._back(move, snapshot, site, Goal.STOP)

    def _back(self, move: Move, snapshot: S, site: str, goal: Goal) -> list[Call]:
        before: Any = move.baseline.get(site, {})
        ran: Mapping[str, Sequence[str]] = before.get(OF_SITE, {}).get("workloads", {})
        return [
            calls.call(site, workload, part, goal)
            for workload, each in self._at(snapshot, move.ask, site)
            for part in each.parts
            if each.name in ran and (part in ran[each.name]) is (goal is Goal.START)
        ]


def _by_itself(call: Call, state: PartState | None) -> Call:
    """Not certain of what is neither running nor stopped now."""
    return replace(call, when=f"it does not {call.goal.value} by itself") if state is PartState.BETWEEN else call


def _at(snapshot: Snapshot, site: str) -> list[WorkloadSnapshot]:
    return [each for each in snapshot.workloads if each.site == site]


def _running(each: WorkloadSnapshot) -> list[str]:
    return [part for part, state in each.parts.items() if state is PartState.RUNNING]


def _first(draft: StepPlan, stops: list[Call], inverse: list[Call]) -> StepPlan:
    about = f"workloads stop; {draft.about}" if stops else draft.about
    return replace(draft, about=about, calls=(*stops, *draft.calls), inverse=(*draft.inverse, *inverse))


def _last(draft: StepPlan, calls: list[Call], inverse: list[Call]) -> StepPlan:
    verbs = dict.fromkeys(call.goal.value for call in calls)
    about = f"{draft.about}; then workloads {' and '.join(verbs)}" if calls else draft.about
    return replace(draft, about=about, calls=(*draft.calls, *calls), inverse=(*inverse, *draft.inverse))
