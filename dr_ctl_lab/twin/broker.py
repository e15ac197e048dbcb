"""A simulated broker: queues, listeners, and the effects of a death. No wire, no thread.

Subclasses add the link to the peer. Every method is called with `lock` held; one lock serves all brokers of a twin.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dr_ctl.core.system import Condition
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.messages import Message, Queue, Reason, numbers
from dr_ctl_lab.twin.parts import Acceptor, BrokerError, Ports, Session
from dr_ctl_lab.twin.security import Security

if TYPE_CHECKING:
    from dr_ctl_lab.twin.nodes import Nodes

DEAD_LETTERS, EXPIRED = "DLQ", "ExpiryQueue"
MAX_DELIVERIES: Final = 10
NUMBERS_SKIPPED: Final = 2**31  # a death leaves so many numbers unused
ANYCAST: Final = "ANYCAST"


class Refusal(Enum):
    """Reasons for which a broker refuses an operation on a queue."""

    TAKEN = auto()
    MISSING = auto()
    IN_USE = auto()
    NO_TARGET = auto()


@dataclass(kw_only=True, eq=False)
class Broker(ABC):
    """`name` is the broker's own name; `changed` is the lock, and notifies the links."""

    version: ClassVar[str]
    clients_listener: ClassVar[str] = "clients"
    peers_listener: ClassVar[str] = "mirror"  # the listener of its peer's link
    bare_message_ids: ClassVar[bool] = False  # STOMP message ids lack the consumer's number

    site: str
    pair: str
    name: str
    changed: Condition
    acceptors: dict[str, Acceptor]
    ports: Ports
    clock: Clock = field(default_factory=Clock)
    console_port: int = 0
    users: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None  # the twin's directory, for files that outlive the broker
    node: str = field(default_factory=lambda: str(uuid.uuid1()))
    alive: bool = False
    frozen: bool = False
    skew_ms: int = 0
    start_ms: int = 0  # when the broker became active
    process_ms: int = 0  # when its process started; it may have been passive at first
    node_acceptors: tuple[Mapping[str, Acceptor], ...] = ()  # of each node
    queues: dict[str, Queue] = field(default_factory=dict)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._first = 1
        self.security = Security(self.roles)
        self.next_number: Callable[[], int] = numbers(self._first)

    @property
    def lock(self) -> Condition:
        return self.changed

    # defined by the family

    @abstractmethod
    def refusal(self, reason: Refusal, name: str) -> BrokerError:
        """The error for a refused operation on the queue `name`."""

    @abstractmethod
    def moved_headers(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Text and number properties of a moved message that name its old queue."""

    # the link to the peer

    @property
    def accepts_peer(self) -> bool:
        """Say whether the listener of the peer's link is open."""
        return self.alive and self.acceptors[self.peers_listener].started

    @property
    @abstractmethod
    def attached(self) -> bool:
        """Say whether its link ships now."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Say whether its outflow is empty and all arrivals are applied."""

    @property
    @abstractmethod
    def settable(self) -> Mapping[str, Any]:
        """State that only this kind of broker has, and a tool can change."""

    @property
    def serves(self) -> bool:
        """Say whether clients can connect and are served."""
        return self.acceptors[self.clients_listener].started

    def serves_queue(self, name: str) -> bool:
        """Say whether clients of a queue are served."""
        del name
        return self.serves

    def refuses_send(self, address: str) -> str | None:
        """The broker's error text for a send that it refuses now, rights aside."""
        del address
        return None

    def let_clients_in(self) -> None:
        """Let clients in, as a person at the console would."""
        self.open_listener(self.acceptors[self.clients_listener])

    def keep_clients_out(self) -> None:
        self.close_listener(self.acceptors[self.clients_listener])

    @abstractmethod
    def install(self, names: Sequence[str]) -> None:
        """Create the queues of the configuration file, before the first start."""

    def waiting(self, queue: str) -> int:
        """Count the messages of a queue that clients have not got."""
        known = self.queues.get(queue)
        return len(known.messages) if known is not None else 0

    @abstractmethod
    def on_start(self) -> None:
        """Finish a start."""

    @abstractmethod
    def on_death(self) -> None:
        """Reset state after a death; the queues hold only durable messages."""

    # Hooks for kinds that notify their peer.

    def on_queue_created(self, queue: Queue) -> None:
        """Called when a queue is created by a client or management of this site."""

    def on_address_created(self, name: str) -> None:
        """Called when an address is created at this site."""

    def on_queue_destroyed(self, queue: Queue) -> None:
        """Called when a queue is destroyed at this site."""

    def on_routed(self, message: Message, queues: Sequence[Queue], *, direct: bool) -> None:
        """Called when a message was put into `queues`; `direct`: without routing by its address."""

    @abstractmethod
    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Called when a message was removed from a queue."""

    def on_consumer_lost(self, queue: Queue, held: Sequence[Message]) -> None:
        """Called when a connection ends with these messages unacknowledged."""

    def on_thaw(self) -> None:
        """Called at the end of a freeze, before any request is answered."""
        return

    def release(self) -> None:
        """Release everything at the end of the twin."""
        return

    # start and end

    def now_ms(self) -> int:
        return self.clock.date_ms() + self.skew_ms

    def start(self) -> None:
        """Boot: open listeners and start the link as configured."""
        if self.alive:
            return
        self.alive, self.frozen = True, False
        self.start_ms = self.process_ms = max(self.now_ms(), self.start_ms + 1)
        self.security.reload()
        self.ports.open("console")
        for acceptor in self.acceptors.values():
            acceptor.started = acceptor.opens_at_boot
            if acceptor.started:
                self.ports.open(acceptor.name)
        self.on_start()
        self.changed.notify_all()

    def kill(self) -> None:
        """End the process at once. Durable messages stay."""
        if not self.alive:
            return
        self.alive = self.frozen = False
        for session in list(self.sessions.values()):
            session.cut()
        self.sessions.clear()
        for name in ("console", *self.acceptors):
            self.ports.close(name)
        for acceptor in self.acceptors.values():
            acceptor.started = False
        self.queues = {name: queue for name, queue in self.queues.items() if queue.durable}
        for queue in self.queues.values():
            queue.restart()
        self._first += NUMBERS_SKIPPED
        self.next_number = numbers(self._first)
        self.on_death()
        self.changed.notify_all()

    def on_nodes_changed(self, nodes: Nodes) -> None:
        """Called when nodes start, end or change their roles."""
        del nodes

    def copy_journal(self, source: Broker) -> None:
        """Copy the journal of `source`, before the first start."""
        self._first = source._first + NUMBERS_SKIPPED
        self.next_number = numbers(self._first)
        self.security.stored = dict(source.security.stored)
        for name, routings in source.addresses.items():
            self.addresses.setdefault(name, set()).update(routings)
        for queue in [queue for queue in source.queues.values() if queue.durable]:
            options: dict[str, Any] = {
                "name": queue.name,
                "address": queue.address,
                "routing-type": queue.routing,
                "user": queue.user,
            }
            options |= {"filter": queue.filter, "internal": queue.internal}
            copy = self.queues.get(queue.name) or self.create_queue({**queue.options, **options}, here_only=True)
            copy.paused = copy.lasting = queue.lasting
            for message in queue.messages.values():
                if message.durable:
                    copy.add(replace(message, failed=0))

    # listeners

    def open_listener(self, acceptor: Acceptor) -> None:
        if not acceptor.started:
            acceptor.started = True
            self.ports.open(acceptor.name)
            self.changed.notify_all()

    def close_listener(self, acceptor: Acceptor) -> None:
        """Close a listener and disconnect its clients; their unacknowledged messages return to the queues."""
        if not acceptor.started:
            return
        acceptor.started = False
        self.ports.close(acceptor.name)
        for session in [session for session in self.sessions.values() if session.acceptor == acceptor.name]:
            self.disconnect(session)
        self.changed.notify_all()

    def disconnect(self, session: Session) -> None:
        self.sessions.pop(session.ident, None)
        session.leave()
        session.cut()

    # queues

    def create_queue(self, options: Mapping[str, Any], *, auto_created: bool = False, here_only: bool = False) -> Queue:
        """Create a queue and its address; raises `BrokerError` where the name is taken."""
        name = str(options["name"])
        if name in self.queues:
            raise self.refusal(Refusal.TAKEN, name)
        address = str(options.get("address") or name)
        routing = str(options.get("routing-type") or "MULTICAST").lower()
        self.add_address(address, routing, here_only=here_only)
        queue = Queue(
            name=name,
            address=address,
            number=self.next_number(),
            options=dict(options),
            routing=routing,
            durable=bool(options.get("durable", True)),
            internal=bool(options.get("internal", False)),
            user=options.get("user"),
            filter=options.get("filter"),
            auto_created=auto_created,
        )
        self.queues[name] = queue
        if not here_only:
            self.on_queue_created(queue)
        return queue

    def add_address(self, name: str, routing: str, *, here_only: bool = False) -> None:
        if name not in self.addresses:
            self.addresses[name] = set()
            if not here_only:
                self.on_address_created(name)
        self.addresses[name].add(routing.upper())

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            raise self.refusal(Refusal.MISSING, name)
        return self.queues[name]

    def destroy_queue(self, name: str, *, with_consumers: bool = False, here_only: bool = False) -> None:
        """Remove a queue with its messages; the address stays."""
        queue = self.queue(name)
        if queue.consumers and not with_consumers:
            raise self.refusal(Refusal.IN_USE, name)
        queue.consumers.clear()
        del self.queues[name]
        if not here_only:
            self.on_queue_destroyed(queue)

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Put a message into the queues of its address: all multicast ones and one anycast."""
        result = [queue for queue in self.queues.values() if queue.address == message.address]
        if only is not None:
            result = [queue for queue in result if queue.name in only]
        if message.anycast:
            result = [queue for queue in result if queue.routing == "anycast"][:1]
        for queue in result:
            queue.add(message)
        self.on_routed(message, result, direct=only is not None)
        for queue in result:
            queue.dispatch()
        return result

    def remove(self, queue: Queue, message: Message, reason: Reason = Reason.NORMAL) -> None:
        """Remove a message and notify the kind."""
        queue.remove(message, reason)
        self.on_removed(queue, message, reason)

    def give_back(self, queue: Queue, message: Message, *, failed: bool) -> None:
        """Return a message to its queue; after too many failed deliveries, move it to the dead letters."""
        if failed:
            message.failed += 1
        if message.failed >= MAX_DELIVERIES and DEAD_LETTERS in self.addresses:
            self._dead_letter(queue, message)
        else:
            queue.give_back(message)

    def _dead_letter(self, queue: Queue, message: Message) -> None:
        self.remove(queue, message, Reason.KILLED)
        self._put_copy(queue, message, DEAD_LETTERS, self.now_ms())

    def move(self, queue: Queue, number: int, to: str) -> bool:
        """Move one message to another queue; False where it is missing or in delivery."""
        if to not in self.queues:
            raise self.refusal(Refusal.NO_TARGET, to)
        message = queue.messages.get(number)
        if message is None or number in queue.delivering:
            return False
        self.remove(queue, message)
        self._put_copy(queue, message, self.queues[to].address, message.timestamp_ms)
        return True

    def _put_copy(self, queue: Queue, message: Message, address: str, timestamp_ms: int) -> None:
        """Route a copy as a new message of this broker."""
        texts, longs = self.moved_headers(queue, message)
        self.route(
            Message(
                number=self.next_number(),
                address=address,
                body=message.body,
                text=message.text,
                headers={**message.headers, **texts},
                durable=message.durable,
                priority=message.priority,
                timestamp_ms=timestamp_ms,
                longs=dict(longs),
            )
        )
