"""Settings of two sites of Classic brokers whose queues are copied over a network connector, and whose waiting copies
an agent keeps clean."""

from typing import ClassVar, Literal

from pydantic import Field

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.parts import Names
from dr_ctl.settings.topologies.classic import AgentAccess, ClassicBroker


class BrokerSyncBroker(ClassicBroker):
    """A broker of a pair that copies over a network connector."""

    sync: AgentAccess | None = Field(default=None, description="how `dr-ctl sync` reaches this broker")
    network: str | None = Field(
        default=None, description="network connector to the peer; without: found out, by the peer's name"
    )
    bridge: Names | None = Field(
        default=None,
        description="transport connectors that the peer's network connector uses; without: the only OpenWire one that "
        "neither clients nor the agent use",
    )
    copies: str = Field(
        default="{queue}.DR",
        pattern=r"^[^{}]*\{queue\}[^{}]*$",
        description="the name of the queue here that holds the copies of `{queue}` until they are shipped",
    )


class ClassicBrokerSync(Settings):
    """An installation whose sites are joined by composite queues, network connectors and the agent."""

    apart: ClassVar = (("clients", "bridge"),)

    topology: Literal["classic-brokersync"]
    sites: dict[SiteName, Site[BrokerSyncBroker]]


SETTINGS = ClassicBrokerSync
