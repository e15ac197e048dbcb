"""A simulated broker without a link, and the files that all clients share."""

from dataclasses import dataclass

from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.ids import IdStore

ID_HEADER = "order_id"
PRODUCERS, SYNC = "producers", "sync"
CONFIRMATIONS, STORE = "min-ack-count", "ids/shared.sqlite"  # in the twin's directory
BOTH = 2


@dataclass(kw_only=True, eq=False)
class FanoutBroker(ClassicBroker):
    """One of two brokers. The producers' id of a message is a header. Consumers of both sites share a store of
    processed ids, producers a file with the number of sites that must confirm."""

    peers_listener = PRODUCERS

    producers_reach_peer: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ids = IdStore(self.home and self.home / STORE)
        if self.home is not None:
            (self.home / CONFIRMATIONS).write_text(f"{BOTH}\n")

    @property
    def attached(self) -> bool:
        """Say whether its producers reach the peer too."""
        return self.producers_reach_peer

    @property
    def is_settled(self) -> bool:
        return True
