"""An Artemis broker as one look has shown it, whatever joins it to its peer, and the other nodes that it shows."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dr_ctl.core.errors import Between, Passive
from dr_ctl.core.notation import if_known
from dr_ctl.jolokia.client import Answer
from dr_ctl.jolokia.http import BadValue, OperationFailed, PolicyRefused
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import checks
from dr_ctl.topologies.artemis.documents import IN_USER, BrokerStore
from dr_ctl.topologies.artemis.fence import ListenersAndRoles
from dr_ctl.topologies.artemis.operations import ArtemisRequests
from dr_ctl.topologies.common.link import AnyLink
from dr_ctl.topologies.common.names import HEARD_BY
from dr_ctl.topologies.common.view import Broker, Connection, Consumer
from dr_ctl.topologies.topology import Node

GROUP: Final = ("HAPolicy", "SharedStore", "Backup")
"""Read with each look at the broker; an old version lacks the first one."""
_ALONE: Final = ("Primary Only", "Live Only")
CORE: Final = "CORE"


@dataclass(frozen=True, slots=True)
class Group:
    """`policy` is the broker's HA policy in its own words, None where it tells none; `at` is the address at which its
    nodes and its cluster come in, as host and port, None without any. `nodes` are the addresses of its other nodes,
    `cluster` those of the other brokers of its cluster."""

    policy: str | None = None
    shares_store: bool = False
    at: str | None = None
    nodes: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    @property
    def has_nodes(self) -> bool:
        """Say whether another node is there, or may be: where the policy is for several."""
        return bool(self.nodes) or (self.policy is not None and self.policy not in _ALONE)

    @property
    def replicates(self) -> bool:
        """Say whether a node keeps a copy of the store, which it gets from the active one."""
        return self.has_nodes and not self.shares_store

    @property
    def port(self) -> int | None:
        port = (self.at or "").rpartition(":")[2]
        return int(port) if port.isdecimal() else None


ALONE: Final = Group()


@dataclass(frozen=True, slots=True)
class Coordinator:
    """A lock coordinator: while it holds its lock, the acceptors that hang on it are open."""

    name: str
    lock: str
    status: str

    @property
    def contends(self) -> bool:
        """Say whether it holds the lock, or may get it at any moment."""
        return self.status != "Stopped"

    @property
    def holds(self) -> bool:
        return self.status == "Locked"


def read_group(url: str, server: Fields, node: str, topology: Answer, *, active: bool = True) -> Group:
    """Make it of the broker's attributes and of its listing of the cluster, where a console lets that be asked. Raises
    `Passive` of a node that waits, `Between` of a broker that is starting, and `BadValue`. `active`: what it says of
    that; the oldest versions say only whether it is a backup that waits."""
    rows = [] if isinstance(topology.error, OperationFailed | PolicyRefused) else _rows(topology)
    own = next((row for row in rows if row.get("nodeID") == node), {})
    found = Group(
        policy=server.optional_text("HAPolicy") if server.has("HAPolicy") else None,
        shares_store=server.flag("SharedStore"),
        at=own.get("live"),
        nodes=(own["backup"],) if own.get("backup") else (),
        cluster=tuple(sorted(row["live"] for row in rows if row is not own and row.get("live"))),
    )
    waits = server.flag("Backup")
    if active and not waits:
        return found
    if not (waits or found.has_nodes):
        raise Between(f"{url}: the broker there is not active: it is starting, or ending")
    at = tuple(filter(None, (found.at, *found.nodes)))
    where = f" ({' and '.join(at)})" if at else ""
    text = f"{url}: the node there is passive: another node of that broker{where} is active, or none is"
    raise Passive(text, at=at)


def must_be_active(url: str, known: Group, server: Fields) -> None:
    """Raise `Passive` or `Between` where the node of an earlier look is not active any more."""
    if not server.flag("Active"):
        error = Passive if known.has_nodes else Between
        raise error(f"{url}: the node there is not active any more")


def _rows(topology: Answer) -> list[Mapping[str, Any]]:
    rows = json.loads(str(topology.value()))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadValue("the listing of the cluster is no list")
    return rows


def nodes(bridges: Iterable[Sequence[str]]) -> Sequence[str]:
    """Where bridges look for their peer, where one has several connectors: the connectors of each are given."""
    found = [f"connector {name}" for connectors in bridges if len(connectors) > 1 for name in connectors]
    return [*dict.fromkeys(found)]


def others(there: Iterable[Connection], peer: AnyLink | None) -> list[Connection]:
    """The connections that are none of the bridges: these speak CORE, all with one user, one connection each. Of one
    that has no session yet nothing is known. Connections of that user above the number of the bridges may be of the
    peer's earlier start, which a broker lists for up to a minute."""
    doing = [each for each in there if each.has_session]
    users = Counter(each.user for each in doing if each.protocol == CORE)
    bridges = sum(peer.ships.values()) if peer is not None else None
    user = _nearest(users, bridges)
    return [each for each in doing if each.protocol != CORE or each.user != user]


def _nearest(users: Mapping[str, int], bridges: int | None) -> str | None:
    """The user with as many connections as there are bridges, or nearly; the one with the most where that is not
    known."""
    if bridges is None:
        return max(users, key=lambda user: users[user], default=None)
    return min(users, key=lambda user: abs(users[user] - bridges), default=None)


@dataclass(frozen=True, slots=True)
class ArtemisBroker(Broker):
    """An Artemis broker as it answered."""

    group: Group = field(default=ALONE, kw_only=True)
    coordinators: tuple[Coordinator, ...] = field(default=(), kw_only=True)

    @property
    def inner_ports(self) -> frozenset[int]:
        """The port that its own connector names, those of the acceptors that the settings name, and those at which
        brokers of its site were seen to listen to it. A connector may name an address that something translates: then
        the nodes of one that replicates are those who have no session."""
        joined = self.group.has_nodes or self.group.cluster
        named = {acceptor.port for acceptor in self.acceptors if acceptor.name in self.config.cluster}
        ports = {self.group.port if joined else None, *named, *(consumer.port for consumer in self._listening)}
        if self.replicates and not ports & {acceptor.port for acceptor in self.acceptors if acceptor.port is not None}:
            ports |= {each.port for each in self.connections if each.protocol == CORE and not each.has_session}
        return frozenset(port for port in ports if port is not None)

    @property
    def replicates(self) -> bool:
        return self.group.replicates

    @property
    def drives_locks(self) -> bool:
        """Say whether its coordinators can be stopped and started by themselves: versions before cannot."""
        return self.is_since(2, 56)

    def is_since(self, *version: int) -> bool:
        """Say whether it is of that version or a later one."""
        numbers = re.match(r"(\d+)\.(\d+)", self.version)
        return numbers is not None and (int(numbers[1]), int(numbers[2])) >= version

    @property
    def is_clustered(self) -> bool:
        return bool(self.group.cluster or self._listening)

    @property
    def _listening(self) -> Sequence[Consumer]:
        """The brokers of its site that hear of its queues: each by a queue that it keeps for that broker."""
        return [each for each in self.consumers if each.queue.startswith(HEARD_BY) and each.queue not in self.business]

    @property
    def from_outside(self) -> Sequence[Connection]:
        """Within are CORE connections at those ports that have no session, as replication and the listing of nodes
        have none, or that consume what a broker of the site does."""
        inner_ports, business = self.inner_ports, self.business
        listening = {consumer.remote for consumer in self._listening}
        working = {consumer.remote for consumer in self.consumers if consumer.queue in business}

        def is_within(connection: Connection) -> bool:
            joins = connection.remote in listening - working or not connection.has_session
            return connection.protocol == CORE and connection.port in inner_ports and joins

        return [connection for connection in self.connections if not is_within(connection)]

    @property
    def unnamed(self) -> Sequence[Node]:
        """Which of the nodes that it lists have a name is not told: so many as are named are taken for those."""
        group, named = self.group, max(0, len(self.nodes) - 1)
        if group.nodes:
            return [Node(self.site, self.pair, at, "by its listing of the cluster") for at in group.nodes[named:]]
        shown_by = f"by its HA policy, {if_known(group.policy)}"
        return [Node(self.site, self.pair, "", shown_by)] if group.has_nodes and not named else []

    @property
    def fence(self) -> ListenersAndRoles:
        return ListenersAndRoles(self)

    @property
    def document_queue(self) -> BrokerStore:
        """The way in which documents of dr-ctl are kept at it."""
        return IN_USER

    @property
    def stays(self) -> Sequence[str]:
        return checks.stays(self)

    @property
    def requests(self) -> ArtemisRequests:
        return ArtemisRequests(self.broker, self.document_queue)


B_co = TypeVar("B_co", bound=ArtemisBroker, covariant=True)
