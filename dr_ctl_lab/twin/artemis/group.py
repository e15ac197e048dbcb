"""What a broker shows of other processes beside it: other nodes, and brokers of its site's cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dr_ctl_lab.twin.parts import Acceptor

if TYPE_CHECKING:
    from dr_ctl_lab.twin.host import Host

ALONE: Final = "Primary Only"


@dataclass(frozen=True, slots=True)
class Guest:
    """A connection that no client of the twin's holds: by which listener it came, its protocol, user and client id, and
    the queue that it consumes."""

    listener: str
    protocol: str
    user: str = ""
    client: str = ""
    consumes: str = ""
    remote: str = "10.9.8.7:40123"


@dataclass
class Group:
    """`policy` is the HA policy; `listener` is the acceptor that the broker's own connector names; `backup` is the
    address of a passive node's, `cluster` those of the other brokers by their node id. `synced`: another node
    holds a copy of the journal."""

    policy: str = ALONE
    shares_store: bool = False
    listener: str = ""
    backup: str = ""
    cluster: dict[str, str] = field(default_factory=dict)
    synced: bool = False

    def topology(self, node: str, acceptors: Mapping[str, Acceptor]) -> list[dict[str, Any]]:
        """The rows of the listing; none where the broker is in no cluster."""
        if not self.listener:
            return []
        at = f"127.0.0.1:{acceptors[self.listener].port}"
        own = {"nodeID": node, "live": at, "primary": at, **({"backup": self.backup} if self.backup else {})}
        return [own, *({"nodeID": value, "live": at, "primary": at} for value, at in self.cluster.items())]


def shown(host: Host) -> Group:
    """What a node of a group shows of the others."""
    nodes, role = host.nodes, "Primary" if host is host.nodes.hosts[0] else "Backup"
    layout = nodes.layout
    known = [item for item in nodes.hosts if item.running and item is not host and not item.is_active]
    backup = next((f"127.0.0.1:{name.acceptors[layout.listener].port}" for name in known), "")
    policy = f"Replication {role} w/quorum voting" if layout.replicates else f"Shared Store {role}"
    is_copied = bool(known) and nodes.is_in_sync
    return Group(policy, shares_store=not layout.replicates, listener=layout.listener, backup=backup, synced=is_copied)
