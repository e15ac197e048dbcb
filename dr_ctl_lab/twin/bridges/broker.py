"""A simulated broker with diverts and bridges that copy its queues to the peer, through a buffer.

The peer's copies are never deleted: consumers send the ids of processed messages to the other site. A queue is closed
at a site by taking the rights of the clients' role away and pausing it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.current import VERSION
from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged import BridgedBroker
from dr_ctl_lab.twin.bridges import layout
from dr_ctl_lab.twin.bridges.divert import ORIGIN, Config, CoreBridge, Divert
from dr_ctl_lab.twin.bridges.layout import BRIDGE, CLIENTS, GRANTS, ID_HEADER, NOTIFICATIONS, QUEUE_HEADER
from dr_ctl_lab.twin.bridges.processor import Processor
from dr_ctl_lab.twin.broker import ANYCAST
from dr_ctl_lab.twin.ids import IdStore
from dr_ctl_lab.twin.messages import Message, Queue, Reason
from dr_ctl_lab.twin.security import Security


@dataclass(kw_only=True, eq=False)
class BridgesBroker(BridgedBroker, ArtemisBroker):
    """`loses_refused`: messages under way in a refused bridge are acknowledged and lost, as often with real brokers;
    otherwise they stay in the buffer."""

    version: ClassVar[str] = VERSION
    peers_listener: ClassVar[str] = "bridge"

    peer: str
    loses_refused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.security = Security(self.roles, GRANTS)
        # Diverts and bridges that a start creates, and those that exist now.
        self.stored_diverts: dict[str, Config] = {}
        self.stored_bridges: dict[str, Config] = {}
        self.diverts: dict[str, Divert] = {}
        self.bridges: dict[str, CoreBridge] = {}
        self._in_file: frozenset[str] = frozenset()
        self.routed_counts: Counter[str] = Counter()
        self.unrouted_counts: Counter[str] = Counter()
        self.ids = IdStore(self.home and self.home / "ids" / f"{self.name}.sqlite")
        self.processor = Processor(self)
        self._first_start = True

    # the link to the peer

    @property
    def shipping_bridges(self) -> Iterator[Bridge]:
        yield from [*self.bridges.values()]

    @property
    def attached(self) -> bool:
        return bool(self.bridges) and super().attached

    @property
    def units(self) -> list[str]:
        """The queues that are copied to the peer."""
        return [
            divert.address for divert in self.diverts.values() if not divert.exclusive and divert.address in self.queues
        ]

    @property
    def is_settled(self) -> bool:
        items = (NOTIFICATIONS, *(name for name in self.queues if name.startswith(f"mirror.{self.peer}.")))
        return not any(self.queues[name].messages for name in items if name in self.queues)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {
            "diverts": {name: dict(divert.config) for name, divert in self.diverts.items()},
            "bridges": {name: bridge.started for name, bridge in self.bridges.items()},
            "processor": self.processor.running,
        }

    # start and end

    def install(self, names: Sequence[str]) -> None:
        """Create the queues, closed, with their buffers, diverts and bridges."""
        super().install(names)
        self.create_queue({"name": NOTIFICATIONS, "routing-type": ANYCAST})
        for address in (*names, NOTIFICATIONS):
            self.create_queue(layout.buffer(self.peer, address))
            config = layout.divert(self.site, address)
            self.stored_diverts[config["name"]] = config
            config = layout.bridge(self.site, self.connectors(self.peer), address, (BRIDGE, self.users.get(BRIDGE, "")))
            self.stored_bridges[config["name"]] = config
        self._in_file = frozenset((*self.stored_diverts, *self.stored_bridges))
        for name in names:
            self.close_unit(name)

    def on_start(self) -> None:
        """Create diverts and bridges from file and journal. The first start also opens the clients' listener, as a
        person would."""
        for config in self.stored_diverts.values():
            self.diverts[config["name"]] = Divert(config)
        for config in self.stored_bridges.values():
            self._deploy(config)
        if self._first_start:
            self._first_start = False
            self.open_listener(self.acceptors["clients"])

    def on_death(self) -> None:
        super().on_death()
        for bridge in self.bridges.values():
            bridge.on_death()
        self.bridges.clear()
        self.diverts.clear()
        self.routed_counts.clear()
        self.unrouted_counts.clear()

    def work(self, now_s: float) -> list[float]:
        return self.processor.work(now_s)

    def release(self) -> None:
        self.ids.close()

    # diverts and bridges

    def create_divert(self, config: Config) -> None:
        divert = Divert(config)
        self.diverts[divert.name], self.stored_diverts[divert.name] = divert, config

    def destroy_divert(self, name: str) -> None:
        """Remove a divert; a start creates one of the file again."""
        self.diverts.pop(name, None)
        if name not in self._in_file:
            self.stored_diverts.pop(name, None)

    def create_bridge(self, config: Config) -> None:
        """Create a bridge and store it for later starts, whether it can work or not."""
        self.stored_bridges.setdefault(str(config["name"]), config)
        self._deploy(config)

    def destroy_bridge(self, name: str) -> None:
        """Remove a running bridge. One that does not run is not removed: a start creates it again."""
        bridge = self.bridges.pop(name, None)
        if bridge is not None:
            bridge.stop()
            if name not in self._in_file:
                self.stored_bridges.pop(name, None)

    def _deploy(self, config: Config) -> None:
        """Create a bridge; do nothing where its name is taken, or its queue or connector is missing."""
        queue = self.queues.get(str(config.get("queue-name")))
        connectors = set(config.get("static-connectors") or ())
        known = bool(connectors) and connectors <= set(self.connectors(self.peer))
        if config["name"] not in self.bridges and queue is not None and known:
            bridge = CoreBridge(config, queue, self.clock)
            bridge.started = True
            self.bridges[bridge.name] = bridge
            self.changed.notify_all()

    def stop_bridges(self) -> None:
        """Remove all bridges, as the broker does when the peer refuses one."""
        for bridge in self.bridges.values():
            bridge.stop()
        self.bridges.clear()

    def destroy_queue(self, name: str, *, with_consumers: bool = False, here_only: bool = False) -> None:
        if with_consumers:
            for bridge in [bridge for bridge in self.bridges.values() if bridge.queue.name == name]:
                bridge.stop()
        super().destroy_queue(name, with_consumers=with_consumers, here_only=here_only)

    # clients

    @property
    def serves(self) -> bool:
        return any(self.serves_queue(name) for name in self.units)

    def let_clients_in(self) -> None:
        super().let_clients_in()
        for name in self.units:
            self.open_unit(name)

    def keep_clients_out(self) -> None:
        for name in self.units:
            self.close_unit(name)

    def serves_queue(self, name: str) -> bool:
        """Say whether clients of a queue are let in and are served."""
        queue = self.queues.get(name)
        if not self.acceptors["clients"].started or queue is None or queue.paused:
            return False
        return all(self.security.may(CLIENTS, word, queue.address) for word in ("send", "consume"))

    def open_unit(self, name: str) -> None:
        queue = self.queue(name)
        self.security.remove(queue.address)
        queue.paused = queue.lasting = False
        queue.dispatch()

    def close_unit(self, name: str) -> None:
        """Take the clients' rights away, pause the queue, and cut its consumers."""
        queue = self.queue(name)
        self.security.keep_out(CLIENTS, queue.address)
        queue.paused = queue.lasting = True
        self.cut_consumers(queue.address)

    def waiting(self, queue: str) -> int:
        """Count the unprocessed messages; 0 where the queue is closed."""
        if not self.serves_queue(queue):
            return 0
        messages = self.queues[queue].messages.values()
        return sum(not self.ids.knows(queue, self.identity(message)) for message in messages)

    def identity(self, message: Message) -> str:
        """The id of a message at both sites: the producer's id, or its origin site and number."""
        number = message.longs.get("_AMQ_ORIG_MESSAGE_ID", message.number)
        return message.headers.get(ID_HEADER, f"{message.headers.get(ORIGIN, self.site)}:{number}")

    def notify(self, queue: str, ident: str) -> None:
        """Send the id of a processed message to the peer."""
        notification = Message(
            self.next_number(), NOTIFICATIONS, ident.encode(), text=True, headers={QUEUE_HEADER: queue}
        )
        self.route(replace(notification, timestamp_ms=self.now_ms(), anycast=False))

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Route through diverts. With an exclusive divert no queue gets the message; a message put directly into a
        queue passes no divert."""
        diverts = [divert for divert in self.diverts.values() if only is None and divert.takes(message)]
        exclusive = [divert for divert in diverts if divert.exclusive]
        items = [] if exclusive else super().route(message, only=only)
        for divert in exclusive or diverts:
            self.route(divert.copy(message, self.next_number()))
        counts = self.routed_counts if items or diverts else self.unrouted_counts
        counts[message.address] += 1
        return items

    def on_routed(self, message: Message, queues: Sequence[Queue], *, direct: bool) -> None:
        del message, queues, direct
        self.changed.notify_all()

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """Store a message; an address without a queue drops it, and the bridge is not told."""
        if not self.arrived_before(address, node, shipped.number):
            if address not in self.addresses:
                self.add_address(address, "multicast")
            self.route(replace(shipped, number=self.next_number(), address=address, failed=0))

    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Do nothing: the peer's copy stays."""
