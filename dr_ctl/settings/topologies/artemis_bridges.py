"""Settings of two sites of Artemis brokers whose queues are copied by diverts and core bridges."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.parts import IdStore, Names, Part
from dr_ctl.settings.topologies.artemis import ArtemisBroker


class ClientRoles(Part):
    """Whom a fence of one queue keeps out of its address, restarts included."""

    roles: Names = Field(
        min_length=1,
        description="roles of the clients: a fence takes from them what they may do at the address of one queue; never "
        "those of the bridges or of what applies the ids",
    )


class BridgesIdStore(IdStore):
    """The id store of a site's own consumers."""

    header: str = Field(
        default="ARTEMIS_MESSAGE_UUID",
        description="the property in which producers name each message; a message without it is called "
        "`ORIGIN:NUMBER`, by the site where it was sent and its number there",
    )


class BridgesBroker(ArtemisBroker):
    """A broker whose diverts and bridges are found out."""

    bridge: Names | None = Field(
        default=None,
        description="names of the acceptors that the peer's bridges use; without: the only CORE one not in `clients`",
    )
    lasting_fence: ClientRoles | None = None
    ids: BridgesIdStore | None = None

    @property
    def link_listeners(self) -> tuple[str, ...] | None:
        return self.bridge


class ArtemisBridges(Settings):
    """An installation whose sites are joined by diverts and bridges, a queue each."""

    apart: ClassVar = (("clients", "bridge"),)

    topology: Literal["artemis-bridges"]
    sites: dict[SiteName, Site[BridgesBroker]]

    @field_validator("sites")
    @classmethod
    def _one_store_a_broker(cls, sites: dict[SiteName, Site[BridgesBroker]]) -> dict[SiteName, Site[BridgesBroker]]:
        """Compared with itself, a store says of every message that both sites have processed it."""
        stores: dict[BridgesIdStore, str] = {}
        for name, site in sites.items():
            for broker in site.brokers:
                if broker.ids is None:
                    continue
                mine = f"{broker.name} at {name}"
                if (other := stores.setdefault(broker.ids, mine)) != mine:
                    text = f"{mine} and {other} have the same id store, {broker.ids.sqlite}"
                    raise ValueError(f"{text}: each needs the one that its own consumers keep")
        return sites


SETTINGS = ArtemisBridges
