"""A simulated broker that knows of no other one, and what all clients share."""

from dataclasses import dataclass

from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.ids import IdStore

ID_HEADER = "order_id"
PRODUCERS, OWN = "producers", "sync"
LEAST, STORE = "min-ack-count", "ids/shared.sqlite"  # in the twin's directory
BOTH = 2


@dataclass(kw_only=True, eq=False)
class FanoutBroker(ClassicBroker):
    """One of two brokers. Messages have the broker's ids; the producers' id is a header. Consumers of both sites share
    a store of processed ids, producers a file with the number of sites that must confirm."""

    peers_listener = PRODUCERS

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
