"""A plan as a value: the steps, their exact calls, and the calls that undo them.

A dry run prints the same object that a run executes, so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.verbs import NO_RETURN

_CALL: Final = ("site", "pair", "goal", "thing", "part", "about", "when", "at_most")


@dataclass(frozen=True, slots=True)
class Call:
    """One request that changes something at one broker, and what it is for.

    `unit` names the moving unit that the call belongs to, or is "". `thing` names the door, queue or role that the goal
    is about; `part` names the part of its step. `request` is opaque to all but the sender. `when` is None for a call
    that always goes out, else the condition for sending; `at_most` bounds how often.
    """

    site: str
    unit: str
    goal: Goal
    thing: str
    request: Mapping[str, Json] = field(hash=False)
    about: str
    when: str | None = None
    at_most: int = 1
    part: str = ""

    def as_json(self) -> dict[str, Json]:
        return {
            "site": self.site,
            "pair": self.unit,
            "goal": self.goal.value,
            "thing": self.thing,
            "part": self.part,
            **self.request,
            "about": self.about,
            "when": self.when,
            "at_most": self.at_most,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Call:
        return cls(
            site=row["site"],
            unit=row["pair"],
            goal=Goal(row["goal"]),
            thing=row["thing"],
            request={key: value for key, value in row.items() if key not in _CALL},
            about=row["about"],
            when=row["when"],
            at_most=row["at_most"],
            part=row["part"],
        )


def in_part(part: str, calls: Iterable[Call]) -> list[Call]:
    return [replace(call, part=part) for call in calls]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One verb of the runbook with its site, its calls and the calls that undo them.

    `limits` are the step's numbers in seconds or counts, by the names of the runbook. `inverse` restores everything
    observed at the start; an undo makes only those calls whose effect does not hold yet. `cut_off`: a hook before it
    keeps clients out of a site that does not answer.
    """

    number: int
    verb: str
    site: str
    about: str
    calls: tuple[Call, ...] = ()
    inverse: tuple[Call, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    undoable: bool = True
    cut_off: bool = False

    @property
    def id(self) -> str:
        return f"{self.number:02d}-{self.verb}"

    def part(self, name: str) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.part == name)

    def as_json(self) -> dict[str, Json]:
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        calls, inverse = ([call.as_json() for call in calls] for calls in (self.calls, self.inverse))
        return row | {"calls": calls, "inverse": inverse, "limits": dict(self.limits)}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> PlannedStep:
        calls, inverse = (tuple(Call.from_json(call) for call in row[key]) for key in ("calls", "inverse"))
        return cls(**{**row, "calls": calls, "inverse": inverse})


@dataclass(frozen=True, slots=True)
class Ask:
    """The operator's request: the operation, its target, and the options that shape it.

    `units` names the units to move, and is None for all; other units stay untouched. `queues` is the pattern that chose
    them. `silent_since` is the operator's word on when a lost site's service ended.
    """

    operation: str
    target: str
    timeout_s: float | None = None
    cut_in_flight: bool = False
    accept_difference: Mapping[str, int] = field(default_factory=dict)
    expect_serving: str | None = None
    accept_loss: int | Literal["unknown"] | None = None
    presume_down: str | None = None
    reason: str | None = None
    max_outage_s: float | None = None
    units: tuple[str, ...] | None = None
    silent_since: str | None = None
    queues: str | None = None
    accept_duplicates: int | Literal["unknown"] | None = None

    def includes(self, unit: str | None) -> bool:
        """Say whether that unit is to move; False for None."""
        return unit is not None and (self.units is None or unit in self.units)

    def as_json(self) -> dict[str, Json]:
        part: dict[str, Json] = {} if self.units is None else {"units": list(self.units)}
        if self.silent_since is not None:
            part["silent_since"] = self.silent_since
        if self.queues is not None:
            part["queues"] = self.queues
        if self.accept_duplicates is not None:
            part["accept_duplicates"] = self.accept_duplicates
        return {
            "operation": self.operation,
            "target": self.target,
            "timeout_s": self.timeout_s,
            "cut_in_flight": self.cut_in_flight,
            "accept_difference": dict(self.accept_difference),
            "expect_serving": self.expect_serving,
            "accept_loss": self.accept_loss,
            "presume_down": self.presume_down,
            "reason": self.reason,
            "max_outage_s": self.max_outage_s,
            **part,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Ask:
        return cls(**{**row, "units": tuple(row["units"])} if "units" in row else row)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every step in order. `baseline` is what dr-ctl may set, as it was before the run; undo restores exactly that.

    `serving` lists the sites that served before the run, `moved` the units that the target serves already. `untouched`
    lists units that nobody asked to move, and `served` the site of each. `basis` is the state that the plan was decided
    from, without counters. `as_if_lost`: the plan is of a disaster that has not happened, with this site lost; such a
    plan is never carried out.
    """

    ask: Ask
    source: str
    steps: tuple[PlannedStep, ...]
    findings: tuple[Finding, ...]
    baseline: Mapping[str, Json]
    not_replicated: tuple[str, ...]
    cannot_know: tuple[str, ...]
    serving: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    served: Mapping[str, str] = field(default_factory=dict)
    basis: Mapping[str, Json] = field(default_factory=dict)
    as_if_lost: str | None = None

    @property
    def target(self) -> str:
        return self.ask.target

    def as_json(self) -> dict[str, Json]:
        return {
            "schema": "dr-ctl/plan/1",
            "ask": self.ask.as_json(),
            "source": self.source,
            "target": self.target,
            "serving": list(self.serving),
            "moved": list(self.moved),
            "untouched": list(self.untouched),
            "served": dict(self.served),
            "steps": [step.as_json() for step in self.steps],
            "point_of_no_return": next((step.number for step in self.steps if step.verb == NO_RETURN), None),
            "findings": [finding.as_json() for finding in self.findings],
            "baseline": dict(self.baseline),
            "not_replicated": list(self.not_replicated),
            "cannot_know": list(self.cannot_know),
            "basis": dict(self.basis),
            **({} if self.as_if_lost is None else {"as_if_lost": self.as_if_lost}),
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """All reasons at once why no plan may run; no call was made, whatever the code. `plan` is the one that is refused
    for its loss alone."""

    findings: tuple[Finding, ...]
    code: ExitCode = ExitCode.PRECHECK_FAILED
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The wanted state was seen to hold, so no plan is needed."""

    text: str
    findings: tuple[Finding, ...]


Decision = Plan | Refusal | AlreadyThere
