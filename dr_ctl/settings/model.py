"""Types for the settings that every topology has, and the commands, files and secrets that they name. The loader
reports contradictions between parts, together with all other errors; `validate` reports unwise settings. A
broker that a console manages is at one address, or at those of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, Self, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dr_ctl.core.errors import UsageError
from dr_ctl.core.model import ExitCode
from dr_ctl.core.notation import seconds
from dr_ctl.core.tls import TlsFiles
from dr_ctl.settings.parts import (
    Duration,
    HttpAddress,
    Names,
    Seconds,
    Secret,
    Section,
    StompAddress,
    Words,
    Workload,
    listed,
)

SiteName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]


class Broker(Section):
    """A broker of a site."""

    name: str = Field(min_length=1, description="the same name at both sites makes a pair")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, which no other broker has; the name where the topology has none."""
        return (self.name,)


B = TypeVar("B", bound=Broker)
S = TypeVar("S", bound="Settings")
B_co = TypeVar("B_co", bound=Broker, covariant=True)


class Tls(Section):
    """Files of the site's TLS. Verification is on; `verify: false` turns it off and every command says so."""

    files = ("ca",)

    ca: str | None = Field(
        default=None, description="file (PEM) of the authorities that signed the brokers' certificates"
    )
    cert: str | None = Field(default=None, description="file of the certificate to show")
    key: str | None = Field(default=None, description="file of its key; without: in the certificate's file")
    verify: bool = Field(default=True, description="`false` turns verification off")


class Site(Section, Generic[B_co]):
    """A place with its brokers."""

    brokers: Annotated[tuple[B_co, ...], BeforeValidator(listed)] = Field(min_length=1)
    tls: Tls = Field(default_factory=Tls)
    origin: str | None = Field(
        default=None, description="`Origin` header for Jolokia; without: scheme and host of the address"
    )
    workloads: Annotated[tuple[Workload, ...], BeforeValidator(listed)] = Field(
        default=(), description="programs that work on the messages here, and start and stop with the service"
    )

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [workload.name for workload in self.workloads]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"a second workload is called {twice[0]}")
        return self


class Queues(Section):
    """The queues for quiesce, parity and estimate. The gate checks all queues."""

    include: Names = Field(
        default=("#",),
        min_length=1,
        description="patterns as in Artemis (`orders.#`, `*.in`) of the queues for quiesce, parity and estimate; "
        "the gate checks all queues",
    )
    exclude: Names = Field(default=(), description="patterns of queues to leave out there")


class Loss(Section):
    messages: Annotated[int, Field(ge=0)] | None = Field(default=None, description="the limit on lost messages")
    age: Seconds | None = Field(default=None, description="the greatest age of a message that a failure may lose")


class Duplicates(Section):
    messages: Annotated[int, Field(ge=0)] = Field(
        description="the most that may be delivered a second time after a failover without `--accept-duplicates`"
    )


class ClassObjective(Section):
    queues: Names = Field(min_length=1, description="patterns of queues that have a `loss` of their own")
    loss: Loss


class Objectives(Section):
    """Limits on the loss of a failover and on the time of a planned move."""

    loss: Loss = Field(default_factory=lambda: Loss(messages=0))
    duplicates: Duplicates | None = Field(
        default=None, description="without it a failover with possible duplicates needs `--accept-duplicates`"
    )
    recovery: Duration | None = Field(default=None, description="planned time until clients are served again")
    classes: Annotated[tuple[ClassObjective, ...], BeforeValidator(listed)] = ()


class Drain(Section):
    timeout: Duration = Field(default="1m", validate_default=True, description="how long a drain may take")
    poll: Duration = Field(default="20ms", validate_default=True, description="interval between two readings")
    stable: int = Field(default=3, ge=1, description="readings in a row in which the gate must hold, at least two")
    stall: Duration = Field(
        default="20s",
        validate_default=True,
        description="a drain that makes no progress for so long fails. A reinstatement has no other limit, unless "
        "`--timeout` is given, so this may be longer than `timeout`",
    )


SCHEMES: Final = {"s3": "S3FileSystem", "gs": "GcsFileSystem", "hdfs": "HadoopFileSystem"}
"""The schemes of URLs of a history elsewhere, with PyArrow's class for each."""
S3_KEYS: Final = frozenset({"endpoint_override", "region", "scheme"})


def _reachable(value: object) -> object:
    """Accept a directory, its `file:` URL, or a URL for which this PyArrow has a file system."""
    if not isinstance(value, str) or ("://" not in value and not value.startswith("file:")):
        return value
    url = urlsplit(value)
    if url.scheme == "file":
        if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
            raise ValueError(f"{value} names no directory of this machine: file:///DIRECTORY does")
        return unquote(url.path)
    if url.scheme not in SCHEMES:
        raise ValueError(f"{value} is neither a directory nor a URL as file:///, s3://, gs:// or hdfs://")
    if url.password is not None or not url.netloc:
        raise ValueError("names no store, or a password: credentials come from the environment of who reads and writes")
    if url.scheme == "s3" and (odd := sorted({key for key, _ in parse_qsl(url.query)} - S3_KEYS)):
        raise ValueError(f"{odd[0]} is none of {', '.join(sorted(S3_KEYS))}")
    from pyarrow import fs  # noqa: PLC0415 - takes a tenth of a second, and most histories are directories

    try:
        getattr(fs, SCHEMES[url.scheme])
    except (ImportError, AttributeError) as error:
        raise ValueError(f"this PyArrow has no file system for {url.scheme}://: {error}") from error
    return value


class HistoryLocation(NamedTuple):
    """A folder, or a URL. The folder `near` on this machine always has the last minute, or hours."""

    where: str
    near: Path

    @classmethod
    def at(cls, folder: Path) -> HistoryLocation:
        return cls(str(folder), folder)

    @property
    def folder(self) -> Path | None:
        return None if "://" in self.where else self.near

    @property
    def shown(self) -> str:
        return self.where.partition("?")[0]


class HistorySettings(Section):
    path: Annotated[str, BeforeValidator(_reachable)] = Field(
        default="history",
        description="the directory that `monitor` writes, or a URL: `file:///`, `s3://`, `gs://` or `hdfs://`, with "
        "what PyArrow takes behind a `?` (of S3 `region`, `endpoint_override`, `scheme`); credentials come from the "
        "environment",
    )
    near: str = Field(
        default="history",
        description="where `path` is a URL: the directory that has the last hours too, so that a failover waits for no "
        "store",
    )
    every: Duration = Field(default="5s", validate_default=True, description="interval of full readings")
    outflow: Duration = Field(
        default="250ms",
        validate_default=True,
        description="interval of readings of what is still to ship, in between, where the topology allows "
        "them: a few milliseconds a broker, for a closer loss bound",
    )
    keep: Duration = Field(
        default="30d",
        validate_default=True,
        description="how long samples are kept: a day counts only if it has samples of the site",
    )

    @field_validator("outflow")
    @classmethod
    def _in_between(cls, outflow: float, info: ValidationInfo) -> float:
        if outflow > max(info.data.get("every", outflow), seconds(cls.model_fields["outflow"].default)):
            raise ValueError("is longer than every, between whose readings it is to read: lower it, or raise every")
        return outflow


class SparkSettings(Section):
    master: str = Field(
        default="local[*]",
        description="any Spark master or Spark Connect address; one elsewhere must see `history.path` as the same "
        "directory, or by its URL with credentials of its own",
    )
    conf: dict[str, Annotated[str, Field(min_length=0)]] = Field(
        default_factory=dict, description="settings of Spark itself"
    )


class MonitorSettings(Section):
    estimate: Literal["resident", "each", "off"] | None = Field(
        default=None,
        description="how `monitor` keeps the stored estimate fresh. `resident`: one process keeps its Spark session "
        "(which keeps some 400 MB of memory), so that an estimate takes a second or two; `each`: one process for each "
        "estimate; `off`: no estimate. Default: `resident` on a machine with 4 GiB of memory or more, else `each`",
    )


class Hook(Section):
    commands = ("run",)

    run: Words = Field(min_length=1, description="the words of a command, run without a shell")
    timeout: Duration = Field(default="20s", validate_default=True, description="how long it may take")


DEBT: Final = "debt"
_NO_END: Final = (ExitCode.USAGE, ExitCode.MISSING, ExitCode.LOCKED, ExitCode.WARNINGS)
# The outcomes that a run may end with, and a word for an end that leaves a debt.
ENDS: Final = (*dict.fromkeys(code.outcome for code in ExitCode if code not in _NO_END), DEBT)


def _known_end(word: str) -> str:
    if word not in ENDS:
        raise ValueError(f"is no outcome of a run: {', '.join(ENDS)}")
    return word


End = Annotated[str, AfterValidator(_known_end), WithJsonSchema({"type": "string", "enum": [*ENDS]})]


class AfterHook(Hook):
    """A command that runs after a run, with its outcome."""

    on: Annotated[tuple[End, ...], BeforeValidator(listed)] = Field(
        min_length=1,
        description="the command runs after a run that ended with one of these outcomes, such as `ok`, `reverted` or "
        "`stranded`; `debt` stands for any end after which a debt is pending",
    )


Operation = Literal["swapover", "failover", "failback", "reinstate"]


class Approvals(Section):
    """Operations that more than one person decides on: a run needs a saved plan that enough people have signed."""

    files = ("signers",)

    signers: str = Field(min_length=1, description="an `allowed_signers` file of ssh-keygen: whose signatures count")
    needed: int = Field(default=2, ge=2, description="how many different people must have signed the plan")
    of: Annotated[tuple[Operation, ...], BeforeValidator(listed)] = Field(
        min_length=1, description="the operations that need it"
    )


def _two_sites(schema: dict[str, Any]) -> None:
    """Require two sites in the schema too, as the loader does."""
    schema["properties"]["sites"] |= {"additionalProperties": False, "minProperties": 2, "maxProperties": 2}


class Settings(Section):
    """One installation: two sites and the topology that joins them. Every topology has its own subclass.
    `apart`: keys of its brokers that may not list the same listener, the key for clients first."""

    files = ("runbooks",)
    model_config = ConfigDict(json_schema_extra=_two_sites)
    apart: ClassVar[tuple[tuple[str, str], ...]] = ()
    takeover_ends_quarantine: ClassVar[bool] = False
    """A takeover or a restart at the serving site lets the link of a lost site in again if this is true."""

    version: Literal[1] = Field(description="the version of this file's format: 1")
    name: str = Field(min_length=1, description="the name of the installation")
    topology: str
    sites: Mapping[SiteName, Site[Broker]]
    queues: Queues = Field(default_factory=Queues)
    objectives: Objectives | None = None
    drain: Drain = Field(default_factory=Drain)
    history: HistorySettings = Field(default_factory=HistorySettings)
    monitor: MonitorSettings = Field(default_factory=MonitorSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    hooks: dict[str, Hook] = Field(default_factory=dict)
    after: Annotated[tuple[AfterHook, ...], BeforeValidator(listed)] = ()
    approvals: Approvals | None = None
    traces: HttpAddress | None = Field(
        default=None,
        description="the address to which each ended run is sent as a trace by OTLP over HTTP, as in "
        "http://collector:4318; the variable OTEL_EXPORTER_OTLP_ENDPOINT, if set, has precedence over this key",
    )
    runbooks: str | None = Field(
        default=None, description="folder of own runbooks; without: those that came with dr-ctl"
    )

    @property
    def order(self) -> Sequence[tuple[str, str, str]]:
        """The order rules for runbooks of this installation, beside the general rules, with reasons."""
        return ()


class Installation(Section):
    """The settings with the place they were read from: every path in them is relative to it."""

    settings: Settings
    file: Path

    @property
    def addresses(self) -> dict[str, dict[str, list[str]]]:
        """The addresses of the brokers, by site and pair. Two installations have none in common."""
        return {
            name: {broker.name: [*broker.addresses] for broker in site.brokers}
            for name, site in self.settings.sites.items()
        }

    def path(self, relative: str) -> Path:
        return (self.file.parent / relative).resolve()

    @property
    def history(self) -> HistoryLocation:
        place = self.settings.history
        near = HistoryLocation(place.path, self.path(place.near))
        return near if "://" in place.path else HistoryLocation.at(self.path(place.path))

    def of(self, kind: type[S]) -> S:
        """Return the settings as those of a topology; raises TypeError for any other topology's."""
        if not isinstance(self.settings, kind):
            raise TypeError(f"the settings are not of {kind.__name__}")
        return self.settings

    def must_know(self, *sites: str | None) -> None:
        """Raise `UsageError` for a named site that is none of the two."""
        for site in sites:
            if site is not None and site not in self.settings.sites:
                known = " and ".join(self.settings.sites)
                raise UsageError(f"no site {site} in the settings", remedy=f"The sites are {known}.")

    def tls(self, site: str) -> TlsFiles:
        tls = self.settings.sites[site].tls
        ca, cert, key = (str(self.path(file)) if file else None for file in (tls.ca, tls.cert, tls.key))
        return TlsFiles(ca, cert, key, tls.verify)

    def other(self, site: str) -> str:
        return next(name for name in self.settings.sites if name != site)

    def broker(self, site: str, name: str, kind: type[B]) -> B:
        """Return the broker of that name and class. Raises LookupError without such a broker."""
        for candidate in self.settings.sites[site].brokers:
            if candidate.name == name and isinstance(candidate, kind):
                return candidate
        raise LookupError(f"{site} has no {kind.__name__} {name}")


def commands(settings: Settings) -> Iterator[tuple[str, Sequence[str]]]:
    for where, part in parts(settings):
        for key in part.commands:
            if (words := getattr(part, key)) is not None:
                yield f"{where}.{key}", words


def files(settings: Settings) -> Iterator[tuple[str, str]]:
    """List the files that are kept beside the settings, with their places; TLS keys, which only the operators' host
    has, are not among them."""
    for where, part in parts(settings):
        for key in part.files:
            if (path := getattr(part, key)) is not None:
                yield f"{where}.{key}".removeprefix("."), path


def secrets(settings: Settings) -> Iterator[tuple[str, Secret]]:
    for where, part in parts(settings):
        if isinstance(part, Secret):
            yield where, part


def parts(value: object, where: str = "") -> Iterator[tuple[str, Section]]:
    """Walk every part of the settings, with the keys that lead to the part; an item of a list is called by its name."""
    if isinstance(value, Section):
        yield where, value
        for key, inner in value:
            yield from parts(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from parts(inner, f"{where}.{key}")
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from parts(inner, f"{where}.{getattr(inner, 'name', number)}")


LEAST: Final = 2


class Node(Section):
    """One process of a broker that has several. Which of them is active is found at every reading."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="the name of the node")
    jolokia: HttpAddress = Field(description="its management address")
    stomp: StompAddress | None = Field(
        default=None, description="its address of a client listener, for test logins and the probe"
    )
    username: str | None = Field(default=None, description="its login, if not the broker's")
    password: Secret | None = Field(default=None, description="its password, if not the broker's")
    broker: str | None = Field(default=None, description="the broker's name at that node; without: as it reports")


class Grouped(Broker):
    """A broker that may be a group of processes of which one is active."""

    nodes: Annotated[tuple[Node, ...], BeforeValidator(listed)] = Field(
        default=(), description="the nodes of a broker that has several, instead of its `jolokia` and `stomp`"
    )
    takeover: Seconds = Field(
        default="90s",
        validate_default=True,
        description="of a broker with `nodes`: the longest that they may need until another one is active",
    )

    @field_validator("nodes")
    @classmethod
    def _several(cls, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        names = [node.name for node in nodes]
        if len(nodes) < LEAST:
            raise ValueError("has fewer than two: a single one is the broker's own `jolokia` and `stomp`")
        if again := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"a second node is called {again[0]}")
        return nodes


def console_or_nodes(schema: dict[str, Any]) -> None:
    """Require a console, or nodes, in the schema of a broker too, as the loader does."""
    schema["oneOf"] = [{"required": ["jolokia"]}, {"required": ["nodes"]}]


class ManagedBroker(Broker):
    """A broker that is read through its console, or without one through a listener of clients."""

    needs_console: ClassVar[bool] = True

    jolokia: HttpAddress | None = Field(
        default=None,
        validate_default=True,
        description="management address, `http` or `https`; required where there are no `nodes`",
    )
    stomp: StompAddress | None = Field(
        default=None,
        description="`stomp://` or `stomp+ssl://` address of a client listener: test logins and the probe go there. "
        "Without it fences are shown by flag only, and a finding reports that",
    )
    username: str = Field(description="login for Jolokia and STOMP")
    password: Secret = Field(description="its password: a secret, see below")
    clients: Names = Field(min_length=1, description="names of the listeners that clients use")
    broker: str | None = Field(default=None, description="the broker's own name; without: read from the broker")

    @field_validator("jolokia", "stomp")
    @classmethod
    def _managed(cls, address: str | None, info: ValidationInfo) -> str | None:
        """Require a console or nodes, not both. Invalid nodes are not in the data, and have errors of their own."""
        nodes = info.data.get("nodes", "nodes" in cls.model_fields)
        if nodes and nodes is not True and address is not None:
            raise ValueError("cannot be set beside `nodes`: each node has its own")
        if not nodes and address is None and info.field_name == "jolokia" and cls.needs_console:
            raise PydanticCustomError("missing", "is missing")
        return address

    @property
    def processes(self) -> Sequence[tuple[str, str | None, str | None]]:
        """The name, management and STOMP address of each node; a single node has no name."""
        nodes = self.nodes if isinstance(self, Grouped) else ()
        return [(node.name, node.jolokia, node.stomp) for node in nodes] or [("", self.jolokia, self.stomp)]

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(address for _, *both in self.processes for address in both if address is not None)
