"""A simulated Artemis broker: words of refusal, the listener of the peer's link, marks on a moved message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dr_ctl_lab.twin.artemis.group import Group, Guest, shown
from dr_ctl_lab.twin.artemis.limits import ROOMY, Limits
from dr_ctl_lab.twin.broker import ANYCAST, DEAD_LETTERS, EXPIRED, Broker, No
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.parts import BrokerSaysNo

if TYPE_CHECKING:
    from dr_ctl_lab.twin.artemis.locks import Coordinator
    from dr_ctl_lab.twin.nodes import Nodes

_CORE = "org.apache.activemq.artemis.api.core"


@dataclass(kw_only=True, eq=False)
class ArtemisBroker(Broker):
    limits: Limits = field(default_factory=Limits)
    group: Group = field(default_factory=Group)
    guests: list[Guest] = field(default_factory=list)
    between: list[Guest] = field(default_factory=list)  # its other nodes
    coordinators: list[Coordinator] = field(default_factory=list)
    persists_ids: bool = True

    def connectors(self, peer: str) -> list[str]:
        """The names of its connectors to the nodes of its peer, of which there are as many as of its own."""
        return [peer, *(f"{peer}-{number}" for number in range(1, len(self.places)))]

    def size(self, address: str | None = None) -> int:
        """The bytes that lie at an address, or at all of them."""
        found_queues = (queue for queue in self.queues.values() if address in (None, queue.address))
        return sum(message.size for queue in found_queues for message in queue.messages.values())

    def limit_percent(self, address: str) -> int:
        """How much of the address's own limit is taken; 0 where it has none."""
        most = self.limits.of(address).most
        return self.size(address) * 100 // most if most > 0 else 0

    def pages(self, address: str) -> bool:
        """Say so of an address at a limit: every one that keeps messages out says that it pages, but for one that
        blocks."""
        items = self.limits.of(address)
        full = (items.most >= 0 and self.size(address) > items.most) or (
            self.limits.memory < ROOMY and self.size() >= self.limits.memory
        )
        return full and items.policy != "BLOCK"

    def refuses_send(self, address: str) -> str | None:
        if self.limits.disk_is_full:
            return (
                f"AMQ229119: Free storage space is at 0B of 1GB total. Usage rate is {self.limits.disk_used:.1%} which "
                "is beyond the configured <max-disk-usage>. System will start blocking producers."
            )
        if self.limits.of(address).policy == "FAIL" and self.pages(address):
            return f"AMQ229102: Address {address} is full"
        return None

    def pause_address(self, address: str, *, on: bool) -> None:
        """With its queues."""
        (self.limits.paused.add if on else self.limits.paused.discard)(address)
        for queue in [queue for queue in self.queues.values() if queue.address == address]:
            queue.paused = on
            queue.dispatch()

    def cut_consumers(self, address: str) -> bool:
        """Cut every connection with a consumer of that address, and all its other consumers."""
        result = [
            session
            for session in self.sessions.values()
            if any(one.queue.address == address for one in session.holds())
        ]
        for session in result:
            session.refuse(f"AMQ229107: consumer connections for address {address} closed by management")
        return bool(result)

    def installed(self, names: Sequence[str]) -> None:
        self.add_address("activemq.notifications", "multicast", here_only=True)
        for name in (*names, DEAD_LETTERS, EXPIRED):
            self.create_queue({"name": name, "routing-type": ANYCAST, "durable": True}, here_only=True)

    def no(self, why: No, name: str) -> BrokerSaysNo:
        match why:
            case No.TAKEN:
                text = f"AMQ229019: Queue {name} already exists on address {self.queues[name].address}"
                return BrokerSaysNo("java.lang.IllegalStateException", text)
            case No.MISSING:
                return BrokerSaysNo(
                    f"{_CORE}.ActiveMQNonExistentQueueException", f"AMQ229017: Queue {name} does not exist"
                )
            case No.IN_USE:
                text = f"AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers = "
                text += "org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
                return BrokerSaysNo(f"{_CORE}.ActiveMQIllegalStateException", text)
            case No.NO_TARGET:
                return BrokerSaysNo("java.lang.IllegalArgumentException", f"AMQ229049: No queue found for {name}", 400)

    def marks(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        texts = {"_AMQ_ORIG_QUEUE": queue.name, "_AMQ_ORIG_ADDRESS": queue.address}
        return texts, {"_AMQ_ORIG_MESSAGE_ID": message.number}

    def grouped(self, nodes: Nodes) -> None:
        """Nodes that wait are connected to the one that does not."""
        own = [host for host in nodes.hosts if host.broker is self]
        active = next((host for host in own if host.is_active), own[0])
        self.group = shown(active)
        waiting = sum(host.running and not host.is_active for host in own)
        self.between = [Guest(nodes.layout.listener, "CORE") for _ in range(2 * waiting)]

    def kill(self) -> None:
        super().kill()
        self.limits.paused.clear()
        self.limits.blocked.clear()
        for queue in self.queues.values():
            queue.user = _kept(queue.user)


def _kept(user: str | None) -> str | None:
    """The user that a start reads from `user=TEXT;` in the journal; the broker splits at both signs."""
    parts = [part.split("=") for part in f"user={user or ''};".split(";")]
    return next((part[1] or None for part in parts if len(part) == 2 and part[0] == "user"), None)  # noqa: PLR2004
