"""The other nodes of a broker and the brokers of its cluster, as its management shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

PRIMARY_ONLY: Final = "Primary Only"


@dataclass(frozen=True, slots=True)
class ForeignConnection:
    """A connection that is only listed: its listener, protocol, user and client id, and the queue that it consumes."""

    listener: str
    protocol: str
    user: str = ""
    client: str = ""
    consumes: str = ""
    remote: str = "10.9.8.7:40123"


@dataclass
class Group:
    """`policy` is the HA policy, `listener` the broker's cluster acceptor, `backup` the address of a passive node,
    `cluster` those of other brokers by node id. `synced`: another node has a copy of the journal."""

    policy: str = PRIMARY_ONLY
    shares_store: bool = False
    listener: str = ""
    backup: str = ""
    cluster: dict[str, str] = field(default_factory=dict)
    synced: bool = False

    def topology(self, node: str, acceptors: Mapping[str, Acceptor]) -> list[dict[str, Any]]:
        """The rows of the topology listing; none without a cluster."""
        if not self.listener:
            return []
        at = f"127.0.0.1:{acceptors[self.listener].port}"
        hosts = {"nodeID": node, "live": at, "primary": at, **({"backup": self.backup} if self.backup else {})}
        return [hosts, *({"nodeID": value, "live": at, "primary": at} for value, at in self.cluster.items())]


def group_of(host: Host) -> Group:
    """The group as a node shows it."""
    nodes, role = host.nodes, "Primary" if host is host.nodes.hosts[0] else "Backup"
    layout = nodes.layout
    known = [item for item in nodes.hosts if item.running and item is not host and not item.is_active]
    backup = next((f"127.0.0.1:{name.acceptors[layout.listener].port}" for name in known), "")
    policy = f"Replication {role} w/quorum voting" if layout.replicates else f"Shared Store {role}"
    is_copied = bool(known) and nodes.is_in_sync
    return Group(policy, shares_store=not layout.replicates, listener=layout.listener, backup=backup, synced=is_copied)
