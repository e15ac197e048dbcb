"""The settings file as types. What contradicts itself across parts is the loader's business, because it must be told
beside all else that is wrong; what is merely unwise is `validate`'s."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from dr_ctl.settings.durations import seconds

SiteName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Seconds = Annotated[float, BeforeValidator(seconds)]
# What a broker remembers of an address where its broker.xml does not say otherwise.
ID_CACHE_SIZE: Final = 20_000


class Part(BaseModel):
    """Every part of the file: unknown keys are errors, types are not converted, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Secret(Part):
    """Where a password comes from. Resolved when its site is first called; `plain` shows in no text."""

    env: str | None = None
    file: str | None = None
    command: tuple[str, ...] | None = None
    plain: str | None = Field(default=None, repr=False)

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, told: Any) -> Any:
        return tuple(told) if isinstance(told, list) else told

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len([each for each in (self.env, self.file, self.command, self.plain) if each is not None]) != 1:
            raise ValueError("a secret is exactly one of {env: NAME}, {file: PATH}, {command: [ARGV]}, {plain: …}")
        return self


def _list(told: Any) -> Any:
    return tuple(told) if isinstance(told, list) else told


Names = Annotated[tuple[str, ...], BeforeValidator(_list)]


class LastingFence(Part):
    """Roles that a fence keeps out, and of which addresses: they may do nothing there until it is lifted."""

    roles: Names = Field(min_length=1)
    matches: Names = Field(default=("#",), min_length=1)


class Broker(Part):
    """One broker of a site."""

    name: str = Field(min_length=1)
    jolokia: str
    stomp: str | None = None
    username: str
    password: Secret
    clients: Names = Field(min_length=1)
    mirror: Names | None = None
    broker: str | None = None
    link: str | None = None
    lasting_fence: LastingFence | None = None
    id_cache_size: int = Field(default=ID_CACHE_SIZE, gt=0)

    @field_validator("jolokia")
    @classmethod
    def _http(cls, told: str) -> str:
        parts = urlsplit(told)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("is not an http or https address, as in http://host:8161/console/jolokia")
        if parts.username or parts.password:
            raise ValueError("must not hold a login; set username and password beside it")
        return told

    @field_validator("stomp")
    @classmethod
    def _stomp(cls, told: str | None) -> str | None:
        if told is not None:
            try:
                parts = urlsplit(told)
                good = parts.scheme in ("stomp", "stomp+ssl") and parts.hostname and parts.port
            except ValueError:
                good = False
            if not good:
                raise ValueError("is not a STOMP address, as in stomp://host:61613 or stomp+ssl://host:61612")
        return told


class Tls(Part):
    """Files of the site's TLS. Verification is on; `verify: false` turns it off and every command says so."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True


class Site(Part):
    """One place with its brokers."""

    brokers: Annotated[tuple[Broker, ...], BeforeValidator(_list)] = Field(min_length=1)
    tls: Tls = Tls()
    origin: str | None = None


class Queues(Part):
    """Which queues quiesce, parity and estimate look at. The gate looks at all, whatever stands here."""

    include: Names = ("#",)
    exclude: Names = ()


class Loss(Part):
    messages: Annotated[int, Field(ge=0)] | None = None
    age: Seconds | None = None


class ClassObjective(Part):
    queues: Names = Field(min_length=1)
    loss: Loss


class Objectives(Part):
    """What a failover may lose, and how long a planned move may take."""

    loss: Loss = Loss(messages=0)
    recovery: Seconds | None = None
    classes: Annotated[tuple[ClassObjective, ...], BeforeValidator(_list)] = ()


class Drain(Part):
    timeout: Seconds = 60.0
    poll: Seconds = 0.02
    stable: int = Field(default=3, ge=1)
    stall: Seconds = 20.0


def _local(told: object) -> object:
    """A directory, or a `file:` URL of one: where Spark runs elsewhere, both it and the monitor must see it there."""
    if not isinstance(told, str) or "://" not in told:
        return told
    url = urlsplit(told)
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise ValueError(f"{told} is neither a directory nor a file:/// URL; the monitor writes files")
    return unquote(url.path)


class HistorySettings(Part):
    path: Annotated[str, BeforeValidator(_local)] = "history"
    every: Seconds = 5.0
    keep: Seconds = 30 * 86400.0


class SparkSettings(Part):
    master: str = "local[*]"
    conf: dict[str, str] = Field(default_factory=dict)


class Hook(Part):
    run: Names = Field(min_length=1)
    timeout: Seconds = 20.0


class Settings(Part):
    """One installation: two sites and the topology that joins them."""

    version: Literal[1]
    name: str = Field(min_length=1)
    topology: Literal["artemis-mirror", "artemis-continuity"]
    sites: dict[SiteName, Site]
    queues: Queues = Queues()
    objectives: Objectives | None = None
    drain: Drain = Drain()
    history: HistorySettings = HistorySettings()
    spark: SparkSettings = SparkSettings()
    hooks: dict[str, Hook] = Field(default_factory=dict)
    runbooks: str | None = None


class Installation(Part):
    """The settings with the place they were read from: every path in them is relative to it."""

    settings: Settings
    file: Path

    def path(self, told: str) -> Path:
        return (self.file.parent / told).resolve()
