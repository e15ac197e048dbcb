"""Settings of an Artemis broker, for every topology of Artemis brokers."""

from typing import Final

from pydantic import Field

from dr_ctl.settings.model import Broker
from dr_ctl.settings.parts import HttpAddress, Names, Part, Secret, StompAddress

# Ids that a broker remembers per address, unless its broker.xml says otherwise.
ID_CACHE_SIZE: Final = 20_000
APART: Final = (("clients", "mirror"),)


class LastingFence(Part):
    """Roles that a fence keeps out, and the addresses: these roles may do nothing there until the fence is lifted."""

    roles: Names = Field(
        min_length=1,
        description="roles of the clients that a fence keeps out until it is lifted, restarts included; never the "
        "link's own. Without them a fence is listeners only",
    )
    matches: Names = Field(
        default=("#",),
        min_length=1,
        description="the addresses that this is for, as `<security-setting match=…>` names them",
    )


class ArtemisBroker(Broker):
    """An Artemis broker of a site, whatever joins it to its peer."""

    jolokia: HttpAddress = Field(description="management address, `http` or `https`")
    stomp: StompAddress | None = Field(
        default=None,
        description="`stomp://` or `stomp+ssl://` address of a client acceptor: greetings and the probe go there. "
        "Without it fences are shown by flag only, and a finding says so",
    )
    username: str = Field(description="login for both")
    password: Secret = Field(description="password for both: a secret, see below")
    clients: Names = Field(min_length=1, description="names of the client acceptors")
    broker: str | None = Field(default=None, description="the broker's own name; without: found out")

    @property
    def link_listeners(self) -> tuple[str, ...] | None:
        """The acceptors that the peer's link uses; None where dr-ctl must find them out."""
        return None

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.jolokia, self.stomp)))


class AmqpLinked(ArtemisBroker):
    """A broker whose peer connects to it over AMQP."""

    mirror: Names | None = Field(
        default=None,
        description="names of the acceptors that the peer's link uses; without: the only AMQP one not in `clients`",
    )

    @property
    def link_listeners(self) -> tuple[str, ...] | None:
        return self.mirror
