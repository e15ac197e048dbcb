"""Settings of two sites of Artemis brokers that the continuity plugin joins."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from dr_ctl.settings.model import Settings, Site, SiteName
from dr_ctl.settings.topologies.artemis import APART, ID_CACHE_SIZE, AmqpLinked


class ContinuityBroker(AmqpLinked):
    """A broker with the plugin, which closes its listeners at every start and whose bridges are found out."""

    id_cache_size: int = Field(
        default=ID_CACHE_SIZE,
        gt=0,
        description="what the broker's `id-cache-size` says, which no broker tells; a deeper queue is a finding",
    )


class ArtemisContinuity(Settings):
    """An installation whose sites are joined by the plugin."""

    apart: ClassVar = APART

    topology: Literal["artemis-continuity"]
    sites: dict[SiteName, Site[ContinuityBroker]]

    @property
    def order(self) -> Sequence[tuple[str, str, str]]:
        why = "what the serving site has staged and not delivered would be lost behind the fence"
        return (("catch-up", "quiesce", why),)


SETTINGS = ArtemisContinuity
