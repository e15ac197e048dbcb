"""What stands in the documents of commands beside the results that are documents themselves: `data` as each command
puts it together.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from dr_ctl.application.documents.schema import Envelope
from dr_ctl.application.history import Turn
from dr_ctl.application.recovery_options import Way
from dr_ctl.application.verdicts import Verdict
from dr_ctl.core.model import Role
from dr_ctl.engine.plan import Call, Plan
from dr_ctl.engine.ports import Check, UnitSnapshot
from dr_ctl.engine.record import CheckedRun, Record
from dr_ctl.rpo.bounds.result import Bounds
from dr_ctl.topologies.topology import LinkSnapshot, WorkloadSnapshot

Moment = Annotated[str, Field(description="ISO 8601, in UTC")]


class OutOfLostDocument(TypedDict):
    """For how long clients were out of a site that was lost, in seconds; null where nothing tells."""

    at_least: float | None
    at_most: float | None
    last_served: Moment | None
    seen_down: Moment | None


class SiteDocument(TypedDict):
    role: Role


class SiteAtWork(SiteDocument):
    """null: not known. Of `status` alone."""

    clients: Annotated[int | None, Field(description="connections at the clients' listeners")]
    in_per_s: float | None
    consumed_per_s: float | None


class LockDocument(TypedDict):
    """The lock as one broker holds it."""

    site: str
    pair: str
    epoch: int
    run: str | None
    what: str | None
    holder: str | None
    host: str | None
    pid: int | None
    live: bool
    released: bool
    left_s: float | None
    paused_before: list[str]
    paused: dict[str, list[str]]


class StatusData(TypedDict):
    sites: dict[str, SiteAtWork]
    pairs: list[UnitSnapshot]
    links: list[LinkSnapshot]
    workloads: list[WorkloadSnapshot]
    open_run: str | None
    ways_out: list[Way]
    last_served: Moment | None
    last_look: Annotated[Moment | None, Field(description="of the monitor")]
    locks: list[LockDocument]
    estimate: Annotated[
        dict[str, Any] | None,
        Field(description="`made_at`, `age_s`, and the data of `rpo estimate` as the version made it that stored it"),
    ]
    bounds: Annotated[Bounds | None, Field(description="of a failover, had the serving site been lost by now")]


class ValidateData(TypedDict):
    operations: dict[str, Verdict]
    pairs: list[UnitSnapshot]
    fence: Annotated[dict[str, str | None], Field(description="by site: how strong a fence can be there")]
    last_look: Moment | None
    rehearsed_at: Moment | None
    bounds: Annotated[Bounds | None, Field(description="of a failover, had the serving site been lost by now")]
    checks: NotRequired[Annotated[list[Check], Field(description="with --verbose")]]


class OfflineData(TypedDict):
    """Of `validate --offline`."""

    settings: str
    topology: str
    checks: list[Check]


class VerifyData(TypedDict):
    pairs: list[UnitSnapshot]
    gate: NotRequired[Annotated[dict[str, Any], Field(description="`text`, and by pair what was compared")]]


class ProblemDocument(TypedDict):
    health: Literal["ok", "warning", "critical", "unknown"]
    text: str


class CheckData(TypedDict):
    sites: dict[str, SiteDocument]
    pairs: list[UnitSnapshot]
    problems: list[ProblemDocument]
    open_run: str | None
    newest_look_s: float | None
    rehearsed_at: Moment | None
    bounds: Bounds | None


class ReinstatedDocument(TypedDict):
    run: str | None
    outcome: str
    exit_code: int


class MonitorData(TypedDict):
    looks: int
    rows: int
    reinstated: NotRequired[list[ReinstatedDocument]]


@with_config({"extra": "allow"})
class AgentDocument(TypedDict):
    """How the agent of `sync` stands, as in `sync.json`."""

    at: Moment
    phase: str
    why: str | None
    held_by: str | None
    silent: dict[str, Any]
    queues: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    remembers: dict[str, Any]


class RunbookDocument(TypedDict):
    name: str
    about: str


class RunbooksData(TypedDict):
    runbooks: list[RunbookDocument]


class RunbookData(TypedDict):
    name: str
    text: str


class LintData(TypedDict):
    files: list[str]


class ExplainData(TypedDict):
    id: str
    what: str
    do: str
    costs: str
    undo: str


class BrokerSnapshotDocument(TypedDict):
    site: str
    url: str
    seen: str


class InitData(TypedDict, total=False):
    """Of what was written: from addresses all but the last two, with `--topology` alone the first two."""

    settings: str
    topology: str
    why: str
    to_decide: list[str]
    brokers: list[BrokerSnapshotDocument]
    validate: Annotated[dict[str, Any], Field(description="the verdict on what was written: the data of `validate`")]
    directory: Annotated[str, Field(description="with --examples")]
    files: Annotated[list[str], Field(description="with --examples")]


class SchemaData(TypedDict):
    schema: Annotated[dict[str, Any], Field(description="a JSON Schema, draft 2020-12")]


class OperationData(TypedDict, total=False):
    """Of a command that may change a broker. A dry run has `plan`; a run has `pairs`, `outage_s` and `report`; what was
    refused has what was seen until then."""

    pairs: list[UnitSnapshot]
    outage_s: Annotated[float | None, Field(description="for how long this run kept clients out")]
    report: Annotated[str, Field(description="where the page is")]
    workloads: list[WorkloadSnapshot]
    bounds: Annotated[Bounds, Field(description="the price of a failover")]
    out_s: Annotated[OutOfLostDocument, Field(description="for how long clients were out of a site that was lost")]
    undone: Annotated[bool, Field(description="whether all was put back, and that was verified")]
    left: Annotated[dict[str, Any], Field(description="by what it is: messages that a return could not settle")]
    evidence: Annotated[dict[str, Any], Field(description="what a refusal rests on, as the ids of messages by queue")]
    residue: Annotated[dict[str, Any], Field(description="what a returned site still holds for the other")]
    after: Annotated[list[str], Field(description="what a person may do now")]
    plan: Plan
    approved_by: Annotated[list[str], Field(description="whose signatures stand under the plan of the run")]


MonitoredRun = Envelope[str, OperationData]


class UndoDocument(TypedDict):
    step: str
    calls: list[Call]


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
    plan: Plan
    estimate: Any
    bounds: Bounds
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


class RunsData(TypedDict):
    runs: list[Record]


class ShownStepDocument(TypedDict):
    time: Moment
    step: str | None
    event: str | None
    text: str


class RunData(TypedDict):
    outcome: str
    entries: Annotated[int, Field(description="lines of the journal")]
    steps: NotRequired[list[ShownStepDocument]]


class VerifiedData(TypedDict):
    runs: list[CheckedRun]


class BundleData(TypedDict):
    bundle: Annotated[str, Field(description="where it is")]
    sha256: str
    files: Annotated[list[str], Field(description="the names in it")]


class ReportData(TypedDict):
    report: str


class HistoryData(TypedDict):
    history: list[Turn]
    looks: Annotated[bool, Field(description="whether a monitor has recorded any")]
