"""A simulated ActiveMQ Classic broker: queues made at their first use, composite queues, advisories of consumed
messages. A message keeps its id in every queue and at every broker."""

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.broker import ANYCAST, Broker, Refusal
from dr_ctl_lab.twin.classic.composite import Composite, original_destination, selector_value
from dr_ctl_lab.twin.classic.policy import OPEN, Policy
from dr_ctl_lab.twin.classic.subscription import Browser
from dr_ctl_lab.twin.classic.topics import CONSUMED, Topics
from dr_ctl_lab.twin.messages import Counters, Message, Origin, Queue, Reason, numbers
from dr_ctl_lab.twin.parts import BrokerError

EXPIRY_INTERVAL_S: Final = 30.0  # between checks for expired messages
DLQ: Final = "ActiveMQ.DLQ"
EXPIRES: Final = "JMSExpiration"
_WORDS: Final = {
    Refusal.TAKEN: "Queue {} already exists",
    Refusal.MISSING: "Queue {} does not exist",
    Refusal.IN_USE: "Destination still has an active subscription: queue://{}",
    Refusal.NO_TARGET: "The destination {} does not exist",
}


@dataclass(kw_only=True, eq=False)
class ClassicBroker(Broker):
    """`browse_page`: a browse shows so many messages at most; a real broker's default is 400. `policy` is that of the
    console. `usage`: percent of each limit of systemUsage. `stopped`: ids of clients that gave up their login; the
    beans of their connections stay."""

    version: ClassVar[str] = "5.18.3"
    clients_listener: ClassVar[str] = "stomp"
    peers_listener: ClassVar[str] = "openwire"

    browse_page: int = 100_000
    policy: Policy = OPEN
    composites: dict[str, Composite] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=lambda: {"Store": 0, "Memory": 0, "Temp": 0})
    stopped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.units: tuple[str, ...] = ()
        self.topics = Topics()
        self.browsers: list[Browser] = []
        self.dispatched: Counter[str] = Counter()
        self.in_transactions: set[tuple[str, int]] = set()  # acknowledged and not committed, by queue and number
        self.forwarded: Counter[str] = Counter()
        self._connections, self._sequence = numbers(1), numbers(1)
        self._expiring: list[tuple[int, int, str]] = []
        self._next_expiry_s = 0.0

    # ids of broker and messages

    @property
    def ident(self) -> str:
        """The broker's id, new after each start."""
        return f"ID:{self.name}-{self.console_port}-{self.start_ms}-0:1"

    def new_connection(self) -> str:
        return f"{self.ident[:-4]}-7:{self._connections()}"

    def refusal(self, reason: Refusal, name: str) -> BrokerError:
        kind = "javax.jms.JMSException" if reason is Refusal.IN_USE else ILLEGAL
        return BrokerError(kind, _WORDS[reason].format(name))

    def moved_headers(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        return original_destination(message, queue.name), {}

    # start and end

    def install(self, names: Sequence[str]) -> None:
        """Note the queues of the configuration file: a start creates them."""
        self.units = tuple(names)

    def stop(self) -> None:
        """End the process; the request for it gets no answer."""
        self.ports.exit()

    def on_start(self) -> None:
        self._connections, self._sequence = numbers(1), numbers(1)
        self._producer = f"{self.new_connection()}:-1:1"
        self._expiring.clear()
        for name in self.units:
            self.queue_named(name)
        for queue in self.queues.values():
            for message in queue.messages.values():
                self._note_expiry(queue, message)

    def on_death(self) -> None:
        """Reset all counters to zero."""
        for queue in self.queues.values():
            queue.counters = Counters()
        self.dispatched.clear()
        self.forwarded.clear()
        self.topics.subscribed.clear()
        self.browsers.clear()
        self.stopped.clear()
        self.in_transactions.clear()

    def work(self, now_s: float) -> list[float]:
        """Move expired messages to the dead letters, every now and then."""
        now_ms = self.now_ms()
        if now_s < self._next_expiry_s:
            return [self._next_expiry_s]
        self._next_expiry_s = now_s + EXPIRY_INTERVAL_S
        while self._expiring and self._expiring[0][0] <= now_ms:
            _, number, name = heapq.heappop(self._expiring)
            queue = self.queues.get(name)
            message = queue.messages.get(number) if queue is not None else None
            if queue is not None and message is not None and number not in queue.delivering:
                self._move_to_dead_letters(queue, message, Reason.EXPIRED)
        return [self._next_expiry_s]

    # messages

    def queue_named(self, name: str) -> Queue:
        """Return the queue of that name; create it where it is missing."""
        known = self.queues.get(name)
        return known or self.create_queue({"name": name, "routing-type": ANYCAST}, auto_created=True)

    def page(self, queue: Queue) -> list[Message]:
        """The first page of a listing, without messages that an open transaction has acknowledged."""
        shown = (
            message for message in queue.messages.values() if (queue.name, message.number) not in self.in_transactions
        )
        return list(itertools.islice(shown, self.browse_page))

    def held(self, queue: Queue) -> int:
        """Count the messages in delivery, and those that browsers hold."""
        return len(queue.delivering) + sum(row.held for row in self.browsers if row.queue == queue.name)

    def consumers(self, queue: Queue) -> int:
        return len(queue.consumers) + sum(row.queue == queue.name for row in self.browsers)

    def new_origin(self, producer: str | None = None, sequence: int | None = None) -> Origin:
        return producer or self._producer, sequence or self._sequence()

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Store a message in its queue, and copies in the targets of its composite queue."""
        del only
        if message.origin is None:
            message.origin = self.new_origin()
        composite = self.composites.get(message.address, Composite(message.address, forward_only=False))
        copies = [
            replace(
                message,
                number=self.next_number(),
                address=target,
                headers={**message.headers, **original_destination(None, composite.name)},
            )
            for target in composite.targets_of(message)
        ]
        queues = list(itertools.chain.from_iterable(self.route(copy) for copy in copies))
        return queues if composite.forward_only else [self._store(message), *queues]

    def _store(self, message: Message) -> Queue:
        queue = self.queue_named(message.address)
        queue.add(message)
        self._note_expiry(queue, message)
        self.changed.notify_all()
        queue.dispatch()
        return queue

    def _note_expiry(self, queue: Queue, message: Message) -> None:
        if expires := message.longs.get(EXPIRES):
            heapq.heappush(self._expiring, (expires, message.number, queue.name))

    def on_removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Publish an advisory: a message removed for any reason counts as consumed."""
        del reason
        self.publish_consumed(queue, message)
        self.changed.notify_all()

    def publish_consumed(self, queue: Queue, message: Message) -> None:
        advisory = {
            "orignalDestination": f"queue://{queue.name}",
            "orignalMessageId": selector_value(message, "JMSMessageID") or "",
            "originBrokerName": self.name,
            "originBrokerId": self.ident,
            "originBrokerURL": f"tcp://localhost:{self.acceptors[self.peers_listener].port}",
            "type": "Advisory",
            "transformation": "jms-advisory-json",
            "message-id": f"{self.ident[:-4]}-1:1:0:0:{self.next_number()}",
            "priority": "0",
            "timestamp": "0",
        }
        self.topics.publish(CONSUMED + queue.name, advisory, b'{"ActiveMQTextMessage":{}}')

    def dead_letter(self, queue: Queue, message: Message) -> None:
        """Move a message that a consumer rejected to the dead letters."""
        self._move_to_dead_letters(queue, message, Reason.KILLED)

    def _move_to_dead_letters(self, queue: Queue, message: Message, reason: Reason) -> None:
        self.remove(queue, message, reason)
        if message.durable:
            self.put_into(queue, message, DLQ, originalExpiration=message.longs.get(EXPIRES, 0))

    def put_into(self, queue: Queue, message: Message, to: str, **longs: int) -> None:
        """Store a copy in another queue, with the same id."""
        kept = {key: value for key, value in message.longs.items() if key != EXPIRES or not longs}
        headers = {**message.headers, **original_destination(message, queue.name)}
        self.route(
            replace(message, number=self.next_number(), address=to, headers=headers, longs={**kept, **longs}, failed=0)
        )

    @property
    def settable(self) -> Mapping[str, Any]:
        return {}
