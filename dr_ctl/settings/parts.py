"""The base class of settings, and value types that many classes use."""

import re
from typing import Annotated, Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from dr_ctl.settings.durations import seconds

Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)\s*$"}),
]


def listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(listed)]


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


class Part(BaseModel):
    """Every part of the file: unknown keys are errors, types are not converted, nothing changes after loading.
    `commands`: fields with the words of a command. `files`: fields that name a file kept beside the settings."""

    commands: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


ONE_OF = "a secret is exactly one of {env: NAME}, {file: PATH}, {command: [ARGV]}, {plain: …}"


_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise ValueError("is not the name of an environment variable, as in LONDON_PASSWORD")
    return name


class Secret(Part):
    """Where a password comes from. Resolved when its site is first called; `plain` shows in no text."""

    commands = ("command",)
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    env: Annotated[str, AfterValidator(_variable)] | None = None
    file: Annotated[str, Field(min_length=1)] | None = None
    command: Names | None = Field(default=None, min_length=1)
    plain: str | None = Field(default=None, repr=False)

    @property
    def source(self) -> str:
        """Where it comes from, in words that do not tell it."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        if self.command is not None:
            return f"the command {self.command[0]}"
        return f"the file {self.file}" if self.file is not None else "the settings file itself"

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len([each for each in (self.env, self.file, self.command, self.plain) if each is not None]) != 1:
            raise ValueError(ONE_OF)
        return self


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class IdStore(Part):
    """The store of processed ids that consumers keep, where dr-ctl can read it."""

    sqlite: str = Field(description="an SQLite file; a return reads it, and so does `trim`")
    table: _Name = Field(default="processed", description="its table")
    queue: _Name = Field(default="queue", description="the column of the queue")
    id: _Name = Field(default="id", description="the column of the id")
