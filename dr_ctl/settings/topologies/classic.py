"""Settings of an ActiveMQ Classic broker, for every topology of Classic brokers."""

from typing import Self

from pydantic import Field, model_validator

from dr_ctl.settings.model import Broker
from dr_ctl.settings.parts import HttpAddress, Names, Part, Secret, StompAddress


class AgentAccess(Part):
    """A way in of its own for whoever works beside the clients, which stays open when these are kept out."""

    stomp: StompAddress = Field(description="address of a transport connector that no client uses")
    username: str = Field(description="the agent's login")
    password: Secret = Field(description="the agent's password")
    connector: str = Field(description="the name of that transport connector; never one of `clients`")


class ClassicBroker(Broker):
    """A Classic broker of a site, whatever joins it to its peer."""

    jolokia: HttpAddress | None = Field(
        default=None,
        description="management address, as in http://host:8161/api/jolokia. Without it (Amazon MQ) figures come from "
        "the statistics plugin over STOMP, and what needs management is done by hooks",
    )
    stomp: StompAddress | None = Field(
        default=None,
        description="`stomp://` or `stomp+ssl://` address of a client connector: greetings and the probe go there. "
        "Without it fences are shown by flag only, and a finding says so",
    )
    username: str = Field(description="login for both")
    password: Secret = Field(description="password for both: a secret, see below")
    clients: Names = Field(min_length=1, description="names of the transport connectors that clients use")
    broker: str | None = Field(default=None, description="the broker's own name; without: found out")

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.jolokia, self.stomp)))

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.jolokia is None and self.stomp is None:
            raise ValueError("needs jolokia, or stomp where there is no Jolokia (Amazon MQ)")
        return self
