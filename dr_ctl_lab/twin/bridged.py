"""A simulated broker with bridges to its peer."""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.parts import Acceptor

ID_CACHE: Final = 20_000


@dataclass(kw_only=True, eq=False)
class BridgedBroker(Broker):
    """`incoming`: bridges of the peer that are connected here; `cuts`: how often they were cut off here; `confirm_s`:
    the delay of confirmations of its own bridges, as real brokers often have."""

    incoming: int = 0
    cuts: int = 0
    confirm_delay_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._arrived: dict[str, OrderedDict[tuple[str, int], None]] = {}  # survives a death

    @property
    @abstractmethod
    def shipping_bridges(self) -> Iterator[Bridge]:
        """The bridges to the peer."""

    @abstractmethod
    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Store a message from a bridge of the broker `node`."""

    @abstractmethod
    def work(self, now_s: float) -> list[float]:
        """Do the broker's own periodic work; return the times, of the clock of `now_s`, when more is due."""

    @property
    def attached(self) -> bool:
        return all(bridge.connected for bridge in self.shipping_bridges)

    def on_death(self) -> None:
        self.incoming = 0
        self.cuts += 1

    def close_listener(self, acceptor: Acceptor) -> None:
        self.cuts += acceptor.started and acceptor.name == self.peers_listener
        super().close_listener(acceptor)

    def arrived_before(self, address: str, node: str, number: int) -> bool:
        """Say whether a bridge has delivered this message before; remember it otherwise."""
        return not is_new(self._arrived.setdefault(address, OrderedDict()), (node, number))


def is_new(known: OrderedDict[Any, None], key: Any) -> bool:
    """Remember `key`; False where it was known. The oldest keys are forgotten."""
    if key in known:
        return False
    known[key] = None
    if len(known) > ID_CACHE:
        known.popitem(last=False)
    return True
