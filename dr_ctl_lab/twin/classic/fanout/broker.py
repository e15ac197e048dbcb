"""A simulated broker that knows of no other one, the producers that write to both, and what all clients share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.ids import IdStore
from dr_ctl_lab.twin.messages import Message

ID_HEADER = "order_id"
PRODUCERS, OWN = "producers", "sync"
LEAST, STORE = "min-ack-count", "ids/shared.sqlite"  # in the twin's directory
BOTH = 2


@dataclass(kw_only=True)
class FanoutBroker(ClassicBroker):
    """One of two brokers. Messages have the broker's ids; the producers' id is a header. Consumers of both sites share
    a store of processed ids, producers a file with the number of sites that must confirm."""

    peers_door = PRODUCERS

    both: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ids = IdStore(self.home and self.home / STORE)
        if self.home is not None:
            (self.home / LEAST).write_text(f"{BOTH}\n")

    @property
    def attached(self) -> bool:
        """Say whether producers that write to it write to its peer too."""
        return self.both

    @property
    def even(self) -> bool:
        return True


class Producers:
    """Send each message to every broker that takes it. `acks`: fewer of them than that, and it counts as refused."""

    def __init__(self, brokers: Sequence[FanoutBroker], *, acks: int = 2) -> None:
        self.brokers, self.acks = tuple(brokers), acks

    def send(self, queue: str, ident: str, body: bytes = b"") -> bool:
        """Say whether enough brokers have the message. With too few, those brokers keep it nevertheless."""
        taking = [each for each in self.brokers if each.lets_peer_in and not each.frozen]
        for broker in taking:
            message = Message(broker.next_number(), queue, body, text=True, headers={ID_HEADER: ident})
            broker.route(replace(message, timestamp_ms=broker.now_ms()))
        return len(taking) >= self.acks
