"""A simulated Artemis broker: words of refusal, the door of the peer's link, marks on a moved message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dr_ctl_lab.twin.broker import ANYCAST, DEAD_LETTERS, EXPIRED, Broker, No
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.parts import BrokerSaysNo

_CORE = "org.apache.activemq.artemis.api.core"


@dataclass(kw_only=True)
class ArtemisBroker(Broker):
    def cut_consumers(self, address: str) -> bool:
        """Cut every connection with a consumer of that address, and all its other consumers."""
        found = [each for each in self.sessions.values() if any(one.queue.address == address for one in each.holds())]
        for session in found:
            session.refuse(f"AMQ229107: consumer connections for address {address} closed by management")
        return bool(found)

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

    def kill(self) -> None:
        super().kill()
        for queue in self.queues.values():
            queue.user = _kept(queue.user)


def _kept(user: str | None) -> str | None:
    """The user that a start reads from `user=TEXT;` in the journal; the broker splits at both signs."""
    parts = [part.split("=") for part in f"user={user or ''};".split(";")]
    return next((part[1] or None for part in parts if len(part) == 2 and part[0] == "user"), None)  # noqa: PLR2004
