"""A simulated Artemis broker: its errors, limits and groups, and the headers of a moved message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.artemis.group import ForeignConnection, Group, group_of
from dr_ctl_lab.twin.artemis.limits import NO_LIMIT, Limits
from dr_ctl_lab.twin.broker import ANYCAST, DEAD_LETTERS, EXPIRED, Broker, Refusal
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.parts import BrokerError

if TYPE_CHECKING:
    from dr_ctl_lab.twin.artemis.locks import Coordinator
    from dr_ctl_lab.twin.nodes import Nodes

_CORE = "org.apache.activemq.artemis.api.core"


@dataclass(kw_only=True, eq=False)
class ArtemisBroker(Broker):
    limits: Limits = field(default_factory=Limits)
    group: Group = field(default_factory=Group)
    foreign_connections: list[ForeignConnection] = field(default_factory=list)
    node_connections: list[ForeignConnection] = field(default_factory=list)  # its other nodes
    coordinators: list[Coordinator] = field(default_factory=list)
    persists_ids: bool = True

    def connectors(self, peer: str) -> list[str]:
        """Names of the connectors to the peer's nodes; the peer has as many nodes as this broker."""
        return [peer, *(f"{peer}-{number}" for number in range(1, len(self.node_acceptors)))]

    def size(self, address: str | None = None) -> int:
        """The size of the messages of an address, or of all addresses."""
        queues = (queue for queue in self.queues.values() if address in (None, queue.address))
        return sum(message.size for queue in queues for message in queue.messages.values())

    def limit_percent(self, address: str) -> int:
        """The usage of the address's own limit; 0 where it has none."""
        max_bytes = self.limits.settings_of(address).max_bytes
        return self.size(address) * 100 // max_bytes if max_bytes > 0 else 0

    def is_paging(self, address: str) -> bool:
        """The `Paging` flag: true for every full address whose policy is not BLOCK."""
        settings = self.limits.settings_of(address)
        full = (settings.max_bytes >= 0 and self.size(address) > settings.max_bytes) or (
            self.limits.memory < NO_LIMIT and self.size() >= self.limits.memory
        )
        return full and settings.policy != "BLOCK"

    def refuses_send(self, address: str) -> str | None:
        if self.limits.disk_is_full:
            return (
                f"AMQ229119: Free storage space is at 0B of 1GB total. Usage rate is {self.limits.disk_used:.1%} which "
                "is beyond the configured <max-disk-usage>. System will start blocking producers."
            )
        if self.limits.settings_of(address).policy == "FAIL" and self.is_paging(address):
            return f"AMQ229102: Address {address} is full"
        return None

    def pause_address(self, address: str, *, on: bool) -> None:
        """Pause or resume an address with its queues."""
        (self.limits.paused.add if on else self.limits.paused.discard)(address)
        for queue in [queue for queue in self.queues.values() if queue.address == address]:
            queue.paused = on
            queue.dispatch()

    def cut_consumers(self, address: str) -> bool:
        """Cut every connection that has a consumer of the address."""
        result = [
            session
            for session in self.sessions.values()
            if any(subscription.queue.address == address for subscription in session.subscriptions())
        ]
        for session in result:
            session.refuse(f"AMQ229107: consumer connections for address {address} closed by management")
        return bool(result)

    def install(self, names: Sequence[str]) -> None:
        self.add_address("activemq.notifications", "multicast", here_only=True)
        for name in (*names, DEAD_LETTERS, EXPIRED):
            self.create_queue({"name": name, "routing-type": ANYCAST, "durable": True}, here_only=True)

    def refusal(self, reason: Refusal, name: str) -> BrokerError:
        match reason:
            case Refusal.TAKEN:
                text = f"AMQ229019: Queue {name} already exists on address {self.queues[name].address}"
                return BrokerError("java.lang.IllegalStateException", text)
            case Refusal.MISSING:
                return BrokerError(
                    f"{_CORE}.ActiveMQNonExistentQueueException", f"AMQ229017: Queue {name} does not exist"
                )
            case Refusal.IN_USE:
                text = f"AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers = "
                text += "org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
                return BrokerError(f"{_CORE}.ActiveMQIllegalStateException", text)
            case Refusal.NO_TARGET:
                return BrokerError("java.lang.IllegalArgumentException", f"AMQ229049: No queue found for {name}", 400)

    def moved_headers(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        texts = {"_AMQ_ORIG_QUEUE": queue.name, "_AMQ_ORIG_ADDRESS": queue.address}
        return texts, {"_AMQ_ORIG_MESSAGE_ID": message.number}

    def on_nodes_changed(self, nodes: Nodes) -> None:
        """Connect the passive nodes to the active one."""
        hosts = [host for host in nodes.hosts if host.broker is self]
        active = next((host for host in hosts if host.is_active), hosts[0])
        self.group = group_of(active)
        waiting = sum(host.running and not host.is_active for host in hosts)
        self.node_connections = [ForeignConnection(nodes.layout.listener, "CORE") for _ in range(2 * waiting)]

    def kill(self) -> None:
        super().kill()
        self.limits.paused.clear()
        self.limits.blocked.clear()
        for queue in self.queues.values():
            queue.user = _stored_user(queue.user)


def _stored_user(user: str | None) -> str | None:
    """The user that a start reads from `user=TEXT;` in the journal: the broker splits at both signs."""
    parts = [part.split("=") for part in f"user={user or ''};".split(";")]
    return next((part[1] or None for part in parts if len(part) == 2 and part[0] == "user"), None)  # noqa: PLR2004
