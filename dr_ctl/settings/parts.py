"""The base class of settings, value types that many classes use, and the workloads of a site."""

import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from dr_ctl.core.notation import seconds

Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"}),
]


def _longer(value_s: float) -> float:
    if value_s <= 0:
        raise ValueError("should be longer than 0")
    return value_s


Duration = Annotated[Seconds, AfterValidator(_longer)]
"""A limit or an interval, longer than 0: no work ends within 0 s, and no pause is 0 s long."""
_KIND: Final[Any] = Field(description="how it is managed: `camel-route`, `systemd`, `command` or `http`")


def listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(listed)]
Words = Annotated[tuple[Annotated[str, Field(min_length=0)], ...], BeforeValidator(listed)]
"""The words of a command; a word may be empty."""


def _http(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("is not an http or https address, as in http://host:8161/console/jolokia")
    if parts.username or parts.password:
        raise ValueError("must not hold a login; set username and password beside it")
    return address


HttpAddress = Annotated[str, AfterValidator(_http)]


def _stomp(address: str) -> str:
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("stomp", "stomp+ssl") and parts.hostname and parts.port
        good = good and not (parts.path.strip("/") or parts.query or parts.fragment)
    except ValueError:
        good = False
    if not good:
        raise ValueError("is not a STOMP address, as in stomp://host:61613 or stomp+ssl://host:61612")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a login; set username and password beside it")
    return address


StompAddress = Annotated[str, AfterValidator(_stomp)]


class Section(BaseModel):
    """The base of all sections: unknown keys, converted types and empty texts are errors, and values are frozen.
    `commands` are fields with the words of a command, `files` those with a file that is kept beside the settings."""

    commands: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, str_min_length=1)


ONE_OF = "a secret is exactly one of {env: NAME}, {file: PATH}, {command: [ARGV]}, {plain: …}"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise ValueError("is not the name of an environment variable, as in LONDON_PASSWORD")
    return name


class Secret(Section):
    """Where a password comes from. Resolved when its site is first called; `plain` shows in no text."""

    commands = ("command",)
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    env: Annotated[str, AfterValidator(_variable)] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None
    command: Words | None = Field(default=None, min_length=1)
    plain: str | None = Field(default=None, min_length=0, repr=False)

    @property
    def source(self) -> str:
        """The origin of the secret, in words that do not show the secret."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        if self.command is not None:
            return f"the command {self.command[0]}"
        return f"the file {self.file}" if self.file is not None else "the settings file itself"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len([source for source in (self.env, self.file, self.command, self.plain) if source is not None]) != 1:
            raise ValueError(ONE_OF)
        return self


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class IdStore(Section):
    """The store of processed ids that consumers keep, where dr-ctl can read it."""

    sqlite: str = Field(description="an SQLite file; a reinstatement reads it, and so does `trim`")
    table: _Name = Field(default="processed", description="its table")
    queue: _Name = Field(default="queue", description="the column of the queue")
    id: _Name = Field(default="id", description="the column of the id")


class _Workload(Section):
    """Fields of every kind of workload."""

    name: str = Field(min_length=1, description="its name; the same name at both sites is the same workload")
    queues: Names = Field(
        default=(),
        description="patterns of the queues that it works on: it moves with any of them. Without, it moves with the "
        "whole site only",
    )
    singleton: bool = Field(default=False, description="`true`: it must never run at both sites")
    alone: bool = Field(
        default=False,
        description="`true`: it runs only while its site serves without the other one: a failover starts it, the "
        "reinstatement of the other site and a planned move stop it",
    )
    timeout: Duration = Field(
        default="30s", validate_default=True, description="how long it may take to stop, and to start"
    )


class CamelRoutes(_Workload):
    """Routes of a Camel context, managed through Jolokia."""

    kind: Literal["camel-route"] = _KIND
    jolokia: HttpAddress = Field(description="`camel-route`: management address of the process that runs the routes")
    routes: Names = Field(min_length=1, description="`camel-route`: ids of the routes, in the order of stopping")
    username: str | None = Field(default=None, description="`camel-route`: login, if the address needs one")
    password: Secret | None = Field(default=None, description="`camel-route`: its password: a secret, see below")

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.username is None) is not (self.password is None):
            raise ValueError("needs both username and password, or neither")
        return self


class SystemdUnit(_Workload):
    """A unit of systemd."""

    kind: Literal["systemd"] = _KIND
    unit: str = Field(min_length=1, pattern=r"^[^-]", description="`systemd`: its unit, as in `mailer.service`")
    host: str | None = Field(
        default=None,
        pattern=r"^[^-]",
        description="`systemd`: the machine that it runs on, as `systemctl --host` takes it; without: this one",
    )


class Commands(_Workload):
    """Commands of the installation's own."""

    commands = ("start", "stop", "state")

    kind: Literal["command"] = _KIND
    start: Words = Field(min_length=1, description="`command`: the words of the command that starts it")
    stop: Words = Field(min_length=1, description="`command`: of the one that stops it, and ends when it has")
    state: Words = Field(
        min_length=1, description="`command`: of the one that ends with 0 where it runs and with 3 where it does not"
    )


class Post(Section):
    post: HttpAddress = Field(description="`http`: address to post to")


class StateAddress(Section):
    get: HttpAddress = Field(description="`http`: address that answers with one line")
    running: str = Field(min_length=1, description="`http`: that line where it runs")
    stopped: str | None = Field(
        default=None,
        min_length=1,
        description="`http`: that line where it does not; any other line is then unknown. Without: any other line",
    )


class HttpService(_Workload):
    """A workload that is paused and resumed over HTTP."""

    kind: Literal["http"] = _KIND
    start: Post
    stop: Post
    state: StateAddress


Workload = Annotated[CamelRoutes | SystemdUnit | Commands | HttpService, Field(discriminator="kind")]
