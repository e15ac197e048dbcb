"""Documents of commands that make runs, or tell of them."""

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from dr_ctl.application.documents.parts import (
    BoundsDocument,
    CallDocument,
    Moment,
    OutDocument,
    OutOfLostDocument,
    PlanDocument,
    UnitDocument,
    words,
)
from dr_ctl.engine.seal import Verdict


class WorkloadDocument(TypedDict):
    """What works on a site's messages and moves with the service."""

    site: str
    name: str
    kind: str
    singleton: bool
    state: str
    parts: dict[str, str]
    detail: str | None
    silent: str | None


class OperationData(TypedDict, total=False):
    """Of a command that may change a broker. A dry run has `plan`; a run has `pairs`, `outage_s` and `report`; what was
    refused has what was seen until then."""

    pairs: list[UnitDocument]
    outage_s: Annotated[float | None, Field(description="for how long this run kept clients out")]
    report: Annotated[str, Field(description="where the page is")]
    workloads: list[WorkloadDocument]
    bounds: Annotated[BoundsDocument, Field(description="the price of a failover")]
    out_s: Annotated[OutOfLostDocument, Field(description="for how long clients were out of a site that was lost")]
    undone: Annotated[bool, Field(description="whether all was put back, and that was verified")]
    left: Annotated[dict[str, Any], Field(description="by what it is: messages that a return could not settle")]
    evidence: Annotated[dict[str, Any], Field(description="what a refusal rests on, as the ids of messages by queue")]
    residue: Annotated[dict[str, Any], Field(description="what a returned site still holds for the other")]
    after: Annotated[list[str], Field(description="what a person may do now")]
    plan: PlanDocument
    approved_by: Annotated[list[str], Field(description="whose signatures stand under the plan of the run")]


class UndoDocument(TypedDict):
    step: str
    calls: list[CallDocument]


class AbortData(OperationData, total=False):
    undo: Annotated[list[UndoDocument], Field(description="with --dry-run: what would be undone")]
    serves: Annotated[list[str], Field(description="with --dry-run: who would serve then")]


class SettleData(OperationData, total=False):
    """Of `sync --settle` and of the agent's end; `standing` of `sync --hold`."""

    queues: list[dict[str, Any]]
    deleted: int
    left: Any
    standing: str


class PlanData(TypedDict, total=False):
    plan: PlanDocument
    estimate: Any
    bounds: BoundsDocument
    residue: Annotated[dict[str, Any], Field(description="what a returned site still holds for the other")]
    as_if_lost: str
    role: str


class ApproveData(TypedDict):
    """Of `plan approve`."""

    plan: str
    signature: str
    signer: str
    key: str
    approved_by: list[str]
    needed: int


class TwinData(TypedDict):
    """Of `rehearse --on twin`."""

    at: Moment
    topology: str
    sites: list[str]
    queues: dict[str, int]
    notes: list[str]
    variations: list[dict[str, Any]]
    ends: Annotated[dict[str, int], Field(description="by exit code: how many commands ended so")]
    outage_s: dict[str, float] | None
    took_s: float
    evidence: str


class RecordDocument(TypedDict):
    """A run in short; null is not known."""

    run: str
    operation: str | None
    source: str | None
    target: str | None
    queues: NotRequired[str]
    approved_by: NotRequired[list[str]]
    began: Moment | None
    ended: Moment | None
    took_s: float | None
    by: str | None
    reason: str | None
    outcome: str
    out_s: OutDocument | None
    debts: list[str]
    summary: str


class RunsData(TypedDict):
    runs: list[RecordDocument]


class ShownStepDocument(TypedDict):
    time: Moment
    step: str | None
    event: str | None
    text: str


class RunData(TypedDict):
    outcome: str
    entries: Annotated[int, Field(description="lines of the journal")]
    steps: NotRequired[list[ShownStepDocument]]


class CheckedDocument(TypedDict):
    run: str
    verdict: Annotated[str, words(*(each.value for each in Verdict))]
    lines: int
    line: Annotated[int | None, Field(description="the first that does not fit")]
    text: str


class VerifiedData(TypedDict):
    runs: list[CheckedDocument]


class BundleData(TypedDict):
    bundle: Annotated[str, Field(description="where it is")]
    sha256: str
    files: Annotated[list[str], Field(description="the names in it")]


class ReportData(TypedDict):
    report: str


class TurnDocument(TypedDict):
    """A moment from which on somebody else serves, or nobody does."""

    at: Moment
    about: Annotated[bool, Field(description="the moment is about so: between two looks")]
    serving: str | None
    known: bool
    out_s: OutDocument | None
    run: str | None
    epoch: int | None
    by: str | None
    reason: str | None
    outcome: str | None
    text: str


class HistoryData(TypedDict):
    history: list[TurnDocument]
    looks: Annotated[bool, Field(description="whether a monitor has recorded any")]
