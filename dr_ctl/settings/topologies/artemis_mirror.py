"""Settings of two sites of Artemis brokers that mirror each other."""

from typing import ClassVar, Literal

from pydantic import Field

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.topologies.artemis import APART, AmqpLinked, LastingFence


class MirrorBroker(AmqpLinked):
    """A broker of a mirrored pair."""

    link: str | None = Field(
        default=None, description="the broker's connection to the peer, by its name; without: found out"
    )
    lasting_fence: LastingFence | None = None


class ArtemisMirror(Settings):
    """An installation whose sites are joined by a mirror."""

    apart: ClassVar = APART

    topology: Literal["artemis-mirror"]
    sites: dict[SiteName, Site[MirrorBroker]]


SETTINGS = ArtemisMirror
