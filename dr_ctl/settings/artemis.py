"""Settings of Artemis brokers, and of two sites of them: joined by a mirror, the continuity plugin, or bridges."""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from pydantic import ConfigDict, Field, field_validator

from dr_ctl.settings.model import Grouped, ManagedBroker, Settings, Site, SiteName, console_or_nodes
from dr_ctl.settings.parts import IdStore, Names, Section

# A broker remembers so many ids per address, unless its broker.xml says otherwise.
ID_CACHE_SIZE: Final = 20_000
_CLUSTER: Final = ("clients", "cluster")
APART: Final = (("clients", "mirror"), _CLUSTER)


class LastingFence(Section):
    """Roles that a fence keeps out of addresses: clients of a role may do nothing there until the fence is lifted."""

    roles: Names = Field(
        min_length=1,
        description="roles of the clients that a fence keeps out until it is lifted, restarts included; never the "
        "link's own. Without them a fence is listeners only",
    )
    matches: Names = Field(
        default=("#",),
        min_length=1,
        description="the addresses that the fence covers, as `<security-setting match=…>` names them",
    )


class ArtemisBroker(ManagedBroker, Grouped):
    """An Artemis broker of a site, whatever joins it to its peer."""

    model_config = ConfigDict(json_schema_extra=console_or_nodes)

    cluster: Names | None = Field(
        default=None,
        description="names of the acceptors that the site's brokers and their nodes use among themselves; without: "
        "read from the broker. No fence closes them, and their connections are no clients",
    )

    @property
    def link_listeners(self) -> tuple[str, ...] | None:
        """Name the acceptors that the peer's link uses; None if dr-ctl must find them out."""
        return None


class AmqpLinked(ArtemisBroker):
    """A broker whose peer connects to it over AMQP."""

    mirror: Names | None = Field(
        default=None,
        description="names of the acceptors that the peer's link uses; without: the only AMQP one not in `clients`",
    )

    @property
    def link_listeners(self) -> tuple[str, ...] | None:
        return self.mirror


class MirrorBroker(AmqpLinked):
    """A broker of a mirrored pair."""

    link: str | None = Field(
        default=None, description="the broker's connection to the peer, by its name; without: read from the broker"
    )
    lasting_fence: LastingFence | None = None


class ArtemisMirror(Settings):
    """An installation whose sites are joined by a mirror."""

    apart: ClassVar = APART

    topology: Literal["artemis-mirror"]
    sites: dict[SiteName, Site[MirrorBroker]]


class ContinuityBroker(AmqpLinked):
    """A broker with the plugin, which closes its listeners at every start and whose bridges are found out."""

    id_cache_size: int = Field(
        default=ID_CACHE_SIZE,
        gt=0,
        description="what the broker's `id-cache-size` says, if its management does not; a deeper queue is a finding",
    )


class ArtemisContinuity(Settings):
    """An installation whose sites are joined by the plugin."""

    apart: ClassVar = APART
    takeover_ends_quarantine: ClassVar = True

    topology: Literal["artemis-continuity"]
    sites: dict[SiteName, Site[ContinuityBroker]]

    @property
    def order(self) -> Sequence[tuple[str, str, str]]:
        why = "messages that the serving site has staged and not delivered would be lost behind the fence"
        return (("catch-up", "quiesce", why),)


class ClientRoles(Section):
    """Roles that a fence of one queue keeps out of its address, restarts included."""

    matches: ClassVar[tuple[str, ...]] = ()  # the addresses are found at run time: a fence is for the queues that move

    roles: Names = Field(
        min_length=1,
        description="roles of the clients: a fence takes their rights at the address of one queue; never those "
        "of the bridges or of the processor of ids",
    )


class BridgesIdStore(IdStore):
    """The id store of a site's own consumers."""

    header: str = Field(
        default="ARTEMIS_MESSAGE_UUID",
        description="the property with the producer's id of each message; a message without it has the id "
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

    apart: ClassVar = (("clients", "bridge"), _CLUSTER)
    takeover_ends_quarantine: ClassVar = True

    topology: Literal["artemis-bridges"]
    sites: dict[SiteName, Site[BridgesBroker]]

    @field_validator("sites")
    @classmethod
    def _one_store_a_broker(cls, sites: dict[SiteName, Site[BridgesBroker]]) -> dict[SiteName, Site[BridgesBroker]]:
        """Refuse one store for two brokers: a store, compared with itself, shows no difference of the sites."""
        stores: dict[BridgesIdStore, str] = {}
        for name, site in sites.items():
            for broker in site.brokers:
                if broker.ids is None:
                    continue
                place = f"{broker.name} at {name}"
                if (other := stores.setdefault(broker.ids, place)) != place:
                    text = f"{place} and {other} have the same id store, {broker.ids.sqlite}"
                    raise ValueError(f"{text}: each needs the one that its own consumers keep")
        return sites
