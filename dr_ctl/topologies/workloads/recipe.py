"""Decides about workloads: reports problems, plans the calls that start and stop them, and adds these to the topology's
plans. Workloads stop with the quiesce, and start after the activation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Final, Generic, TypeVar, assert_never

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Json, Role, Severity
from dr_ctl.core.notation import matches
from dr_ctl.engine import ports
from dr_ctl.engine.operations import (
    ACTIVATE,
    DRAIN,
    FAILBACK,
    FAILOVER,
    FENCE,
    MOVING,
    QUIESCE,
    REINSTATING,
    RESTART,
    SWAPOVER,
    UNFENCE,
)
from dr_ctl.engine.plan import Call, Goal, PlannedStep, Spec
from dr_ctl.engine.ports import Check, Move, StepPlan, UnitSnapshot
from dr_ctl.engine.roles import part_of, serves_all
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.jolokia import values
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, SystemdUnit, Workload
from dr_ctl.topologies.common.snapshot import Snapshot, misplaced, singletons_at_both, unread
from dr_ctl.topologies.topology import PartState, WorkloadSnapshot

WANTED: Final = {Goal.START: PartState.RUNNING, Goal.STOP: PartState.STOPPED}
# With `true`, a route that does not finish in time continues instead of being cut, and the answer is false.
CAMEL_STOP: Final = "stop(java.lang.Long,java.lang.Boolean)"


def is_moved(workload: Workload, spec: Spec, units: Sequence[UnitSnapshot]) -> bool:
    """Say whether a workload moves: all move with a whole site, those of the chosen units with these."""
    if spec.units is None or {unit.name for unit in units} <= set(spec.units):
        return True
    return any(matches(workload.queues, unit) for unit in spec.units)


def switch(site: str, workload: Workload, part: str, goal: Goal) -> Call:
    suffix = f" of {workload.name}" if part != workload.name else ""
    summary = f"{goal.value} {_short(part)}{suffix} at {site}"
    return Call(site, "", goal, workload.name, {"workload": part, **_request(workload, part, goal)}, summary)


def holds(call: Call, snapshot: WorkloadSnapshot) -> bool:
    return snapshot.parts.get(str(call.request["workload"])) is WANTED[call.goal]


def workload_calls(calls: Iterable[Call]) -> list[Call]:
    return [call for call in calls if _is_workload_call(call)]


def without_workload_calls(step: PlannedStep) -> PlannedStep:
    lists = (step.calls, step.inverse)
    calls, inverse = (tuple(call for call in several if not _is_workload_call(call)) for several in lists)
    return replace(step, calls=calls, inverse=inverse)


def _is_workload_call(call: Call) -> bool:
    """Say whether a call is for a workload: it has no broker, unlike calls that start and stop a broker's process."""
    return call.goal in WANTED and not call.unit


def _short(part: str) -> str:
    """Name a route by its id, not by the full name of its bean."""
    if ":" not in part:
        return part
    try:
        return f"route {values.parts(part).get('name', part)}"
    except ValueError:
        return part


def _request(workload: Workload, part: str, goal: Goal) -> Mapping[str, Json]:
    starts = goal is Goal.START
    match workload:
        case CamelRoutes():
            operation, arguments = ("start()", []) if starts else (CAMEL_STOP, [ceil(workload.timeout), True])
            return {"bean": part, "operation": operation, "arguments": [*arguments]}
        case SystemdUnit():
            return {"run": [*systemctl(workload), goal.value, workload.unit]}
        case Commands():
            return {"run": [*(workload.start if starts else workload.stop)]}
        case HttpService():
            return {"post": (workload.start if starts else workload.stop).post}
        case _:
            assert_never(workload)


def systemctl(unit: SystemdUnit) -> list[str]:
    return ["systemctl", *(["--host", unit.host] if unit.host is not None else [])]


# A run that closes a site, or moves nothing, is not refused for running workloads.
_SAFE: Final = (FENCE, UNFENCE, RESTART)
# A run that stops workloads, or needs them stopped, reads all of them first.
_MUST_READ: Final = (SWAPOVER, FAILBACK, QUIESCE, DRAIN, ACTIVATE)


def _of_workload(workload: WorkloadSnapshot, move: Move, roles: Mapping[str, Role]) -> Iterator[Finding]:
    operation, at_source = move.spec.operation, workload.site == move.source
    if workload.runs is not None:
        yield from misplaced(workload, roles)
    elif operation == FAILOVER and at_source:
        yield _of_lost_workload(workload, move, roles)
    elif operation != QUIESCE or at_source:
        yield unread(workload, Severity.ERROR if operation in _MUST_READ else Severity.WARNING)


def _of_lost_workload(workload: WorkloadSnapshot, move: Move, roles: Mapping[str, Role]) -> Finding:
    """Report a workload of a lost site that was not read: it may still run there, or again when the site returns."""
    if workload.singleton and not is_gone(workload, move, roles[move.source]):
        return found("DR-WORK-007.singleton", name=workload.name, site=move.source, target=move.target)
    return found("DR-WORK-007", name=workload.name, site=move.source)


def is_gone(workload: WorkloadSnapshot, move: Move, role: Role) -> bool:
    """Say whether an unread workload of a lost site is known not to run: a person presumes that site down, or it is
    down and the workload's address refuses too. A workload may have its own host, which outlives the broker."""
    return (move.spec.presume_down == move.source and move.spec.reason is not None) or (
        role is Role.DOWN and workload.refuses
    )


S = TypeVar("S", bound=Snapshot[Any])
# In a baseline, this unit, which is no broker's name, has the values of the site.
OF_SITE: Final = ""
STARTED_AGAIN: Final = "it was started again since"


class RecipeWithWorkloads(Generic[S]):
    def __init__(self, bare: ports.Recipe[S], workloads: Mapping[tuple[str, str], Workload]) -> None:
        self._bare, self._workloads = bare, workloads
        self.moves_parts, self.verbs, self.cannot_know = bare.moves_parts, bare.verbs, bare.cannot_know

    def baseline(self, snapshot: S) -> Mapping[str, Json]:
        """Add the running parts of each workload, under `OF_SITE`."""
        states: dict[str, Any] = {**self._bare.baseline(snapshot)}
        for site in snapshot.roles:
            ran = {
                workload.name: [part for part, state in workload.parts.items() if state is PartState.RUNNING]
                for workload in _at(snapshot, site)
                if workload.runs is not None
            }
            if ran:
                states[site] = {**states.get(site, {}), OF_SITE: {"workloads": ran}}
        return states

    def basis(self, snapshot: S) -> Mapping[str, Json]:
        states: Json = {
            site: {workload.name: workload.state for workload in _at(snapshot, site)} for site in snapshot.roles
        }
        return {**self._bare.basis(snapshot), "workloads": states}

    def why_not(self, snapshot: S, move: Move) -> Sequence[Finding]:
        findings = [*self.against(snapshot, move), *self._bare.why_not(snapshot, move)]
        return sorted(findings, key=lambda finding: finding.severity is not Severity.ERROR)

    def against(self, snapshot: S, move: Move) -> Sequence[Finding]:
        moving, roles = self._moved_workloads(snapshot, move.spec), part_of(snapshot, move.spec).roles
        findings = (finding for workload in moving for finding in _of_workload(workload, move, roles))
        return [*singletons_at_both(moving, _of_singletons(snapshot, move)), *findings]

    def checks(self, snapshot: S, move: Move) -> Sequence[Check]:
        checks, moving = list[Check](), self._moved_workloads(snapshot, move.spec)
        roles, severity = part_of(snapshot, move.spec).roles, _of_singletons(snapshot, move)
        for state in moving:
            reading = ", ".join(filter(None, (state.state, state.detail))) if state.runs is not None else None
            name = f"whether {state.name} runs is known"
            checks.append(Check(name, state.site, reading, list(_of_workload(state, move, roles))))
        for name in dict.fromkeys(workload.name for workload in moving if workload.singleton):
            states = [workload for workload in moving if workload.name == name]
            known = all(workload.runs is not None for workload in states)
            reading = ", ".join(f"{workload.site} {workload.state}" for workload in states) if known else None
            checks.append(
                Check("a singleton runs at one site only", name, reading, list(singletons_at_both(states, severity)))
            )
        return [*checks, *self._bare.checks(snapshot, move)]

    def holds_already(self, snapshot: S, move: Move) -> str | None:
        waits = move.spec.operation == UNFENCE and self._starts(snapshot, move.spec, move.source)
        return None if waits else self._bare.holds_already(snapshot, move)

    def not_replicated(self, snapshot: S, move: Move) -> Sequence[str]:
        at_target = {workload.name for workload in _at(snapshot, move.target)}
        missing = [workload.name for workload in _at(snapshot, move.source) if workload.name not in at_target]
        texts = [f"workloads that {move.target} does not have: {', '.join(missing)}"] if missing else []
        return [*self._bare.not_replicated(snapshot, move), *(texts if move.spec.operation in MOVING else ())]

    def draft(self, step: RunbookStep, snapshot: S, move: Move) -> StepPlan:
        bare = self._bare.draft(step, snapshot, move)
        spec, source, target, undo = (move.spec, move.source, move.target, partial(self._undo_calls, move, snapshot))
        match step.verb:
            case "quiesce":
                # Workloads stop before dispatch does, so that they can finish the messages they hold.
                lone_stops = self._stops(snapshot, spec, source, alone=True)
                if spec.operation in REINSTATING:
                    lone_stops = [replace(call, when=STARTED_AGAIN) for call in lone_stops]
                return _first(bare, [*self._stops(snapshot, spec, source), *lone_stops], undo(Goal.START, source))
            case "residue":
                return _first(bare, self._stops(snapshot, spec, target), [])
            case "reconcile":
                return _last(bare, self._stops(snapshot, spec, source, alone=True), [])
            case "fence" if part_of(snapshot, spec).roles[target] is Role.SERVING:
                # No undo starts these again, because the other site serves.
                return _last(bare, self._stops(snapshot, spec, source), [])
            case "activate":
                # There was no quiesce, so workloads that still run at the source must stop.
                stops = self._stops(snapshot, spec, source) if spec.operation in (FAILOVER, ACTIVATE) else []
                return _last(bare, [*stops, *self._starts(snapshot, spec, target)], undo(Goal.STOP, target))
            case "unfence" if part_of(snapshot, spec).roles[target] is not Role.SERVING:
                return _last(bare, self._starts(snapshot, spec, source), undo(Goal.STOP, source))
            case _:
                return bare

    def _moved_workloads(self, snapshot: S, spec: Spec) -> list[WorkloadSnapshot]:
        return [
            workload
            for workload in snapshot.workloads
            if is_moved(self._workloads[workload.site, workload.name], spec, snapshot.units)
        ]

    def _at(self, snapshot: S, spec: Spec, site: str) -> list[tuple[Workload, WorkloadSnapshot]]:
        return [
            (self._workloads[site, workload.name], workload)
            for workload in self._moved_workloads(snapshot, spec)
            if workload.site == site
        ]

    def _stops(self, snapshot: S, spec: Spec, site: str, *, alone: bool = False) -> list[Call]:
        """Stop the parts that were not read as stopped; a workload that was not read has no known parts. `alone`
        selects the workloads that run only while one site serves alone, or else the others."""
        return [
            _conditional(switch(site, workload, part, Goal.STOP), state)
            for workload, read in self._at(snapshot, spec, site)
            for part, state in read.parts.items()
            if state is not PartState.STOPPED and workload.alone is alone
        ]

    def _starts(self, snapshot: S, spec: Spec, site: str) -> list[Call]:
        """Start parts that were not read as running, or that a return stops first. A route's name needs a reading."""
        return [
            _conditional(switch(site, workload, part, Goal.START), state.parts.get(part))
            for workload, state in self._at(snapshot, spec, site)
            for part in state.parts or (() if isinstance(workload, CamelRoutes) else (workload.name,))
            if (not workload.alone or spec.operation == FAILOVER)
            and (spec.operation in REINSTATING or state.parts.get(part) is not PartState.RUNNING)
        ]

    def _undo_calls(self, move: Move, snapshot: S, goal: Goal, site: str) -> list[Call]:
        """Start again the parts that ran before the run, or stop those that did not, and no more."""
        before: Any = move.baseline.get(site, {})
        ran: Mapping[str, Sequence[str]] = before.get(OF_SITE, {}).get("workloads", {})
        return [
            switch(site, workload, part, goal)
            for workload, state in self._at(snapshot, move.spec, site)
            for part in state.parts
            if state.name in ran and (part in ran[state.name]) is (goal is Goal.START)
        ]


def _of_singletons(snapshot: Snapshot[Any], move: Move) -> Severity:
    """Refuse a run if a singleton runs twice, unless the run closes a site, or its move is already done."""
    part = part_of(snapshot, move.spec)
    is_moved = move.spec.operation in MOVING and serves_all(part, move.target)
    is_done = is_moved and part.roles[move.source] is not Role.SERVING
    return Severity.WARNING if is_done or move.spec.operation in _SAFE else Severity.ERROR


def _conditional(call: Call, state: PartState | None) -> Call:
    """Make a call conditional if its part is neither running nor stopped now."""
    return replace(call, when=f"it does not {call.goal.value} by itself") if state is PartState.BETWEEN else call


def _at(snapshot: Snapshot[Any], site: str) -> list[WorkloadSnapshot]:
    return [workload for workload in snapshot.workloads if workload.site == site]


def _first(draft: StepPlan, stops: list[Call], inverse: list[Call]) -> StepPlan:
    summary = f"workloads stop; {draft.summary}" if stops else draft.summary
    return replace(draft, summary=summary, calls=(*stops, *draft.calls), inverse=(*draft.inverse, *inverse))


def _last(draft: StepPlan, calls: list[Call], inverse: list[Call]) -> StepPlan:
    verbs = dict.fromkeys(call.goal.value for call in calls)
    summary = f"{draft.summary}; then workloads {' and '.join(verbs)}" if calls else draft.summary
    return replace(draft, summary=summary, calls=(*draft.calls, *calls), inverse=(*inverse, *draft.inverse))
