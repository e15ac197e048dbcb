"""A simulated broker that copies its clients' messages to its peer, and never deletes a copy itself."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker, is_new
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.brokersync.agent import Agent
from dr_ctl_lab.twin.classic.composite import BORN_HERE, Composite
from dr_ctl_lab.twin.classic.network import NetworkConnector
from dr_ctl_lab.twin.messages import Message, Origin, Queue, Reason
from dr_ctl_lab.twin.parts import Acceptor

AGENT, BRIDGE = "agent", "bridge"  # users


@dataclass(kw_only=True, eq=False)
class BrokerSyncBroker(BridgedBroker, ClassicBroker):
    """`agent` deletes copies here that the peer's clients have consumed. `returned`: the broker died while serving, and
    has messages that the peer's clients have consumed since."""

    peer: str
    returned: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.network = NetworkConnector(self, self.peer, ())
        self.agent: Agent | None = None
        self.agents: list[Agent] = []
        self._arrived_origins: OrderedDict[Origin, None] = OrderedDict()  # survives a death

    def copies(self, queue: str) -> str:
        """The name of the queue with the unshipped copies of a queue."""
        return f"{queue}.to-{self.peer}"

    def install(self, names: Sequence[str]) -> None:
        """Make composite queues that copy only clients' messages; copies from the bridge would loop."""
        super().install(names)
        for name in names:
            copy, arriving = self.copies(name), f"{name}.to-{self.site}"
            self.composites[name] = Composite(name, forward_only=False, targets=((copy, BORN_HERE),))
            self.composites[arriving] = Composite(arriving, forward_only=True, targets=((name, ""),))
        self.network = NetworkConnector(self, self.peer, [self.copies(name) for name in names])

    # start and end

    def on_start(self) -> None:
        super().on_start()
        self.network.on_start()

    def on_death(self) -> None:
        BridgedBroker.on_death(self)
        ClassicBroker.on_death(self)
        self.network.on_death()

    def kill(self) -> None:
        self.returned = self.returned or self.serves
        super().kill()

    def work(self, now_s: float) -> list[float]:
        return ClassicBroker.work(self, now_s)

    # the link to the peer

    @property
    def shipping_bridges(self) -> Iterator[Bridge]:
        yield from self.network.forwardings

    @property
    def attached(self) -> bool:
        return self.network.up

    @property
    def is_settled(self) -> bool:
        copies = [self.queues.get(self.copies(name)) for name in self.units]
        return not any(copy.messages for copy in copies if copy is not None) and (self.agent is None or self.agent.idle)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {"network": self.network.started}

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Store a message; one that arrived before is dropped silently."""
        del node
        self.queue_named(address)
        if shipped.origin is None or is_new(self._arrived_origins, shipped.origin):
            self.route(replace(shipped, number=self.next_number(), address=address, failed=0))

    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        super().on_removed(queue, message, reason)
        for agent in self.agents:
            agent.record_consumed(queue, message)

    def close_listener(self, acceptor: Acceptor) -> None:
        super().close_listener(acceptor)
        self.changed.notify_all()
