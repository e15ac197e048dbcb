"""A mirrored broker as one look has shown it: frozen values, and facts that follow from them without asking again."""

import re
from dataclasses import dataclass

from dr_ctl.core.model import Role
from dr_ctl.topologies.artemis.broker import ArtemisBroker
from dr_ctl.topologies.common.names import OUTFLOW_PREFIX
from dr_ctl.topologies.common.seen import Seen
from dr_ctl.topologies.common.view import Queue
from dr_ctl.topologies.mirror.link import MirrorLink


@dataclass(frozen=True, slots=True)
class Link:
    """A broker connection. `uri` names its peer, and other nodes of the peer behind `#`."""

    name: str
    started: bool
    connected: bool
    protocol: str
    uri: str = ""


@dataclass(frozen=True, slots=True)
class BrokerView(ArtemisBroker):
    pending_acks: int
    links: tuple[Link, ...]
    lock_coordinators: tuple[str, ...]

    @property
    def link(self) -> MirrorLink:
        return MirrorLink(self)

    @property
    def takes_beginnings(self) -> bool:
        """The console executes by pattern since 2.50. The names of the mirror's own queues begin as no client's queue
        does."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return found is not None and (int(found[1]), int(found[2])) >= (2, 50)

    @property
    def broker_connection(self) -> Link | None:
        """The broker connection that mirrors to the peer, as set or the only AMQP one that has an outflow."""
        if self.config.link is not None:
            return next((each for each in self.links if each.name == self.config.link), None)
        outflows = [(each, self.named.get(f"{OUTFLOW_PREFIX}{each.name}")) for each in self.amqp_links]
        found = [each for each, queue in outflows if queue is not None and queue.internal] or self.amqp_links
        return found[0] if len(found) == 1 else None

    @property
    def amqp_links(self) -> list[Link]:
        """The broker connections that can mirror."""
        return [each for each in self.links if each.protocol.upper() == "AMQP"]

    @property
    def outflow(self) -> Queue | None:
        """The store-and-forward queue of the link, with the events still to ship to the peer."""
        link = self.broker_connection
        return self.named.get(f"{OUTFLOW_PREFIX}{link.name}") if link is not None else None

    @property
    def role(self) -> Role:
        """Serving as soon as one client door is open; a door that the broker does not have leaves it unknown."""
        if self.open:
            return Role.SERVING
        return Role.UNKNOWN if self.missing_doors else Role.STANDBY


MirrorSeen = Seen[BrokerView]
