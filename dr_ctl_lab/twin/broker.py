"""A simulated broker: queues, listeners, and the effects of a death. No wire, no thread.

Subclasses add the way to the peer. Every method is called with `lock` held; one lock serves all brokers of a twin.
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
from dr_ctl_lab.twin.parts import Acceptor, BrokerSaysNo, Ports, Session
from dr_ctl_lab.twin.security import Security

if TYPE_CHECKING:
    from dr_ctl_lab.twin.nodes import Nodes

DEAD_LETTERS, EXPIRED = "DLQ", "ExpiryQueue"
MOST_DELIVERIES: Final = 10
NUMBERS_LOST: Final = 2**31  # a death leaves so many numbers unused
ANYCAST: Final = "ANYCAST"


class No(Enum):
    """Why a broker refuses something about a queue."""

    TAKEN = auto()
    MISSING = auto()
    IN_USE = auto()
    NO_TARGET = auto()


@dataclass(kw_only=True, eq=False)
class Broker(ABC):
    """`name` is the broker's own; `changed` is the lock, and wakes the links."""

    version: ClassVar[str]
    clients_listener: ClassVar[str] = "clients"
    peers_listener: ClassVar[str] = "mirror"  # the listener of its peer's link
    bare_message_ids: ClassVar[bool] = False  # a STOMP client is not told which of its consumers a message came to

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
    home: Path | None = None  # the twin's directory, for what outlives the broker
    node: str = field(default_factory=lambda: str(uuid.uuid1()))
    alive: bool = False
    frozen: bool = False
    skew_ms: int = 0
    start_ms: int = 0  # of this life of the broker
    process_ms: int = 0  # of its process, in which it may have waited before
    places: tuple[Mapping[str, Acceptor], ...] = ()  # the listeners of each of its nodes
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

    # the parts of the family

    @abstractmethod
    def no(self, why: No, name: str) -> BrokerSaysNo:
        """The words in which it refuses something about the queue of that name."""

    @abstractmethod
    def marks(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        """Headers and numbers that a moved message carries about its old queue."""

    # the way to the peer

    @property
    def lets_peer_in(self) -> bool:
        """Say whether its peer finds the listener of the link open."""
        return self.alive and self.acceptors[self.peers_listener].started

    @property
    @abstractmethod
    def attached(self) -> bool:
        """Say whether it ships to its peer now."""

    @property
    @abstractmethod
    def even(self) -> bool:
        """Say whether nothing of it is under way to its peer, and nothing of its peer waits here."""

    @property
    @abstractmethod
    def settable(self) -> Mapping[str, Any]:
        """The settable state at this broker."""

    @property
    def serves(self) -> bool:
        """Say whether clients get in and are served."""
        return self.acceptors[self.clients_listener].started

    def serves_queue(self, name: str) -> bool:
        """Say whether clients of a queue are served."""
        del name
        return self.serves

    def refuses_send(self, address: str) -> str | None:
        """Why a client that may send there may not now, in the broker's words."""
        del address
        return None

    def let_clients_in(self) -> None:
        """Let clients in, as a person at the console would."""
        self.open_listener(self.acceptors[self.clients_listener])

    def keep_clients_out(self) -> None:
        self.close_listener(self.acceptors[self.clients_listener])

    @abstractmethod
    def installed(self, names: Sequence[str]) -> None:
        """Take the queues of the configuration file, before the first start."""

    def waiting(self, queue: str) -> int:
        """How many messages clients of a queue have still to get."""
        found_queues = self.queues.get(queue)
        return len(found_queues.messages) if found_queues is not None else 0

    @abstractmethod
    def booted(self) -> None:
        """Do the work of a start."""

    @abstractmethod
    def fell(self) -> None:
        """Do the work after a death; the queues hold only durable messages."""

    # Hooks of kinds that tell their peer; a broker that does not leaves them as they are.

    def told_of_queue(self, queue: Queue) -> None:
        """A queue was created by somebody here."""

    def told_of_address(self, name: str) -> None:
        """An address was created by somebody here."""

    def told_of_end(self, queue: Queue) -> None:
        """A queue was destroyed by somebody here."""

    def routed(self, message: Message, queues: Sequence[Queue], *, aside: bool) -> None:
        """Note that a message lies in these queues; `aside`: put there past its address."""

    @abstractmethod
    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """A message was done with here."""

    def cut_off(self, queue: Queue, held: Sequence[Message]) -> None:
        """A client's connection ended while it held these."""

    def thawed(self) -> None:
        """Do the work after a freeze, before any answer."""
        return

    def ended(self) -> None:
        """Release everything at the end of the twin."""
        return

    # its life

    def now_ms(self) -> int:
        return self.clock.date_ms() + self.skew_ms

    def start(self) -> None:
        """Boot: listeners as their settings say, the link as its auto-start says, counters from what is there."""
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
        self.booted()
        self.changed.notify_all()

    def kill(self) -> None:
        """End the process at once; ports refuse. Durable messages stay."""
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
        self._first += NUMBERS_LOST
        self.next_number = numbers(self._first)
        self.fell()
        self.changed.notify_all()

    def grouped(self, nodes: Nodes) -> None:
        """Note which nodes there are beside the active one."""
        del nodes

    def inherit(self, other: Broker) -> None:
        """Take a copy of the journal of another one, before the first start."""
        self._first = other._first + NUMBERS_LOST
        self.next_number = numbers(self._first)
        self.security.kept = dict(other.security.kept)
        for name, routings in other.addresses.items():
            self.addresses.setdefault(name, set()).update(routings)
        for queue in [queue for queue in other.queues.values() if queue.durable]:
            options = {"name": queue.name, "address": queue.address, "routing-type": queue.routing, "user": queue.user}
            made = {**queue.options, **options, "filter": queue.filter, "internal": queue.internal}
            copy = self.queues.get(queue.name) or self.create_queue(made, here_only=True)
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
        """Close a listener and cut its clients; messages in delivery are in their queue again on return."""
        if not acceptor.started:
            return
        acceptor.started = False
        self.ports.close(acceptor.name)
        for session in [session for session in self.sessions.values() if session.acceptor == acceptor.name]:
            self.hang_up(session)
        self.changed.notify_all()

    def hang_up(self, session: Session) -> None:
        self.sessions.pop(session.ident, None)
        session.leave()
        session.cut()

    # queues

    def create_queue(self, options: Mapping[str, Any], *, auto_created: bool = False, here_only: bool = False) -> Queue:
        """Create a queue and its address; raises `BrokerSaysNo` where the name is taken."""
        name = str(options["name"])
        if name in self.queues:
            raise self.no(No.TAKEN, name)
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
            self.told_of_queue(queue)
        return queue

    def add_address(self, name: str, routing: str, *, here_only: bool = False) -> None:
        if name not in self.addresses:
            self.addresses[name] = set()
            if not here_only:
                self.told_of_address(name)
        self.addresses[name].add(routing.upper())

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            raise self.no(No.MISSING, name)
        return self.queues[name]

    def destroy_queue(self, name: str, *, with_takers: bool = False, here_only: bool = False) -> None:
        """Remove a queue with its messages; the address stays."""
        queue = self.queue(name)
        if queue.takers and not with_takers:
            raise self.no(No.IN_USE, name)
        queue.takers.clear()
        del self.queues[name]
        if not here_only:
            self.told_of_end(queue)

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
        self.routed(message, result, aside=only is not None)
        for queue in result:
            queue.dispatch()
        return result

    def remove(self, queue: Queue, message: Message, reason: Reason = Reason.NORMAL) -> None:
        """A message is done with here."""
        queue.remove(message, reason)
        self.removed(queue, message, reason)

    def give_back(self, queue: Queue, message: Message, *, failed: bool) -> None:
        """A consumer is gone without finishing it. After too many of those it is a dead letter."""
        if failed:
            message.failed += 1
        if message.failed >= MOST_DELIVERIES and DEAD_LETTERS in self.addresses:
            self._bury(queue, message)
        else:
            queue.give_back(message)

    def _bury(self, queue: Queue, message: Message) -> None:
        self.remove(queue, message, Reason.KILLED)
        self._put_copy(queue, message, DEAD_LETTERS, self.now_ms())

    def move(self, queue: Queue, number: int, to: str) -> bool:
        """Move one message to another queue; False where it is not there, or in somebody's hands."""
        if to not in self.queues:
            raise self.no(No.NO_TARGET, to)
        message = queue.messages.get(number)
        if message is None or number in queue.delivering:
            return False
        self.remove(queue, message)
        self._put_copy(queue, message, self.queues[to].address, message.timestamp_ms)
        return True

    def _put_copy(self, queue: Queue, message: Message, address: str, timestamp_ms: int) -> None:
        """Route a copy of the content as a new message, born here."""
        texts, longs = self.marks(queue, message)
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
