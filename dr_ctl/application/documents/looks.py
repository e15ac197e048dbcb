"""Documents of commands that only look: at the installation, at its settings, at dr-ctl itself."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from dr_ctl.application.documents.estimates import StoredEstimate
from dr_ctl.application.documents.parts import BoundsDocument, Moment, RoleWord, UnitDocument
from dr_ctl.application.documents.runs import WorkloadDocument


class SiteDocument(TypedDict):
    role: RoleWord


class SiteAtWork(SiteDocument):
    """null: not known. Of `status` alone."""

    clients: Annotated[int | None, Field(description="connections at the clients' doors")]
    in_per_s: float | None
    consumed_per_s: float | None


class LinkDocument(TypedDict):
    """The replication of a pair in one direction. null: not known. Keys below `pending_acks` are of some
    topologies."""

    site: Annotated[str, Field(alias="from")]
    pair: str
    name: str | None
    started: bool | None
    attached: bool | None
    outflow: int | None
    rate: Annotated[float | None, Field(description="by how many a second the outflow shrinks")]
    drain_s: float | None
    pending_acks: int | None
    last_attached: NotRequired[Moment | None]
    loss_risk: NotRequired[int | None]
    duplicate_risk: NotRequired[int | None]
    recovery_point_s: NotRequired[float | None]
    recovery_time_s: NotRequired[float | None]
    queues: NotRequired[dict[str, int | None]]
    ids_to_ship: NotRequired[int | None]
    producers: NotRequired[int]
    held: NotRequired[bool | None]
    holder: NotRequired[str | None]
    lease_s: NotRequired[float | None]
    process: NotRequired[bool | None]


class WayDocument(TypedDict):
    """A command that ends an interrupted run."""

    command: str
    serves: str | None
    cost: str
    recommended: bool


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
    pairs: list[UnitDocument]
    links: list[LinkDocument]
    workloads: list[WorkloadDocument]
    open_run: str | None
    ways_out: list[WayDocument]
    last_served: Moment | None
    last_look: Annotated[Moment | None, Field(description="of the monitor")]
    locks: list[LockDocument]
    estimate: Annotated[
        StoredEstimate | dict[str, Any] | None,
        Field(description="one that another version made is as that version made it"),
    ]
    bounds: Annotated[BoundsDocument | None, Field(description="of a failover, had the serving site been lost by now")]


class VerdictDocument(TypedDict):
    """What the command of an operation would answer now."""

    to: str | None
    verdict: str
    exit_code: Annotated[int, Field(description="0 ready, 10 not, 22 not known")]
    needs: Annotated[list[str], Field(description="options to add")]


class NamedCheckDocument(TypedDict):
    name: str
    where: str
    verdict: Literal["holds", "warns", "fails", "not read"]
    evidence: str | None
    age_s: float | None
    findings: Annotated[list[str], Field(description="their ids")]


class ValidateData(TypedDict):
    operations: dict[str, VerdictDocument]
    pairs: list[UnitDocument]
    fence: Annotated[dict[str, str | None], Field(description="by site: how strong a fence can be there")]
    last_look: Moment | None
    rehearsed_at: Moment | None
    bounds: Annotated[BoundsDocument | None, Field(description="of a failover, had the serving site been lost by now")]
    checks: NotRequired[Annotated[list[NamedCheckDocument], Field(description="with --verbose")]]


class OfflineData(TypedDict):
    """Of `validate --offline`."""

    settings: str
    topology: str
    checks: list[NamedCheckDocument]


class VerifyData(TypedDict):
    pairs: list[UnitDocument]
    gate: NotRequired[Annotated[dict[str, Any], Field(description="`text`, and by pair what was compared")]]


class ProblemDocument(TypedDict):
    health: Literal["ok", "warning", "critical", "unknown"]
    text: str


class CheckData(TypedDict):
    sites: dict[str, SiteDocument]
    pairs: list[UnitDocument]
    problems: list[ProblemDocument]
    open_run: str | None
    newest_look_s: float | None
    rehearsed_at: Moment | None
    bounds: BoundsDocument | None


class LookDocument(TypedDict):
    """A look of the monitor."""

    ts: Moment
    roles: dict[str, RoleWord]
    outflows: dict[str, int | None]
    history: dict[str, Any]


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


class BrokerSeenDocument(TypedDict):
    site: str
    url: str
    seen: str


class InitData(TypedDict, total=False):
    """Of what was written: from addresses all but the last two, with `--topology` alone the first two."""

    settings: str
    topology: str
    why: str
    to_decide: list[str]
    brokers: list[BrokerSeenDocument]
    validate: Annotated[dict[str, Any], Field(description="the verdict on what was written: the data of `validate`")]
    directory: Annotated[str, Field(description="with --examples")]
    files: Annotated[list[str], Field(description="with --examples")]


class SchemaData(TypedDict):
    schema: Annotated[dict[str, Any], Field(description="a JSON Schema, draft 2020-12")]
