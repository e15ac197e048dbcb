"""A plan as a value: the steps, their exact calls, and the calls that undo them.

A dry run prints the same object that a run executes. A call without `when` goes out unless its effect is seen to hold;
a call with `when` goes out if that condition is seen.

`Spec` is the request as typed: the operation with its options. A field that an option sets declares that option, for
the command line, for the plan and for the journal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from dr_ctl.core.document import derived, key, option, optional
from dr_ctl.core.model import ExitCode, Finding, Json
from dr_ctl.engine.operations import NO_RETURN

Accepted = int | Literal["unknown"] | None
"""How many messages may be lost or duplicated; with None the objectives decide."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The operator's request: the operation, its target, and the options that shape it.

    `units` names the units to move, and is None for all; other units stay untouched. `queues` is the pattern that chose
    them. `silent_since` is the operator's word on when a lost site's service ended.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    operation: str
    target: str
    timeout_s: float | None = option("--timeout T", "How long the drain may take, as in 30s or 5m.")
    cut_in_flight: bool = option(
        "--cut-in-flight", "Move although clients hold messages: these are redelivered.", default=False
    )
    accept_difference: Mapping[str, int] = option(
        "--accept-difference QUEUE=N", "Move with exactly this difference.", default=dict
    )
    expect_serving: str | None = option("--expect-serving SITE", "Refuse unless SITE serves.")
    accept_loss: Accepted = option(  # noqa: RUF009 - makes a field
        "--accept-loss N|unknown", "Messages that a failover may lose."
    )
    presume_down: str | None = option("--presume-down SITE", "Take this site for down; needs --reason.")
    reason: str | None = option("--reason TEXT", "Why; the journal keeps it.")
    max_outage_s: float | None = option("--max-outage T", "Undo when clients would be out longer; default: objectives.")
    units: tuple[str, ...] | None = field(default=None, metadata=key(optional=True))
    silent_since: str | None = option(
        "--silent-since T",
        "When the lost site's service ended (10m ago, 03:02 or a date, UTC): bounds the loss; needs --reason.",
        optional=True,
    )
    queues: str | None = option(
        "--queues PATTERN",
        "Only these queues: a name, or a pattern as in Artemis (`orders.#`); where the topology moves queues one by "
        "one.",
        optional=True,
    )
    accept_duplicates: Accepted = option(  # noqa: RUF009
        "--accept-duplicates N|unknown", "Duplicates that this may bring.", optional=True
    )

    def typed(self) -> list[str]:
        """Return the options beside operation and site, as a person types them."""
        words: list[str] = []
        for declared in fields(self):
            name, _, kind = declared.metadata.get("typed", "").partition(" ")
            value = getattr(self, declared.name)
            if not name or value is None or value is False:
                continue
            values = [f"{queue}={count}" for queue, count in value.items()] if kind == "QUEUE=N" else [value]
            for given in values:
                words += [name, f"{given:g}s" if isinstance(given, float) else str(given)] if kind else [name]
        return words

    def includes(self, unit: str | None) -> bool:
        """Say whether that unit is to move; False for None."""
        return unit is not None and (self.units is None or unit in self.units)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run. `reason` and `expect_serving` are options of `Spec`, for commands without one. A run of
    the monitor gives `after`, the newest epoch of a lock in the reading that the run rests on."""

    yes: bool = option("--yes", "Ask nothing.", default=False)
    dry_run: bool = option("--dry-run", "Show the plan that a run would execute; change nothing.", default=False)
    break_lock: bool = option(
        "--break-lock", "Take over the unexpired lock of another run; needs --reason.", default=False
    )
    reason: str | None = None
    expect_serving: str | None = None
    step: bool = option("--step", "Ask before each step; the answer no offers to undo or to stop.", default=False)
    after: int | None = None
    at: datetime | None = option(  # noqa: RUF009
        "--at T", "Wait under the lock until T (02:30, a date, UTC; or 90m), then plan again; refused if that changed."
    )
    saved: Path | None = option(  # noqa: RUF009
        "--plan FILE", "Carry out this saved plan; refuse if its basis has changed."
    )


_CALL_KEYS: Final = ("site", "pair", "goal", "thing", "part", "about", "when", "at_most")


class Goal(Enum):
    """The purpose of a call, whatever its request: the state of its `resource` after the call succeeded."""

    OPEN = "open"  # a listener lets clients in
    CLOSE = "close"
    GRANT = "admit"  # the clients' roles may do what they do
    RESTORE = "restore"  # every role may do just what it did before a fence
    REVOKE = "shut-out"
    CUT = "cut"  # clients' connections are ended
    PAUSE = "pause"  # a queue delivers nothing
    RESUME = "resume"
    CREATE = "write"  # a document, or another queue of dr-ctl's own, exists
    DELETE = "strike"
    LINK_UP = "link-up"  # the link to the peer, or the delivery of messages from it, is started
    LINK_DOWN = "link-down"
    MOVE = "move"  # messages of a queue
    COPY = "copy"  # messages of the peer
    REMOVE = "remove"
    HAND_OVER = "hand-over"  # a broker gives up the store, so that the other one takes it
    START = "start"  # a workload, or a broker's process, runs
    STOP = "stop"
    HOOK = "hook"  # a command of the installation's own


# The resource of a call for every listener, every queue or every role.
ALL: Final = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that changes something at one broker, with its purpose.

    The unit that the call belongs to is "" for a call of the whole site. `resource` names the listener, queue, role or
    document that the goal is about. Calls that one step makes one after the other differ in their phase. Only the
    sender reads `request`. `when` is None for a call that is always sent, else the condition for sending; `at_most`
    bounds how often it is sent.
    """

    site: str
    unit: str = field(metadata=key("pair"))
    goal: Goal
    resource: str = field(metadata=key("thing"))
    phase: str = field(default="", metadata=key("part"), kw_only=True)
    request: Mapping[str, Json] = field(hash=False, metadata=key(flat=True))
    summary: str = field(metadata=key("about"))
    when: str | None = None
    at_most: int = 1

    @classmethod
    def __get_pydantic_core_schema__(cls, of: Any, handler: Any) -> Any:
        from pydantic_core.core_schema import no_info_before_validator_function  # noqa: PLC0415 - to read back locked_file

        made = handler(of)
        definition = handler.resolve_ref_schema(made)
        definition["schema"] = no_info_before_validator_function(_collect_request, definition["schema"])
        return made


def _collect_request(row: Mapping[str, Json]) -> dict[str, Any]:
    own = {name: value for name, value in row.items() if name in _CALL_KEYS}
    return {**own, "request": {name: value for name, value in row.items() if name not in own}}


def in_phase(phase: str, calls: Iterable[Call]) -> list[Call]:
    return [replace(call, phase=phase) for call in calls]


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A verb of the runbook with its site, its calls and the calls that undo them.

    `limits` are the step's numbers in seconds or counts, by the names of the runbook. `inverse` restores everything
    observed at the start; an undo makes only those calls whose effect does not hold yet. `cut_off` says that an earlier
    hook keeps clients out of a site that does not answer.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    number: int
    verb: str
    site: str
    summary: str = field(metadata=key("about"))
    calls: tuple[Call, ...] = ()
    inverse: tuple[Call, ...] = field(default=(), metadata=key(description="what undoes it"))
    limits: Mapping[str, float] = field(default_factory=dict)
    undoable: bool = True
    cut_off: bool = False

    @property
    def id(self) -> str:
        return f"{self.number:02d}-{self.verb}"

    def phase(self, name: str) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.phase == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All steps in order. `baseline` has the settings that dr-ctl may change, as before the run; undo restores them.

    `serving` lists the sites that served before the run, `already_moved` the units that the target serves before it.
    `untouched` lists units that the request does not name, and `served` the site of each. `basis` is the state that the
    plan was decided from, without counters. A plan with `as_if_lost` is never executed: that site is not lost.
    """

    schema: Literal["dr-ctl/plan/1"] = field(default="dr-ctl/plan/1", init=False)
    spec: Spec = field(metadata=key("ask"))
    source: str
    serving: tuple[str, ...] = ()
    already_moved: tuple[str, ...] = field(default=(), metadata=key("moved"))
    untouched: tuple[str, ...] = ()
    served: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[PlannedStep, ...]
    findings: tuple[Finding, ...]
    baseline: Mapping[str, Json] = field(metadata=key(description="by site and pair: what an undo restores"))
    not_replicated: tuple[str, ...]
    cannot_know: tuple[str, ...]
    basis: Mapping[str, Json] = field(
        default_factory=dict, metadata=key(description="what the plan was decided from; `--plan` refuses another one")
    )
    as_if_lost: str | None = optional()

    @derived
    def target(self) -> str:
        return self.spec.target

    @derived
    def point_of_no_return(self) -> int | None:
        return next((step.number for step in self.steps if step.verb == NO_RETURN), None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal with all reasons at once; no call was made. It has the `plan` if only the loss is refused."""

    findings: tuple[Finding, ...]
    code: ExitCode = ExitCode.PRECHECK_FAILED
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The wanted state holds already, so no plan is needed."""

    text: str
    findings: tuple[Finding, ...]


Decision = Plan | Refusal | AlreadyThere


def plan_of(decided: Decision) -> Plan | None:
    """Return the plan that was decided, or is refused only for its loss."""
    return decided if isinstance(decided, Plan) else decided.plan if isinstance(decided, Refusal) else None
