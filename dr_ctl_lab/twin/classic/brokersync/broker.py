"""A simulated broker that copies what its clients send to its peer. The broker itself never deletes a copy."""

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

AGENT, BRIDGE = "agent", "bridge"  # further users of a broker


@dataclass(kw_only=True, eq=False)
class BrokerSyncBroker(BridgedBroker, ClassicBroker):
    """`agent` deletes copies here after the peer's clients consume. `returned`: the broker died while serving, and
    holds messages that the peer has consumed meanwhile."""

    peer: str
    returned: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.network = NetworkConnector(self, self.peer, ())
        self.agent: Agent | None = None
        self.consumed_by: list[Agent] = []
        self._came: OrderedDict[Origin, None] = OrderedDict()  # kept over a death

    def copies(self, queue: str) -> str:
        """The name of the queue that holds the copies of a queue until they are shipped."""
        return f"{queue}.to-{self.peer}"

    def installed(self, names: Sequence[str]) -> None:
        """Copy only clients' messages; copies from the bridge would go in a circle."""
        super().installed(names)
        for name in names:
            copy, arriving = self.copies(name), f"{name}.to-{self.site}"
            self.composites[name] = Composite(name, forward_only=False, targets=((copy, BORN_HERE),))
            self.composites[arriving] = Composite(arriving, forward_only=True, targets=((name, ""),))
        self.network = NetworkConnector(self, self.peer, [self.copies(name) for name in names])

    # its life

    def booted(self) -> None:
        super().booted()
        self.network.booted()

    def fell(self) -> None:
        BridgedBroker.fell(self)
        ClassicBroker.fell(self)
        self.network.fell()

    def kill(self) -> None:
        self.returned = self.returned or self.serves
        super().kill()

    def work(self, now_s: float) -> list[float]:
        return ClassicBroker.work(self, now_s)

    # the way to the peer

    @property
    def shipping(self) -> Iterator[Bridge]:
        yield from self.network.forwardings

    @property
    def attached(self) -> bool:
        return self.network.up

    @property
    def even(self) -> bool:
        copies = [self.queues.get(self.copies(name)) for name in self.units]
        return not any(copy.messages for copy in copies if copy is not None) and (self.agent is None or self.agent.idle)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {"network": self.network.started}

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Drop a message that has been here before, silently."""
        del node
        self.queue_named(address)
        if shipped.origin is None or is_new(self._came, shipped.origin):
            self.route(replace(shipped, number=self.next_number(), address=address, failed=0))

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        super().removed(queue, message, reason)
        for agent in self.consumed_by:
            agent.hear(queue, message)

    def close_listener(self, acceptor: Acceptor) -> None:
        super().close_listener(acceptor)
        self.changed.notify_all()
