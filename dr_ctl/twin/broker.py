"""One simulated broker: its queues, doors and link, what a death takes and what it leaves. No wire, no thread.

Every method is called with `lock` held; one lock serves all brokers of a twin.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dr_ctl.twin.messages import (
    Event,
    Message,
    Origin,
    Outflow,
    Queue,
    Reason,
    numbers,
)
from dr_ctl.twin.parts import Acceptor, BrokerSaysNo, Link, Pending, Ports, Session
from dr_ctl.twin.security import Security

VERSION: Final = "2.56.0"
OUTFLOW_PREFIX: Final = "$ACTIVEMQ_ARTEMIS_MIRROR_"
UNFILTERED: Final = ("dr-ctl.", "activemq.management", "$")
DEAD_LETTERS, EXPIRED = "DLQ", "ExpiryQueue"
MOST_DELIVERIES: Final = 10
MOST_REMEMBERED: Final = 1000  # origins, so that what is shipped again after a broken link is not added again
RETRIES, RETRY_S = 5, 0.1
NUMBERS_LOST: Final = 2**31  # a death leaves so many numbers unused
ANYCAST: Final = "ANYCAST"


@dataclass
class Broker:
    """`name` is the broker's own; `changed` wakes the links."""

    site: str
    pair: str
    name: str
    lock: threading.RLock
    changed: threading.Condition
    acceptors: dict[str, Acceptor]
    link: Link
    ports: Ports
    console_port: int = 0
    users: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    node: str = field(default_factory=lambda: str(uuid.uuid1()))
    alive: bool = False
    frozen: bool = False
    skew_ms: int = 0
    start_ms: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)
    addresses: dict[str, set[str]] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    peer_connected: bool = False
    pending: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._first = 1
        self.security = Security(self.roles)
        self.next_number: Callable[[], int] = numbers(self._first)
        self._shipped_here: OrderedDict[Origin, None] = OrderedDict()
        self.outflow = Outflow(f"{OUTFLOW_PREFIX}{self.link.name}", self.next_number())

    # its life

    def now_ms(self) -> int:
        return int(time.time() * 1000) + self.skew_ms

    def start(self) -> None:
        """Boot: doors as their settings say, the link as its auto-start says, counters from what is there."""
        if self.alive:
            return
        self.alive, self.frozen = True, False
        self.start_ms = max(self.now_ms(), self.start_ms + 1)
        self.security.reload()
        self.ports.open("console")
        for acceptor in self.acceptors.values():
            acceptor.started = acceptor.opens_at_boot
            if acceptor.started:
                self.ports.open(acceptor.name)
        self.link.started = self.link.captures = self.link.auto_start
        if self.link.captures:
            self._announce()
        self.changed.notify_all()

    def kill(self) -> None:
        """The process is gone, at once; ports refuse. What was durable stays."""
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
        self._take_down_link()
        self.peer_connected = False
        self.queues = {name: queue for name, queue in self.queues.items() if queue.durable}
        for queue in self.queues.values():
            queue.restart()
        self.outflow.restart()
        self._first += NUMBERS_LOST
        self.next_number = numbers(self._first)
        self.changed.notify_all()

    def _announce(self) -> None:
        """A link that is installed tells the peer every address and queue again."""
        for address in self.addresses:
            self._capture(Event("addAddress", self.next_number(), address=address))
        for queue in self.queues.values():
            self._announce_queue(queue)

    def _announce_queue(self, queue: Queue) -> None:
        if not (queue.internal or queue.temporary):
            told = {"auto-created": queue.auto_created, "routing-type": queue.routing.upper(), "durable": queue.durable}
            event = Event("createQueue", self.next_number(), queue.name, queue.address, options=told)
            self._capture(event)

    def _capture(self, event: Event) -> None:
        if self.link.captures and not event.address.startswith(UNFILTERED):
            self.outflow.add(event)
            self.changed.notify_all()

    # doors and link

    def open_door(self, acceptor: Acceptor) -> None:
        if not acceptor.started:
            acceptor.started = True
            self.ports.open(acceptor.name)
            self.changed.notify_all()

    def close_door(self, acceptor: Acceptor) -> None:
        """Close it and cut whoever came through it; what was in delivery is in its queue when this returns."""
        if not acceptor.started:
            return
        acceptor.started = False
        self.ports.close(acceptor.name)
        for session in [each for each in self.sessions.values() if each.acceptor == acceptor.name]:
            self.hang_up(session)
        self.changed.notify_all()

    def hang_up(self, session: Session) -> None:
        self.sessions.pop(session.ident, None)
        session.leave()
        session.cut()

    def start_link(self) -> None:
        if not self.link.captures:
            self.link.captures = True
            self._announce()
        self.link.started = True
        self.changed.notify_all()

    def stop_link(self) -> None:
        self._take_down_link()
        self.outflow.under_way = 0
        self.changed.notify_all()

    def _take_down_link(self) -> None:
        self.link.started = self.link.connected = self.link.attached = False
        self.link.breaks += 1

    # queues

    def create_queue(self, options: Mapping[str, Any], *, auto_created: bool = False, here_only: bool = False) -> Queue:
        """Create a queue and its address; raises `BrokerSaysNo` where the name is taken."""
        name = str(options["name"])
        if name in self.queues:
            text = f"AMQ229019: Queue {name} already exists on address {self.queues[name].address}"
            raise BrokerSaysNo("java.lang.IllegalStateException", text)
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
            self._announce_queue(queue)
        return queue

    def add_address(self, name: str, routing: str, *, here_only: bool = False) -> None:
        if name not in self.addresses:
            self.addresses[name] = set()
            if not here_only:
                self._capture(Event("addAddress", self.next_number(), address=name))
        self.addresses[name].add(routing.upper())

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            kind = "org.apache.activemq.artemis.api.core.ActiveMQNonExistentQueueException"
            raise BrokerSaysNo(kind, f"AMQ229017: Queue {name} does not exist")
        return self.queues[name]

    def destroy_queue(self, name: str, *, with_takers: bool = False, here_only: bool = False) -> None:
        """Remove a queue with what lies in it; its address stays."""
        queue = self.queue(name)
        if queue.takers and not with_takers:
            kind = "org.apache.activemq.artemis.api.core.ActiveMQIllegalStateException"
            text = f"AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers = "
            text += "org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
            raise BrokerSaysNo(kind, text)
        queue.takers.clear()
        del self.queues[name]
        if not (here_only or queue.internal or queue.temporary):
            self._capture(Event("deleteQueue", self.next_number(), name, queue.address))

    # messages

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Put a message into the queues of its address: all multicast ones and one anycast; tell the peer."""
        found = [queue for queue in self.queues.values() if queue.address == message.address]
        if only is not None:
            found = [queue for queue in found if queue.name in only]
        if message.anycast:
            found = [queue for queue in found if queue.routing == "anycast"][:1]
        for queue in found:
            queue.add(message)
        told = tuple(queue.name for queue in found if not (queue.internal or queue.temporary))
        # What the peer shipped is not shipped back.
        if told and message.origin is None:
            self._capture(
                Event(
                    "message",
                    message.number,
                    address=message.address,
                    message=message,
                    queues=told,
                    origin=(self.node, message.number),
                    durable=message.durable,
                )
            )
        for queue in found:
            queue.dispatch()
        return found

    def remove(self, queue: Queue, message: Message, reason: Reason = Reason.NORMAL) -> None:
        """A message is done with here; the peer is told by its origin."""
        queue.remove(message, reason)
        if queue.internal or queue.temporary:
            return
        origin = message.origin or (self.node, message.number)
        number = self.next_number()
        self._capture(
            Event("postAck", number, queue.name, queue.address, origin=origin, reason=reason, durable=message.durable)
        )

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
            raise BrokerSaysNo("java.lang.IllegalArgumentException", f"AMQ229049: No queue found for {to}", 400)
        message = queue.messages.get(number)
        if message is None or number in queue.delivering:
            return False
        self.remove(queue, message)
        self._put_copy(queue, message, self.queues[to].address, message.timestamp_ms)
        return True

    def _put_copy(self, queue: Queue, message: Message, address: str, timestamp_ms: int) -> None:
        """The same content as a new message, born here."""
        self.route(
            Message(
                number=self.next_number(),
                address=address,
                body=message.body,
                text=message.text,
                headers={**message.headers, "_AMQ_ORIG_QUEUE": queue.name, "_AMQ_ORIG_ADDRESS": queue.address},
                durable=message.durable,
                priority=message.priority,
                timestamp_ms=timestamp_ms,
                longs={"_AMQ_ORIG_MESSAGE_ID": message.number},
            )
        )

    # what the peer ships

    def apply(self, event: Event) -> None:
        """Take one event of the peer's outflow."""
        match event.kind:
            case "message":
                self._arrived(event)
            case "postAck":
                if not self._acknowledge(event):
                    self.pending.append(Pending(event, 0, time.monotonic() + RETRY_S))
                    self.changed.notify_all()
            case "addAddress":
                self.add_address(event.address, ANYCAST, here_only=True)
            case "createQueue" if event.queue not in self.queues:
                told = {**event.options, "name": event.queue, "address": event.address}
                self.create_queue(told, auto_created=bool(told["auto-created"]), here_only=True)
            case "deleteQueue" if event.queue in self.queues and not self.queues[event.queue].takers:
                self.destroy_queue(event.queue, here_only=True)

    def _arrived(self, event: Event) -> None:
        shipped = event.message
        if shipped is None or event.origin in self._shipped_here:
            return
        origin = event.origin or ("", 0)
        self._shipped_here[origin] = None
        if len(self._shipped_here) > MOST_REMEMBERED:
            self._shipped_here.popitem(last=False)
        message = Message(
            number=self.next_number(),
            address=shipped.address,
            body=shipped.body,
            text=shipped.text,
            headers=shipped.headers,
            durable=shipped.durable,
            priority=shipped.priority,
            timestamp_ms=shipped.timestamp_ms,
            origin=origin,
            longs=shipped.longs,
            anycast=shipped.anycast,
        )
        self.route(message, only=event.queues)

    def _acknowledge(self, event: Event) -> bool:
        """Apply an acknowledgement; False while its message is not there, or is in a consumer's hands."""
        queue = self.queues.get(event.queue)
        if queue is None or event.origin is None:
            return True
        node, number = event.origin
        message = queue.messages.get(number) if node == self.node else queue.by_origin.get(event.origin)
        # In a consumer's hands it cannot be taken away.
        if message is None or message.number in queue.delivering:
            return False
        queue.remove(message, event.reason)
        return True

    def retry_pending(self) -> float | None:
        """Try what was not found again; seconds until the next try, None where nothing waits."""
        now = time.monotonic()
        for each in [one for one in self.pending if one.next_s <= now]:
            each.tries += 1
            each.next_s = now + RETRY_S
            if self._acknowledge(each.event) or each.tries > RETRIES:
                self.pending.remove(each)
        return max(0.0, min(each.next_s for each in self.pending) - now) if self.pending else None
