"""A simulated broker with diverts and bridges that copy its queues to the peer, through a buffer.

The peer's copies are never deleted: consumers tell the other site the ids of processed messages. There is no activation
either. A queue is closed at a site where its clients' role is kept out of its address and it is paused.
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
from dr_ctl_lab.twin.bridges.divert import ORIGIN, CoreBridge, Divert, Told
from dr_ctl_lab.twin.bridges.layout import BRIDGE, CLIENTS, GRANTS, ID_HEADER, NOTIFICATIONS, QUEUE_HEADER
from dr_ctl_lab.twin.bridges.processor import Processor
from dr_ctl_lab.twin.broker import ANYCAST
from dr_ctl_lab.twin.ids import IdStore
from dr_ctl_lab.twin.messages import Message, Queue, Reason
from dr_ctl_lab.twin.security import Security


@dataclass(kw_only=True, eq=False)
class BridgesBroker(BridgedBroker, ArtemisBroker):
    """`loses_refused`: messages in hand of a refused bridge are acknowledged and never arrive, as often with real
    brokers; otherwise they stay in the buffer, as also happens."""

    version: ClassVar[str] = VERSION
    peers_listener: ClassVar[str] = "bridge"

    peer: str
    loses_refused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.security = Security(self.roles, GRANTS)
        # Diverts and bridges to be made at a start, then those that exist now.
        self.told_diverts: dict[str, Told] = {}
        self.told_bridges: dict[str, Told] = {}
        self.diverts: dict[str, Divert] = {}
        self.bridges: dict[str, CoreBridge] = {}
        self._in_file: frozenset[str] = frozenset()
        self.took: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.ids = IdStore(self.home and self.home / "ids" / f"{self.name}.sqlite")
        self.processor = Processor(self)
        self._first_start = True

    # the way to the peer

    @property
    def shipping(self) -> Iterator[Bridge]:
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
    def even(self) -> bool:
        items = (NOTIFICATIONS, *(name for name in self.queues if name.startswith(f"mirror.{self.peer}.")))
        return not any(self.queues[name].messages for name in items if name in self.queues)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {
            "diverts": {name: dict(divert.config) for name, divert in self.diverts.items()},
            "bridges": {name: bridge.started for name, bridge in self.bridges.items()},
            "processor": self.processor.running,
        }

    # its life

    def installed(self, names: Sequence[str]) -> None:
        """Close every queue: a site is opened later, when both sites exist."""
        super().installed(names)
        self.create_queue({"name": NOTIFICATIONS, "routing-type": ANYCAST})
        for address in (*names, NOTIFICATIONS):
            self.create_queue(layout.buffer(self.peer, address))
            config = layout.divert(self.site, address)
            self.told_diverts[config["name"]] = config
            config = layout.bridge(self.site, self.connectors(self.peer), address, (BRIDGE, self.users.get(BRIDGE, "")))
            self.told_bridges[config["name"]] = config
        self._in_file = frozenset((*self.told_diverts, *self.told_bridges))
        for name in names:
            self.close_unit(name)

    def booted(self) -> None:
        """Make diverts and bridges from file and journal. A person has opened the clients' listener after the first
        start."""
        for config in self.told_diverts.values():
            self.diverts[config["name"]] = Divert(config)
        for config in self.told_bridges.values():
            self._deploy(config)
        if self._first_start:
            self._first_start = False
            self.open_listener(self.acceptors["clients"])

    def fell(self) -> None:
        super().fell()
        for bridge in self.bridges.values():
            bridge.fell()
        self.bridges.clear()
        self.diverts.clear()
        self.took.clear()
        self.dropped.clear()

    def work(self, now_s: float) -> list[float]:
        return self.processor.work(now_s)

    def ended(self) -> None:
        self.ids.close()

    # diverts and bridges

    def create_divert(self, config: Told) -> None:
        divert = Divert(config)
        self.diverts[divert.name], self.told_diverts[divert.name] = divert, config

    def destroy_divert(self, name: str) -> None:
        """Remove a divert; a divert of the file is back after a start."""
        self.diverts.pop(name, None)
        if name not in self._in_file:
            self.told_diverts.pop(name, None)

    def create_bridge(self, config: Told) -> None:
        """Make it and keep it for every start to come, whether it can work or not."""
        self.told_bridges.setdefault(str(config["name"]), config)
        self._deploy(config)

    def destroy_bridge(self, name: str) -> None:
        """Remove a running bridge. A bridge that does not run is not removed, and is back after a start."""
        bridge = self.bridges.pop(name, None)
        if bridge is not None:
            bridge.stop()
            if name not in self._in_file:
                self.told_bridges.pop(name, None)

    def _deploy(self, config: Told) -> None:
        """Make a bridge, or ignore a bridge with a taken name, or without queue or connector."""
        queue = self.queues.get(str(config.get("queue-name")))
        connectors = set(config.get("static-connectors") or ())
        known = bool(connectors) and connectors <= set(self.connectors(self.peer))
        if config["name"] not in self.bridges and queue is not None and known:
            bridge = CoreBridge(config, queue, self.clock)
            bridge.started = True
            self.bridges[bridge.name] = bridge
            self.changed.notify_all()

    def stop_bridges(self) -> None:
        """Remove all bridges, as after the peer refuses one, until they are made again or the broker starts."""
        for bridge in self.bridges.values():
            bridge.stop()
        self.bridges.clear()

    def destroy_queue(self, name: str, *, with_takers: bool = False, here_only: bool = False) -> None:
        if with_takers:
            for bridge in [bridge for bridge in self.bridges.values() if bridge.queue.name == name]:
                bridge.stop()
        super().destroy_queue(name, with_takers=with_takers, here_only=here_only)

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
        """Keep the clients' role out of its address, deliver nothing, and cut who consumes it."""
        queue = self.queue(name)
        self.security.keep_out(CLIENTS, queue.address)
        queue.paused = queue.lasting = True
        self.cut_consumers(queue.address)

    def waiting(self, queue: str) -> int:
        """Messages still to be consumed: none at a closed site, and none that the other site processed."""
        if not self.serves_queue(queue):
            return 0
        lying = self.queues[queue].messages.values()
        return sum(not self.ids.knows(queue, self.identity(message)) for message in lying)

    def identity(self, message: Message) -> str:
        """The id of a message at both sites: the producer's id, or birth site and number."""
        born = f"{message.headers.get(ORIGIN, self.site)}:{message.longs.get('_AMQ_ORIG_MESSAGE_ID', message.number)}"
        return message.headers.get(ID_HEADER, born)

    def notify(self, queue: str, ident: str) -> None:
        """Tell the peer that this site has processed it."""
        notification = Message(
            self.next_number(), NOTIFICATIONS, ident.encode(), text=True, headers={QUEUE_HEADER: queue}
        )
        self.route(replace(notification, timestamp_ms=self.now_ms(), anycast=False))

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Route through diverts. An exclusive divert keeps the message from all queues; a message put directly into a
        queue passes no divert."""
        diverts = [divert for divert in self.diverts.values() if only is None and divert.takes(message)]
        exclusive = [divert for divert in diverts if divert.exclusive]
        items = [] if exclusive else super().route(message, only=only)
        for divert in exclusive or diverts:
            self.route(divert.copy(message, self.next_number()))
        counts = self.took if items or diverts else self.dropped
        counts[message.address] += 1
        return items

    def routed(self, message: Message, queues: Sequence[Queue], *, aside: bool) -> None:
        del message, queues, aside
        self.changed.notify_all()

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """An address without its queue takes it and drops it; the bridge is none the wiser."""
        if not self.arrived_before(address, node, shipped.number):
            if address not in self.addresses:
                self.add_address(address, "multicast")
            self.route(replace(shipped, number=self.next_number(), address=address, failed=0))

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Do nothing: the peer's copy stays, and the peer hears only ids."""
