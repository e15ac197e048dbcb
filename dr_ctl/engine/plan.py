"""A plan as a value: its steps, the exact calls of each, what undoes them. Written once, printed, executed, kept.

What a dry run prints and what a run executes are the same object, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dr_ctl.core.model import ExitCode, Finding, Json


@dataclass(frozen=True, slots=True)
class Call:
    """One request that changes something at one broker.

    `when` is None for a call that goes out for certain, else the condition under which it does; `at_most` bounds how
    often it then may. `operation` carries its full signature, because brokers overload names between versions.
    """

    site: str
    pair: str
    bean: str
    operation: str
    arguments: tuple[Json, ...]
    about: str
    when: str | None = None
    at_most: int = 1

    def as_json(self) -> dict[str, Json]:
        return {
            "site": self.site,
            "pair": self.pair,
            "bean": self.bean,
            "operation": self.operation,
            "arguments": list(self.arguments),
            "about": self.about,
            "when": self.when,
            "at_most": self.at_most,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Call:
        return cls(
            site=told["site"],
            pair=told["pair"],
            bean=told["bean"],
            operation=told["operation"],
            arguments=tuple(told["arguments"]),
            about=told["about"],
            when=told["when"],
            at_most=told["at_most"],
        )


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One verb of the runbook, decided: on which site, with which calls, and what undoes them.

    `limits` are the step's numbers in seconds or counts, by the names of the runbook. `inverse` is complete: it puts
    back what was observed at the start, and each of its calls is made only where the state still differs from that.
    """

    number: int
    verb: str
    site: str
    about: str
    calls: tuple[Call, ...] = ()
    inverse: tuple[Call, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    undoable: bool = True

    @property
    def id(self) -> str:
        return f"{self.number:02d}-{self.verb}"

    def as_json(self) -> dict[str, Json]:
        return {
            "number": self.number,
            "verb": self.verb,
            "site": self.site,
            "about": self.about,
            "calls": [call.as_json() for call in self.calls],
            "inverse": [call.as_json() for call in self.inverse],
            "limits": dict(self.limits),
            "undoable": self.undoable,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> PlannedStep:
        return cls(
            number=told["number"],
            verb=told["verb"],
            site=told["site"],
            about=told["about"],
            calls=tuple(Call.from_json(call) for call in told["calls"]),
            inverse=tuple(Call.from_json(call) for call in told["inverse"]),
            limits=dict(told["limits"]),
            undoable=told["undoable"],
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """What the operator asked for: the operation, its target, and the options that shape it."""

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

    def as_json(self) -> dict[str, Json]:
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
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Ask:
        return cls(**told)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every step in order. `baseline` is what dr-ctl may set, as it was before the run; undo restores exactly that.

    `serving` are the sites that served before the run. `basis` is what the plan was decided from: no counters.
    """

    ask: Ask
    source: str
    steps: tuple[PlannedStep, ...]
    findings: tuple[Finding, ...]
    baseline: Mapping[str, Json]
    not_replicated: tuple[str, ...]
    cannot_know: tuple[str, ...]
    serving: tuple[str, ...] = ()
    basis: Mapping[str, Json] = field(default_factory=dict)

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
            "steps": [step.as_json() for step in self.steps],
            "point_of_no_return": next((step.number for step in self.steps if step.verb == "point-of-no-return"), None),
            "findings": [finding.as_json() for finding in self.findings],
            "baseline": dict(self.baseline),
            "not_replicated": list(self.not_replicated),
            "cannot_know": list(self.cannot_know),
            "basis": dict(self.basis),
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plan that may not run, with all the reasons at once. Nothing was changed, whatever the code."""

    findings: tuple[Finding, ...]
    code: ExitCode = ExitCode.PRECHECK_FAILED


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The wanted state holds and was seen to hold: nothing to do."""

    text: str
    findings: tuple[Finding, ...]


Decision = Plan | Refusal | AlreadyThere
