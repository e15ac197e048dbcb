"""Settings of two sites of Artemis brokers whose queues are copied by diverts and core bridges."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

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


class BridgesBroker(ArtemisBroker):
    """A broker whose diverts and bridges are found out."""

    bridge: Names | None = Field(
        default=None,
        description="names of the acceptors that the peer's bridges use; without: the only CORE one not in `clients`",
    )
    lasting_fence: ClientRoles | None = None
    ids: IdStore | None = None

    @property
    def link_doors(self) -> tuple[str, ...] | None:
        return self.bridge


class ArtemisBridges(Settings):
    """An installation whose sites are joined by diverts and bridges, a queue each."""

    apart: ClassVar = (("clients", "bridge"),)

    topology: Literal["artemis-bridges"]
    sites: dict[SiteName, Site[BridgesBroker]]


SETTINGS = ArtemisBridges
