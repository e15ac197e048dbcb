"""The calls that start and stop workloads, and which of them hold. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final, assert_never

from dr_ctl.core.model import Json
from dr_ctl.core.notation import matches
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import UnitSnapshot
from dr_ctl.jolokia import values
from dr_ctl.settings.parts import CamelRoutes, Commands, HttpService, SystemdUnit, Workload
from dr_ctl.topologies.topology import PartState, WorkloadSnapshot

WANTED: Final = {Goal.START: PartState.RUNNING, Goal.STOP: PartState.STOPPED}
# With `true` a route whose work takes longer goes on as before, instead of being cut; the answer is then false.
CAMEL_STOP: Final = "stop(java.lang.Long,java.lang.Boolean)"


def concerned(workload: Workload, ask: Ask, units: Sequence[UnitSnapshot]) -> bool:
    """Say whether a workload moves: with a whole site every one does, with units the ones that work on them."""
    if ask.units is None or {unit.name for unit in units} <= set(ask.units):
        return True
    return any(matches(workload.queues, unit) for unit in ask.units)


def call(site: str, workload: Workload, part: str, goal: Goal) -> Call:
    """Start or stop one part of a workload."""
    of = f" of {workload.name}" if part != workload.name else ""
    about = f"{goal.value} {_short(part)}{of} at {site}"
    return Call(site, "", goal, workload.name, {"workload": part, **_request(workload, part, goal)}, about)


def known_parts(workload: Workload) -> tuple[str, ...]:
    """The parts that are known without a look: a route's full name is not."""
    return () if isinstance(workload, CamelRoutes) else (workload.name,)


def part_of_call(call: Call) -> str:
    return str(call.request["workload"])


def holds(call: Call, snapshot: WorkloadSnapshot) -> bool:
    """Say whether a call's effect was seen; never where nothing was read."""
    return snapshot.parts.get(part_of_call(call)) is WANTED[call.goal]


def mine(calls: Iterable[Call]) -> list[Call]:
    """The calls among these that are for workloads."""
    return [call for call in calls if _is_mine(call)]


def without_mine(step: PlannedStep) -> PlannedStep:
    """A step as its topology knows it."""
    kept, inverse = (tuple(call for call in every if not _is_mine(call)) for every in (step.calls, step.inverse))
    return replace(step, calls=kept, inverse=inverse)


def _is_mine(call: Call) -> bool:
    """A broker's process is started and stopped too, by its topology; a workload is of no broker."""
    return call.goal in WANTED and not call.unit


def _short(part: str) -> str:
    """A route by its id, not by the whole name of its bean."""
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
