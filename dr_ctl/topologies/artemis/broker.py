"""An Artemis broker as one look has shown it, whatever joins it to its peer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dr_ctl.core.printable import if_known
from dr_ctl.topologies.artemis import mqtt
from dr_ctl.topologies.artemis.document_queue import IN_USER, Papers
from dr_ctl.topologies.artemis.fence import DoorsAndRoles
from dr_ctl.topologies.artemis.group import ALONE, Group
from dr_ctl.topologies.artemis.operations import ArtemisRequests
from dr_ctl.topologies.common.view import Broker, Connection
from dr_ctl.topologies.topology import Node


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    """An Artemis broker as it answered."""

    group: Group = field(default=ALONE, kw_only=True)

    @property
    def inner_ports(self) -> frozenset[int]:
        joined = self.group.has_nodes or self.group.cluster
        return frozenset({self.group.port} if joined and self.group.port is not None else ())

    @property
    def replicates(self) -> bool:
        return self.group.replicates

    def is_within(self, connection: Connection) -> bool:
        """Say so of a CORE connection at that port that has no session, as replication and the listing of nodes have
        none, or that consumes queues of the broker's own alone."""
        if connection.port not in self.inner_ports or connection.protocol != "CORE":
            return False
        consumed = {each.queue for each in self.consumers if each.remote == connection.remote}
        return not connection.user or (bool(consumed) and not consumed & {*self.business})

    @property
    def nodes(self) -> Sequence[Node]:
        group = self.group
        if group.nodes:
            return [Node(self.site, self.pair, at, "by its listing of the cluster") for at in group.nodes]
        shown_by = f"by its HA policy, {if_known(group.policy)}"
        return [Node(self.site, self.pair, "", shown_by)] if group.has_nodes else []

    @property
    def fence(self) -> DoorsAndRoles:
        return DoorsAndRoles(self)

    @property
    def document_queue(self) -> Papers:
        """The way in which documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def stays(self) -> Sequence[str]:
        return mqtt.stays(self)

    @property
    def requests(self) -> ArtemisRequests:
        return ArtemisRequests(self.broker, self.document_queue)


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
