"""Settings of a site's workloads: programs that work on its messages, and start and stop with the service."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from dr_ctl.settings.parts import HttpAddress, Names, Part, Seconds, Secret

_KIND: Final[Any] = Field(description="how it is managed: `camel-route`, `systemd`, `command` or `http`")


class _Workload(Part):
    """Fields of every kind of workload."""

    name: str = Field(min_length=1, description="what it is called; the same name at both sites is the same workload")
    queues: Names = Field(
        default=(),
        description="patterns of the queues that it works on: it moves with any of them. Without, it moves with the "
        "whole site only",
    )
    singleton: bool = Field(default=False, description="`true`: it must never run at both sites")
    alone: bool = Field(
        default=False,
        description="`true`: it runs only while its site serves without the other one: a failover starts it, the "
        "return of the other site and a planned move stop it",
    )
    timeout: Seconds = Field(
        default="30s", validate_default=True, description="how long it may take to stop, and to start"
    )


class CamelRoutes(_Workload):
    """Routes of a Camel context, managed through Jolokia."""

    kind: Literal["camel-route"] = _KIND
    jolokia: HttpAddress = Field(description="`camel-route`: management address of the process that runs the routes")
    routes: Names = Field(min_length=1, description="`camel-route`: ids of the routes, in the order of stopping")
    username: str | None = Field(default=None, description="`camel-route`: login, where the address asks for one")
    password: Secret | None = Field(default=None, description="`camel-route`: its password: a secret, see below")

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.username is None) is not (self.password is None):
            raise ValueError("username and password stand together, or neither does")
        return self


class SystemdUnit(_Workload):
    """A unit of systemd."""

    kind: Literal["systemd"] = _KIND
    unit: str = Field(min_length=1, pattern=r"^[^-]", description="`systemd`: its unit, as in `mailer.service`")
    host: str | None = Field(
        default=None,
        pattern=r"^[^-]",
        description="`systemd`: the machine that it is on, as `systemctl --host` takes it; without: this one",
    )


class Commands(_Workload):
    """Commands of the installation's own."""

    commands = ("start", "stop", "state")

    kind: Literal["command"] = _KIND
    start: Names = Field(min_length=1, description="`command`: the words of the command that starts it")
    stop: Names = Field(min_length=1, description="`command`: of the one that stops it, and ends when it has")
    state: Names = Field(
        min_length=1, description="`command`: of the one that ends with 0 where it runs and with 3 where it does not"
    )


class Post(Part):
    post: HttpAddress = Field(description="`http`: address to post to")


class StateAddress(Part):
    get: HttpAddress = Field(description="`http`: address that answers with one line")
    running: str = Field(min_length=1, description="`http`: that line where it runs")
    stopped: str | None = Field(
        default=None,
        min_length=1,
        description="`http`: that line where it does not; every other is then not read. Without: any other line",
    )


class HttpService(_Workload):
    """Something that is paused and resumed over HTTP."""

    kind: Literal["http"] = _KIND
    start: Post
    stop: Post
    state: StateAddress


Workload = Annotated[CamelRoutes | SystemdUnit | Commands | HttpService, Field(discriminator="kind")]
