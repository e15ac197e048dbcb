"""A simulated broker whose queues are copied to the peer's by diverts and bridges, a buffer between the two.

Nothing deletes the peer's copies: consumers tell the other site the ids of what they have processed. There is no
activation either. A queue is closed at a site where its clients' role is kept out of its address and it is paused.
"""

from __future__ import annotations

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
from dr_ctl_lab.twin.security import WORDS, Security


@dataclass(kw_only=True)
class BridgesBroker(BridgedBroker, ArtemisBroker):
    """One broker of a pair. `loses_refused`: what a bridge has in hand when it is refused is acknowledged and never
    arrives, as often happens to real ones; otherwise it stays in its buffer, as also happens."""

    version: ClassVar[str] = VERSION
    peers_door: ClassVar[str] = "bridge"

    peer: str
    loses_refused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.security = Security(self.roles, GRANTS)
        # What is to be there after a start, and what of it is there now.
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

    # what joins it to its peer

    @property
    def shipping(self) -> Iterator[Bridge]:
        yield from [*self.bridges.values()]

    @property
    def attached(self) -> bool:
        return bool(self.bridges) and super().attached

    @property
    def units(self) -> list[str]:
        """The queues that are copied to the peer."""
        return [each.address for each in self.diverts.values() if not each.exclusive and each.address in self.queues]

    @property
    def even(self) -> bool:
        mine = (NOTIFICATIONS, *(name for name in self.queues if name.startswith(f"mirror.{self.peer}.")))
        return not any(self.queues[name].messages for name in mine if name in self.queues)

    @property
    def settable(self) -> Mapping[str, Any]:
        return {
            "diverts": {name: dict(each.told) for name, each in self.diverts.items()},
            "bridges": {name: each.started for name, each in self.bridges.items()},
            "processor": self.processor.running,
        }

    # its life

    def installed(self, names: Sequence[str]) -> None:
        """Every queue is closed: one site's are opened when both are there."""
        super().installed(names)
        self.create_queue({"name": NOTIFICATIONS, "routing-type": ANYCAST})
        for address in (*names, NOTIFICATIONS):
            self.create_queue(layout.buffer(self.peer, address))
            told = layout.divert(self.site, address)
            self.told_diverts[told["name"]] = told
            told = layout.bridge(self.site, self.peer, address, (BRIDGE, self.users.get(BRIDGE, "")))
            self.told_bridges[told["name"]] = told
        self._in_file = frozenset((*self.told_diverts, *self.told_bridges))
        for name in names:
            self.close_unit(name)

    def booted(self) -> None:
        """What a start makes of its file and its journal; a person has opened the clients' door after the first one."""
        for told in self.told_diverts.values():
            self.diverts[told["name"]] = Divert(told)
        for told in self.told_bridges.values():
            self._deploy(told)
        if self._first_start:
            self._first_start = False
            self.open_door(self.acceptors["clients"])

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

    def create_divert(self, told: Told) -> None:
        divert = Divert(told)
        self.diverts[divert.name], self.told_diverts[divert.name] = divert, told

    def destroy_divert(self, name: str) -> None:
        """One that the file has is back after a start."""
        self.diverts.pop(name, None)
        if name not in self._in_file:
            self.told_diverts.pop(name, None)

    def create_bridge(self, told: Told) -> None:
        """Make it and keep it for every start to come, whether it can work or not."""
        self.told_bridges.setdefault(str(told["name"]), told)
        self._deploy(told)

    def destroy_bridge(self, name: str) -> None:
        """Of one that does not run nothing happens: what is kept of it is back after a start."""
        bridge = self.bridges.pop(name, None)
        if bridge is not None:
            bridge.stop()
            if name not in self._in_file:
                self.told_bridges.pop(name, None)

    def _deploy(self, told: Told) -> None:
        """One whose name is taken, or that lacks its queue or its connector, is passed over without a word."""
        queue = self.queues.get(str(told.get("queue-name")))
        connectors = set(told.get("static-connectors") or ())
        if told["name"] not in self.bridges and queue is not None and connectors == {self.peer}:
            bridge = CoreBridge(told, queue, self.clock)
            bridge.started = True
            self.bridges[bridge.name] = bridge
            self.changed.notify_all()

    def stop_bridges(self) -> None:
        """The peer has refused one of them: all are gone until they are made again, or the broker is started."""
        for bridge in self.bridges.values():
            bridge.stop()
        self.bridges.clear()

    def destroy_queue(self, name: str, *, with_takers: bool = False, here_only: bool = False) -> None:
        if with_takers:
            for bridge in [each for each in self.bridges.values() if each.queue.name == name]:
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
        grants = self.security.grants(queue.address)
        words = (",".join(role for role, may in grants.items() if word in may and role != CLIENTS) for word in WORDS)
        self.security.add(queue.address, *words)
        queue.paused = queue.lasting = True
        self.cut_consumers(queue.address)

    def waiting(self, queue: str) -> int:
        """What lies where nobody is served, or was processed at the other site, no client has still to get."""
        if not self.serves_queue(queue):
            return 0
        lying = self.queues[queue].messages.values()
        return sum(not self.ids.knows(queue, self.identity(message)) for message in lying)

    def identity(self, message: Message) -> str:
        """The id of a message, the same at both sites: its producer's, or where it was born and its number there."""
        born = f"{message.headers.get(ORIGIN, self.site)}:{message.longs.get('_AMQ_ORIG_MESSAGE_ID', message.number)}"
        return message.headers.get(ID_HEADER, born)

    def notify(self, queue: str, ident: str) -> None:
        """Tell the peer that this site has processed it."""
        told = Message(self.next_number(), NOTIFICATIONS, ident.encode(), text=True, headers={QUEUE_HEADER: queue})
        self.route(replace(told, timestamp_ms=self.now_ms(), anycast=False))

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """What an exclusive divert takes goes nowhere else; what is put into a queue past its address passes all by."""
        diverts = [each for each in self.diverts.values() if only is None and each.takes(message)]
        exclusive = [each for each in diverts if each.exclusive]
        found = [] if exclusive else super().route(message, only=only)
        for divert in exclusive or diverts:
            self.route(divert.copy(message, self.next_number()))
        counts = self.took if found or diverts else self.dropped
        counts[message.address] += 1
        return found

    def routed(self, message: Message, found: Sequence[Queue], *, aside: bool) -> None:
        del message, found, aside
        self.changed.notify_all()

    def accept(self, address: str, shipped: Message, node: str) -> None:
        """An address without its queue takes it and drops it; the bridge is none the wiser."""
        if not self.arrived_before(address, node, shipped.number):
            if address not in self.addresses:
                self.add_address(address, "multicast")
            self.route(replace(shipped, number=self.next_number(), address=address, failed=0))

    # what concerns only those that mirror everything

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """The peer's copy stays: ids are what it is told."""

    def cut_off(self, queue: Queue, held: Sequence[Message]) -> None:
        """They come again here, and nowhere else."""

    def told_of_queue(self, queue: Queue) -> None:
        """Queues of the peer are made there."""

    def told_of_address(self, name: str) -> None:
        """As above."""

    def told_of_end(self, queue: Queue) -> None:
        """As above."""
