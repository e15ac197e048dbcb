"""A simulated ActiveMQ Classic broker: queues that come into being with their first use, copies that composite queues
make, advisories for what was consumed. A message keeps its id wherever it goes."""

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from dr_ctl_lab.twin.bean import ILLEGAL
from dr_ctl_lab.twin.broker import ANYCAST, Broker, No
from dr_ctl_lab.twin.classic.composite import Composite, named, original
from dr_ctl_lab.twin.classic.policy import OPEN, Policy
from dr_ctl_lab.twin.classic.subscription import Browsing
from dr_ctl_lab.twin.classic.topics import CONSUMED, Topics
from dr_ctl_lab.twin.messages import Counters, Message, Origin, Queue, Reason, numbers
from dr_ctl_lab.twin.parts import BrokerSaysNo

LOOKS_EVERY_S: Final = 30.0  # for what has expired
DLQ: Final = "ActiveMQ.DLQ"
EXPIRES: Final = "JMSExpiration"
_WORDS: Final = {
    No.TAKEN: "Queue {} already exists",
    No.MISSING: "Queue {} does not exist",
    No.IN_USE: "Destination still has an active subscription: queue://{}",
    No.NO_TARGET: "The destination {} does not exist",
}


@dataclass(kw_only=True, eq=False)
class ClassicBroker(Broker):
    """A Classic broker. `browse_page`: the most messages that a browse shows, without a notice; a real broker's default
    is 400. `policy` is that of the console. `usage`: how many percent of each limit of its systemUsage are taken.
    `stopped`: the ids of clients that gave up their login, whose connections' beans stay until the broker ends."""

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
        self.browsing: list[Browsing] = []
        self.dispatched: Counter[str] = Counter()
        self.in_transactions: set[tuple[str, int]] = set()  # acknowledged, and not committed: by queue and number
        self.forwarded: Counter[str] = Counter()
        self._connections, self._sequence = numbers(1), numbers(1)
        self._expiring: list[tuple[int, int, str]] = []
        self._next_look_s = 0.0

    # ids of broker and messages

    @property
    def ident(self) -> str:
        """The broker's id, new after each start."""
        return f"ID:{self.name}-{self.console_port}-{self.start_ms}-0:1"

    def new_connection(self) -> str:
        return f"{self.ident[:-4]}-7:{self._connections()}"

    def no(self, why: No, name: str) -> BrokerSaysNo:
        kind = "javax.jms.JMSException" if why is No.IN_USE else ILLEGAL
        return BrokerSaysNo(kind, _WORDS[why].format(name))

    def marks(self, queue: Queue, message: Message) -> tuple[Mapping[str, str], Mapping[str, int]]:
        return original(message, queue.name), {}

    # its life

    def installed(self, names: Sequence[str]) -> None:
        """The queues that its file has are there from the start, others after their first use."""
        self.units = tuple(names)

    def stop(self) -> None:
        """End in order, before anybody is answered who asked for it."""
        self.ports.exit()

    def booted(self) -> None:
        self._connections, self._sequence = numbers(1), numbers(1)
        self._producer = f"{self.new_connection()}:-1:1"
        self._expiring.clear()
        for name in self.units:
            self.queue_named(name)
        for queue in self.queues.values():
            for message in queue.messages.values():
                self._note_end(queue, message)

    def fell(self) -> None:
        """Counters begin at zero, whatever is left in the queues."""
        for queue in self.queues.values():
            queue.counters = Counters()
        self.dispatched.clear()
        self.forwarded.clear()
        self.topics.subscribed.clear()
        self.browsing.clear()
        self.stopped.clear()
        self.in_transactions.clear()

    def work(self, now_s: float) -> list[float]:
        """Look for what has expired, now and then, and put it among the dead letters."""
        now_ms = self.now_ms()
        if now_s < self._next_look_s:
            return [self._next_look_s]
        self._next_look_s = now_s + LOOKS_EVERY_S
        while self._expiring and self._expiring[0][0] <= now_ms:
            _, number, name = heapq.heappop(self._expiring)
            queue = self.queues.get(name)
            message = queue.messages.get(number) if queue is not None else None
            if queue is not None and message is not None and number not in queue.delivering:
                self._bury_for(queue, message, Reason.EXPIRED)
        return [self._next_look_s]

    # messages

    def queue_named(self, name: str) -> Queue:
        """The queue of that name, made if missing."""
        found_queues = self.queues.get(name)
        return found_queues or self.create_queue({"name": name, "routing-type": ANYCAST}, auto_created=True)

    def page(self, queue: Queue) -> list[Message]:
        """The messages that a listing begins with; one that is acknowledged in an open transaction is in none."""
        shown = (
            message for message in queue.messages.values() if (queue.name, message.number) not in self.in_transactions
        )
        return list(itertools.islice(shown, self.browse_page))

    def held(self, queue: Queue) -> int:
        """How many of its messages are in somebody's hands."""
        return len(queue.delivering) + sum(row.holds for row in self.browsing if row.queue == queue.name)

    def consumers(self, queue: Queue) -> int:
        return len(queue.takers) + sum(row.queue == queue.name for row in self.browsing)

    def new_origin(self, producer: str | None = None, sequence: int | None = None) -> Origin:
        return producer or self._producer, sequence or self._sequence()

    def route(self, message: Message, *, only: tuple[str, ...] | None = None) -> list[Queue]:
        """Put it into its queue, and its copies where a composite queue forwards them."""
        del only
        if message.origin is None:
            message.origin = self.new_origin()
        composite = self.composites.get(message.address, Composite(message.address, forward_only=False))
        copies = [
            replace(
                message,
                number=self.next_number(),
                address=target,
                headers={**message.headers, **original(None, composite.name)},
            )
            for target in composite.targets_of(message)
        ]
        from_iterable = list(itertools.chain.from_iterable(self.route(copy) for copy in copies))
        return from_iterable if composite.forward_only else [self._store(message), *from_iterable]

    def _store(self, message: Message) -> Queue:
        queue = self.queue_named(message.address)
        queue.add(message)
        self._note_end(queue, message)
        self.changed.notify_all()
        queue.dispatch()
        return queue

    def _note_end(self, queue: Queue, message: Message) -> None:
        if expires := message.longs.get(EXPIRES):
            heapq.heappush(self._expiring, (expires, message.number, queue.name))

    def removed(self, queue: Queue, message: Message, reason: Reason) -> None:
        """Whatever the reason, it counts as consumed."""
        del reason
        self.tell_consumed(queue, message)
        self.changed.notify_all()

    def tell_consumed(self, queue: Queue, message: Message) -> None:
        advisory = {
            "orignalDestination": f"queue://{queue.name}",
            "orignalMessageId": named(message, "JMSMessageID") or "",
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

    def bury(self, queue: Queue, message: Message) -> None:
        """A consumer cannot do with it."""
        self._bury_for(queue, message, Reason.KILLED)

    def _bury_for(self, queue: Queue, message: Message, reason: Reason) -> None:
        self.remove(queue, message, reason)
        if message.durable:
            self.put_into(queue, message, DLQ, originalExpiration=message.longs.get(EXPIRES, 0))

    def put_into(self, queue: Queue, message: Message, to: str, **longs: int) -> None:
        """Put a copy into another queue, under the same id."""
        kept = {key: value for key, value in message.longs.items() if key != EXPIRES or not longs}
        headers = {**message.headers, **original(message, queue.name)}
        self.route(
            replace(message, number=self.next_number(), address=to, headers=headers, longs={**kept, **longs}, failed=0)
        )

    @property
    def settable(self) -> Mapping[str, Any]:
        return {}
