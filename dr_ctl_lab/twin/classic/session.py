"""A client's STOMP session at a Classic broker. A client's mistake gets an ERROR frame; only a wrong login and an
unknown command end the session."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dr_ctl_lab.twin.classic import statistics
from dr_ctl_lab.twin.classic.broker import EXPIRES, ClassicBroker
from dr_ctl_lab.twin.classic.composite import PATH, named
from dr_ctl_lab.twin.classic.subscription import Browsing, Hearing, QueueSubscription
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.frames import Frame, frame, plain
from dr_ctl_lab.twin.line import Line
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.parts import Peer

PREFETCH: Final = 1000
QUEUE, TOPIC, TEMPORARY = "/queue/", "/topic/", "/temp-queue/"
_PROTOCOL: Final = "org.apache.activemq.transport.stomp.ProtocolException"
COMMANDS: Final = frozenset({"SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"})
_SELECTOR: Final = "javax.jms.InvalidSelectorException"
# Headers of a client's message that are not properties.
_ITS: Final = frozenset(
    {"destination", "persistent", "priority", "expires", "receipt", "transaction", "content-length", "timestamp"}
)

Subscription = QueueSubscription | Browsing | Hearing


class Wrong(Exception):
    """A frame that cannot be done, in the broker's words."""

    def __init__(self, text: str, kind: str = _PROTOCOL) -> None:
        super().__init__(text)
        self.text, self.kind = text, kind


class ClassicSession(Line):
    """One connection; `transactions` hold what is done when they are committed."""

    broker: ClassicBroker

    def __init__(self, peer: Peer, acceptor: str, broker: ClassicBroker) -> None:
        super().__init__(peer, acceptor, broker)
        self.client = self._connection = broker.new_connection()
        self._ttl_s = math.inf
        self._connected = False
        self._sent = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._transactions: dict[str, list[Callable[[], None]]] = {}
        self._hidden: dict[str, list[tuple[str, int]]] = {}
        self._acks: dict[str, tuple[QueueSubscription, Message]] = {}

    def holds(self) -> list[QueueSubscription]:
        return [
            subscription for subscription in self._subscriptions.values() if isinstance(subscription, QueueSubscription)
        ]

    def leave(self) -> None:
        subscriptions, self._subscriptions = list(self._subscriptions.values()), {}
        self._transactions.clear()
        for name in list(self._hidden):
            self._show(name)
        for subscription in subscriptions:
            subscription.leave()

    def _fell_silent(self) -> None:
        self.broker.hang_up(self)

    # frames

    def _take(self, got: Frame) -> None:
        if got.command in ("CONNECT", "STOMP"):
            self._on_connect(got)
        elif got.command == "DISCONNECT":
            self._receipt(got)
            self.broker.hang_up(self)
        elif got.command not in COMMANDS:
            text = f"Unknown STOMP action: {got.command}"
            self.refuse(text, body=f"{_PROTOCOL}: {text}".encode(), receipt=got.headers.get("receipt"))
        else:
            try:
                self._act(got)
            except Wrong as error:
                body = f"{error.kind}: {error.text}".encode()
                self._complain(error.text, body, got.headers.get("receipt"))

    def _act(self, got: Frame) -> None:
        commands = {
            "SEND": self._on_send,
            "SUBSCRIBE": self._on_subscribe,
            "UNSUBSCRIBE": self._on_unsubscribe,
            "ACK": self._on_ack,
            "NACK": self._on_ack,
            "BEGIN": self._on_begin,
            "COMMIT": self._on_commit,
            "ABORT": self._on_abort,
        }
        if not self._connected:
            raise Wrong("Not connected.")
        commands[got.command](got)

    def _on_connect(self, got: Frame) -> None:
        # The broker unescapes these headers too, which STOMP leaves as they are.
        user, password = (plain(got.headers.get(key, "")) for key in ("login", "passcode"))
        if not user or self.broker.users.get(user) != password:
            text = f"User name [{user or 'null'}] or password is invalid."
            self.refuse(text, body=text.encode())
            return
        self._connected, self.user = True, user
        self.client = got.headers.get("client-id", self._connection)
        theirs, wanted = (int(word) for word in got.headers.get("heart-beat", "0,0").split(","))
        self._beat_s = wanted / 1000 if wanted else None
        self._ttl_s = 2 * theirs / 1000 if theirs else math.inf
        headers = [
            ("server", f"ActiveMQ/{self.broker.version}"),
            ("heart-beat", f"{wanted},{theirs}"),
            ("session", self._connection),
            ("version", "1.2"),
        ]
        self._send(frame("CONNECTED", headers))

    def _on_send(self, got: Frame) -> None:
        destination = _destination(got)
        if destination.startswith(statistics.ASKED):
            statistics.answer(self.broker, destination, got.headers)
        elif destination.startswith((TOPIC, TEMPORARY)):
            self.broker.topics.publish(destination, got.headers, got.body)
        else:
            self._do(got, partial(self._store, got, destination.removeprefix(QUEUE)))
        # Stored first: a receipt is only given for what a death would leave.
        self._receipt(got)

    def _store(self, got: Frame, queue: str) -> None:
        self._sent += 1
        expires, priority = got.headers.get("expires", "0"), got.headers.get("priority", "4")
        message = Message(
            number=self.broker.next_number(),
            address=queue,
            body=got.body,
            text="content-length" not in got.headers,
            headers={name: text for name, text in got.headers.items() if name not in _ITS},
            durable=got.headers.get("persistent") == "true",
            priority=min(int(priority), 9) if priority.isdecimal() else 4,
            timestamp_ms=int(got.headers.get("timestamp", self.broker.now_ms())),
            origin=self.broker.new_origin(f"{self._connection}:-1:1", self._sent),
            longs={EXPIRES: int(expires)} if expires != "0" else {},
        )
        self.broker.route(message)

    def _on_subscribe(self, got: Frame) -> None:
        destination, ident = _destination(got), got.headers.get("id", "")
        selector = got.headers.get("selector", "")
        try:
            compiled(selector)
        except BadFilter as error:
            raise Wrong(selector, _SELECTOR) from error
        if (before := self._subscriptions.pop(ident, None)) is not None:
            before.leave()
        self._receipt(got)
        if destination.startswith((TOPIC, TEMPORARY)):
            hearing = self._subscriptions[ident] = Hearing(self, ident)
            self.broker.topics.subscribed[hearing] = destination
        elif got.headers.get("browser") == "true":
            self._browse(ident, destination, selector, holds=got.headers.get("ack", "auto") != "auto")
        else:
            self._consume(got, ident, destination.removeprefix(QUEUE), selector)

    def _consume(self, got: Frame, ident: str, name: str, selector: str) -> None:
        broker, queue = self.broker, self.broker.queue_named(name)
        taker = QueueSubscription(
            session=self,
            ident=ident,
            queue=queue,
            mode=got.headers.get("ack", "auto"),
            prefetch=int(got.headers.get("activemq.prefetchSize", PREFETCH)),
            selector=selector,
            number=len(self._subscriptions) + 1,
            since_ms=broker.now_ms(),
        )
        self._subscriptions[ident] = taker
        queue.takers.append(taker)
        queue.dispatch()

    def _browse(self, ident: str, destination: str, selector: str, *, holds: bool) -> None:
        """Show what the first page has. Where a selector finds nothing on it and there is more, no end is told."""
        queue = self.broker.queue_named(destination.removeprefix(QUEUE))
        page = self.broker.page(queue)
        shown = [item for item in page if compiled(selector)(partial(named, item))]
        browsing = Browsing(self.broker, queue.name, len(shown) if holds else 0)
        self._subscriptions[ident] = browsing
        self.broker.browsing.append(browsing)
        self.broker.dispatched[queue.name] += len(shown)
        for message in shown:
            self.deliver(ident, message, acks=None)
        if shown or len(queue.messages) <= self.broker.browse_page:
            end = {"browser": "end", "destination": QUEUE + queue.name, "message-id": "0"}
            self.tell(ident, end, b"")

    def _on_unsubscribe(self, got: Frame) -> None:
        taker = self._subscriptions.pop(got.headers.get("id", ""), None)
        if taker is None:
            raise Wrong("No subscription matched.")
        taker.leave()
        self._receipt(got)

    def _on_ack(self, got: Frame) -> None:
        taker, message = self._acks.get(got.headers.get("id", ""), (None, None))
        if taker is None or message is None or message.number not in taker.in_hand:
            raise Wrong(f"Unexpected {got.command} received for message-id [null]")
        meant = [message] if got.command == "NACK" else taker.up_to(message)

        def done() -> None:
            for queue in meant:
                taker.done(queue, poison=got.command == "NACK")

        self._do(got, done)
        if (name := got.headers.get("transaction")) is not None:
            self._hide(name, [(taker.queue.name, name.number) for name in meant])
        del self._acks[got.headers["id"]]
        self._receipt(got)

    # transactions

    def _do(self, got: Frame, act: Callable[[], None]) -> None:
        """Do it now, or with the transaction that the frame names."""
        name = got.headers.get("transaction")
        if name is None:
            act()
        else:
            self._transaction(name).append(act)

    def _transaction(self, name: str) -> list[Callable[[], None]]:
        if name not in self._transactions:
            raise Wrong(f"Invalid transaction id: {name}")
        return self._transactions[name]

    def _on_begin(self, got: Frame) -> None:
        self._transactions[got.headers.get("transaction", "")] = []
        self._receipt(got)

    def _on_commit(self, got: Frame) -> None:
        acts = self._transaction(got.headers.get("transaction", ""))
        del self._transactions[got.headers["transaction"]]
        self._show(got.headers["transaction"])
        for act in acts:
            act()
        self._receipt(got)

    def _on_abort(self, got: Frame) -> None:
        self._transaction(got.headers.get("transaction", ""))
        del self._transactions[got.headers["transaction"]]
        self._show(got.headers["transaction"])
        self._receipt(got)

    def _hide(self, transaction: str, messages: list[tuple[str, int]]) -> None:
        """No listing shows what is acknowledged in an open transaction."""
        self._hidden.setdefault(transaction, []).extend(messages)
        self.broker.in_transactions.update(messages)

    def _show(self, transaction: str) -> None:
        self.broker.in_transactions.difference_update(self._hidden.pop(transaction, []))

    # to the client

    def deliver(self, ident: str, message: Message, *, acks: int | None) -> None:
        """`acks`: the acknowledgement's number, where the client must acknowledge."""
        headers = {
            "expires": str(message.longs.get(EXPIRES, 0)),
            "destination": QUEUE + message.address,
            "priority": str(message.priority),
            "message-id": named(message, "JMSMessageID") or "",
            "timestamp": str(message.timestamp_ms),
            **{name: text for name, text in message.headers.items() if name != PATH},
        }
        if message.durable:
            headers["persistent"] = "true"
        if message.failed:
            headers["redelivered"] = "true"
        if not message.text:
            headers["content-length"] = str(len(message.body))
        if acks is not None:
            headers["ack"] = f"{self.broker.ident[:-4]}-8:{self.ident}:{ident}:{acks}"
            taker = self._subscriptions[ident]
            if isinstance(taker, QueueSubscription):
                self._acks[headers["ack"]] = taker, message
        self.tell(ident, headers, message.body)

    def tell(self, ident: str, headers: Mapping[str, str], body: bytes) -> None:
        kept = {name: text for name, text in headers.items() if name not in ("receipt", "transaction")}
        self._send(frame("MESSAGE", [("subscription", ident), *kept.items()], body))


def _destination(got: Frame) -> str:
    """The destination; a name without a prefix is a queue."""
    name = got.headers.get("destination")
    if name is None:
        raise Wrong(f"{got.command} received without a Destination specified!")
    return name if name.startswith((QUEUE, TOPIC, TEMPORARY)) else QUEUE + name
