"""The calls that start and stop workloads, and which of them hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final, assert_never

from dr_ctl.core.model import Json
from dr_ctl.core.patterns import matches
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Ask, Call, PlannedStep
from dr_ctl.engine.ports import UnitSeen
from dr_ctl.jolokia import beans
from dr_ctl.settings.workloads import CamelRoutes, Commands, HttpService, SystemdUnit, Workload
from dr_ctl.topologies.topology import PartState, WorkloadSeen

WANTED: Final = {Goal.START: PartState.RUNNING, Goal.STOP: PartState.STOPPED}
# With `true` a route whose work takes longer goes on as before, instead of being cut; the answer is then false.
CAMEL_STOP: Final = "stop(java.lang.Long,java.lang.Boolean)"


def concerned(told: Workload, ask: Ask, units: Sequence[UnitSeen]) -> bool:
    """Say whether a workload moves: with all of a site every one does, with a part of it those that work on it."""
    if ask.units is None or {unit.name for unit in units} <= set(ask.units):
        return True
    return any(matches(told.queues, unit) for unit in ask.units)


def call(site: str, told: Workload, part: str, goal: Goal) -> Call:
    """Start or stop one part of a workload."""
    of = f" of {told.name}" if part != told.name else ""
    about = f"{goal.value} {_short(part)}{of} at {site}"
    return Call(site, "", goal, told.name, {"workload": part, **_request(told, part, goal)}, about)


def calls(site: str, told: Workload, parts: Iterable[str], goal: Goal) -> list[Call]:
    return [call(site, told, part, goal) for part in parts]


def known_parts(told: Workload) -> tuple[str, ...]:
    """The parts that are known without a look: a route's full name is not."""
    return () if isinstance(told, CamelRoutes) else (told.name,)


def part_of_call(call: Call) -> str:
    return str(call.request["workload"])


def holds(call: Call, seen: WorkloadSeen) -> bool:
    """Say whether a call's effect was seen; never where nothing was read."""
    return seen.parts.get(part_of_call(call)) is WANTED[call.goal]


def mine(calls: Iterable[Call]) -> list[Call]:
    """Those of these calls that are for workloads."""
    return [call for call in calls if _is_mine(call)]


def without_mine(step: PlannedStep) -> PlannedStep:
    """A step as its topology knows it."""
    bare = (tuple(call for call in every if not _is_mine(call)) for every in (step.calls, step.inverse))
    kept, inverse = bare
    return replace(step, calls=kept, inverse=inverse)


def _is_mine(call: Call) -> bool:
    """A broker's process is started and stopped too, by its topology; a workload is of no broker."""
    return call.goal in WANTED and not call.unit


def _short(part: str) -> str:
    """A route by its id, not by the whole name of its bean."""
    if ":" not in part:
        return part
    try:
        return f"route {beans.parts(part).get('name', part)}"
    except ValueError:
        return part


def _request(told: Workload, part: str, goal: Goal) -> Mapping[str, Json]:
    starts = goal is Goal.START
    match told:
        case CamelRoutes():
            operation, arguments = ("start()", []) if starts else (CAMEL_STOP, [ceil(told.timeout), True])
            return {"bean": part, "operation": operation, "arguments": [*arguments]}
        case SystemdUnit():
            return {"run": [*systemctl(told), goal.value, told.unit]}
        case Commands():
            return {"run": [*(told.start if starts else told.stop)]}
        case HttpService():
            return {"post": (told.start if starts else told.stop).post}
        case _:
            assert_never(told)


def systemctl(told: SystemdUnit) -> list[str]:
    return ["systemctl", *(["--host", told.host] if told.host is not None else [])]
