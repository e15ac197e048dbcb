"""Settings of two sites of Classic brokers that the replication plugin joins."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.parts import Seconds
from dr_ctl.settings.topologies.classic import ClassicBroker

CONNECTOR: Final = "replication"


def _tcp(address: str) -> str:
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("tcp", "ssl") and parts.hostname and parts.port
    except ValueError:
        good = False
    if not good:
        raise ValueError("is not an OpenWire address, as in tcp://host:61619 or ssl://host:61619")
    return address


class ReplicaBroker(ClassicBroker):
    """A broker of a pair with the plugin."""

    replication: Annotated[str, AfterValidator(_tcp)] | None = Field(
        default=None,
        description="`tcp://` or `ssl://` address of the transport connector `replication`, the only door that a "
        "replica has open: it is knocked at to tell a dead broker from a replica that has closed all others. Without "
        "it no broker is taken for down",
    )

    @model_validator(mode="after")
    def _plugins_own(self) -> Self:
        if CONNECTOR in self.clients:
            raise ValueError(f"the transport connector {CONNECTOR} is the plugin's own, and never in clients")
        return self


class ClassicReplica(Settings):
    """An installation whose sites are joined by the replication plugin."""

    topology: Literal["classic-replica"]
    sites: dict[SiteName, Site[ReplicaBroker]]
    lag: Seconds = Field(
        default="10s",
        validate_default=True,
        description="how far the replica may be behind for a planned move to keep clients out",
    )


SETTINGS = ClassicReplica
