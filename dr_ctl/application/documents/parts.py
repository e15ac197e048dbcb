"""What stands in the documents of many commands: the envelope, findings, debts, units, bounds, plans, calls."""

from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

from dr_ctl.application.result import SCHEMA
from dr_ctl.core.model import ExitCode, Health, Role, Severity
from dr_ctl.engine.debts import DebtKind
from dr_ctl.rpo.bounds.result import QueueBound

C = TypeVar("C")
D = TypeVar("D")


def words(*every: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(dict.fromkeys(every))})


Moment = Annotated[str, Field(description="ISO 8601, in UTC")]
RoleWord = Annotated[str, words(*(each.value for each in Role))]
Nothing = Annotated[dict[str, Any], Field(max_length=0, description="where the command ended before it had any data")]
"""An object without keys."""


class FindingDocument(TypedDict):
    """A fact worth attention, and what to do."""

    id: str
    severity: Annotated[str, words(*(each.value for each in Severity))]
    text: str
    remedy: str


class DebtDocument(TypedDict):
    """Something that is owed since a site was lost."""

    kind: Annotated[str, words(*(each.value for each in DebtKind))]
    site: str
    kept_at: str
    since: Moment
    lasting: bool
    text: str
    remedy: str


class Envelope(TypedDict, Generic[C, D]):
    """The one document of a command."""

    schema: Annotated[str, words(SCHEMA)]
    command: C
    outcome: Annotated[str, words(*(code.outcome for code in ExitCode), *(health.name.lower() for health in Health))]
    exit_code: Annotated[
        int, WithJsonSchema({"type": "integer", "enum": sorted({*map(int, ExitCode), *map(int, Health)})})
    ]
    run: Annotated[str | None, Field(description="the run that the command made, or speaks of")]
    summary: str
    findings: list[FindingDocument]
    debts: list[DebtDocument]
    data: D


class UnitDocument(TypedDict):
    """A pair, or a queue where queues move one by one."""

    name: str
    serving: Annotated[str | None, Field(description="the site that serves it; null where none is seen to")]


class BoundDocument(TypedDict):
    """null: not known."""

    at_most: int | None
    likely: int | None
    read_at: Moment | None


class LostDocument(BoundDocument):
    because: Annotated[str | None, Field(description="the arithmetic in one sentence")]


class BoundsDocument(TypedDict):
    """What a failover costs: messages lost, and messages that come twice."""

    lost: LostDocument
    duplicates: BoundDocument
    queues: list[QueueBound]
    age_s: float | None
    because: str | None


class OutDocument(TypedDict):
    """For how long clients were out, in seconds; null where nothing tells."""

    at_least: float | None
    at_most: float | None


class OutOfLostDocument(OutDocument):
    last_served: Moment | None
    seen_down: Moment | None


@with_config({"extra": "allow"})
class CallDocument(TypedDict):
    """A request that changes something. Its own keys depend on what it goes to: `bean`, `operation` and `arguments` of
    a management call, the words of a command."""

    site: str
    pair: str
    goal: str
    thing: str
    part: str
    about: str
    when: str | None
    at_most: int | None


class StepDocument(TypedDict):
    number: int
    verb: str
    site: str
    about: str
    calls: list[CallDocument]
    inverse: Annotated[list[CallDocument], Field(description="what undoes it")]
    limits: dict[str, float]
    undoable: bool
    cut_off: bool


class AskDocument(TypedDict):
    """What was asked for."""

    operation: str
    target: str
    timeout_s: float | None
    cut_in_flight: bool
    accept_difference: dict[str, int]
    expect_serving: str | None
    accept_loss: int | Literal["unknown"] | None
    presume_down: str | None
    reason: str | None
    max_outage_s: float | None
    units: NotRequired[list[str]]
    silent_since: NotRequired[Moment]
    queues: NotRequired[str]
    accept_duplicates: NotRequired[int | Literal["unknown"]]


class PlanDocument(TypedDict):
    """A plan, as `plan --out` saves it."""

    schema: Literal["dr-ctl/plan/1"]
    ask: AskDocument
    source: str
    target: str
    serving: list[str]
    moved: list[str]
    untouched: list[str]
    served: dict[str, str]
    steps: list[StepDocument]
    point_of_no_return: Annotated[int | None, Field(description="the number of that step")]
    findings: list[FindingDocument]
    baseline: Annotated[dict[str, Any], Field(description="by site and pair: what an undo restores")]
    not_replicated: list[str]
    cannot_know: list[str]
    basis: Annotated[dict[str, Any], Field(description="what the plan was decided from; `--plan` refuses another one")]
    as_if_lost: NotRequired[str]
