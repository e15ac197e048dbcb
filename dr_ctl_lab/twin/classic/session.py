"""A client's STOMP session at a Classic broker. Only a wrong login and an unknown command end the session; other
mistakes get an ERROR frame."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dr_ctl_lab.twin.classic import statistics
from dr_ctl_lab.twin.classic.broker import EXPIRES, ClassicBroker
from dr_ctl_lab.twin.classic.composite import PATH, selector_value
from dr_ctl_lab.twin.classic.subscription import Browser, QueueSubscription, TopicSubscription
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.frames import Frame, frame, plain
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.parts import Peer
from dr_ctl_lab.twin.stomp_connection import StompConnection

PREFETCH: Final = 1000
QUEUE, TOPIC, TEMPORARY = "/queue/", "/topic/", "/temp-queue/"
_PROTOCOL: Final = "org.apache.activemq.transport.stomp.ProtocolException"
COMMANDS: Final = frozenset({"SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"})
_SELECTOR: Final = "javax.jms.InvalidSelectorException"
# Headers of a client's message that are not properties.
_CONTROL_HEADERS: Final = frozenset(
    {"destination", "persistent", "priority", "expires", "receipt", "transaction", "content-length", "timestamp"}
)

Subscription = QueueSubscription | Browser | TopicSubscription


class ProtocolError(Exception):
    """The broker's error for a frame that it cannot execute."""

    def __init__(self, text: str, kind: str = _PROTOCOL) -> None:
        super().__init__(text)
        self.text, self.kind = text, kind


class ClassicSession(StompConnection):
    """`_transactions` are the actions of each commit."""

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

    def subscriptions(self) -> list[QueueSubscription]:
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

    def _on_silence(self) -> None:
        self.broker.disconnect(self)

    # frames

    def _on_frame(self, received: Frame) -> None:
        if received.command in ("CONNECT", "STOMP"):
            self._on_connect(received)
        elif received.command == "DISCONNECT":
            self._send_receipt(received)
            self.broker.disconnect(self)
        elif received.command not in COMMANDS:
            text = f"Unknown STOMP action: {received.command}"
            self.refuse(text, body=f"{_PROTOCOL}: {text}".encode(), receipt=received.headers.get("receipt"))
        else:
            try:
                self._dispatch(received)
            except ProtocolError as error:
                body = f"{error.kind}: {error.text}".encode()
                self._send_error(error.text, body, received.headers.get("receipt"))

    def _dispatch(self, received: Frame) -> None:
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
            raise ProtocolError("Not connected.")
        commands[received.command](received)

    def _on_connect(self, received: Frame) -> None:
        # The broker unescapes these headers too, against the STOMP specification.
        user, password = (plain(received.headers.get(key, "")) for key in ("login", "passcode"))
        if not user or self.broker.users.get(user) != password:
            text = f"User name [{user or 'null'}] or password is invalid."
            self.refuse(text, body=text.encode())
            return
        self._connected, self.user = True, user
        self.client = received.headers.get("client-id", self._connection)
        client_ms, wanted_ms = (int(word) for word in received.headers.get("heart-beat", "0,0").split(","))
        self._beat_s = wanted_ms / 1000 if wanted_ms else None
        self._ttl_s = 2 * client_ms / 1000 if client_ms else math.inf
        headers = [
            ("server", f"ActiveMQ/{self.broker.version}"),
            ("heart-beat", f"{wanted_ms},{client_ms}"),
            ("session", self._connection),
            ("version", "1.2"),
        ]
        self._send(frame("CONNECTED", headers))

    def _on_send(self, received: Frame) -> None:
        destination = _destination(received)
        if destination.startswith(statistics.PREFIX):
            statistics.answer(self.broker, destination, received.headers)
        elif destination.startswith((TOPIC, TEMPORARY)):
            self.broker.topics.publish(destination, received.headers, received.body)
        else:
            self._do(received, partial(self._store, received, destination.removeprefix(QUEUE)))
        # Stored first: a receipt means that the message survives a death.
        self._send_receipt(received)

    def _store(self, received: Frame, queue: str) -> None:
        self._sent += 1
        expires, priority = received.headers.get("expires", "0"), received.headers.get("priority", "4")
        message = Message(
            number=self.broker.next_number(),
            address=queue,
            body=received.body,
            text="content-length" not in received.headers,
            headers={name: text for name, text in received.headers.items() if name not in _CONTROL_HEADERS},
            durable=received.headers.get("persistent") == "true",
            priority=min(int(priority), 9) if priority.isdecimal() else 4,
            timestamp_ms=int(received.headers.get("timestamp", self.broker.now_ms())),
            origin=self.broker.new_origin(f"{self._connection}:-1:1", self._sent),
            longs={EXPIRES: int(expires)} if expires != "0" else {},
        )
        self.broker.route(message)

    def _on_subscribe(self, received: Frame) -> None:
        destination, ident = _destination(received), received.headers.get("id", "")
        selector = received.headers.get("selector", "")
        try:
            compiled(selector)
        except BadFilter as error:
            raise ProtocolError(selector, _SELECTOR) from error
        if (previous := self._subscriptions.pop(ident, None)) is not None:
            previous.leave()
        self._send_receipt(received)
        if destination.startswith((TOPIC, TEMPORARY)):
            subscription = self._subscriptions[ident] = TopicSubscription(self, ident)
            self.broker.topics.subscribed[subscription] = destination
        elif received.headers.get("browser") == "true":
            self._browse(ident, destination, selector, holds=received.headers.get("ack", "auto") != "auto")
        else:
            self._consume(received, ident, destination.removeprefix(QUEUE), selector)

    def _consume(self, received: Frame, ident: str, name: str, selector: str) -> None:
        broker, queue = self.broker, self.broker.queue_named(name)
        consumer = QueueSubscription(
            session=self,
            ident=ident,
            queue=queue,
            mode=received.headers.get("ack", "auto"),
            prefetch=int(received.headers.get("activemq.prefetchSize", PREFETCH)),
            selector=selector,
            number=len(self._subscriptions) + 1,
            since_ms=broker.now_ms(),
        )
        self._subscriptions[ident] = consumer
        queue.consumers.append(consumer)
        queue.dispatch()

    def _browse(self, ident: str, destination: str, selector: str, *, holds: bool) -> None:
        """Send the first page. Without a match on it, and with more pages, the end is not announced."""
        queue = self.broker.queue_named(destination.removeprefix(QUEUE))
        page = self.broker.page(queue)
        shown = [item for item in page if compiled(selector)(partial(selector_value, item))]
        browser = Browser(self.broker, queue.name, len(shown) if holds else 0)
        self._subscriptions[ident] = browser
        self.broker.browsers.append(browser)
        self.broker.dispatched[queue.name] += len(shown)
        for message in shown:
            self.deliver(ident, message, acks=None)
        if shown or len(queue.messages) <= self.broker.browse_page:
            end = {"browser": "end", "destination": QUEUE + queue.name, "message-id": "0"}
            self.send_message(ident, end, b"")

    def _on_unsubscribe(self, received: Frame) -> None:
        consumer = self._subscriptions.pop(received.headers.get("id", ""), None)
        if consumer is None:
            raise ProtocolError("No subscription matched.")
        consumer.leave()
        self._send_receipt(received)

    def _on_ack(self, received: Frame) -> None:
        consumer, message = self._acks.get(received.headers.get("id", ""), (None, None))
        if consumer is None or message is None or message.number not in consumer.in_hand:
            raise ProtocolError(f"Unexpected {received.command} received for message-id [null]")
        meant = [message] if received.command == "NACK" else consumer.acknowledged_by(message)

        def done() -> None:
            for item in meant:
                consumer.done(item, poison=received.command == "NACK")

        self._do(received, done)
        if (name := received.headers.get("transaction")) is not None:
            self._hide(name, [(consumer.queue.name, item.number) for item in meant])
        del self._acks[received.headers["id"]]
        self._send_receipt(received)

    # transactions

    def _do(self, received: Frame, action: Callable[[], None]) -> None:
        """Call `action` now, or at the commit of the frame's transaction."""
        name = received.headers.get("transaction")
        if name is None:
            action()
        else:
            self._transaction(name).append(action)

    def _transaction(self, name: str) -> list[Callable[[], None]]:
        if name not in self._transactions:
            raise ProtocolError(f"Invalid transaction id: {name}")
        return self._transactions[name]

    def _on_begin(self, received: Frame) -> None:
        self._transactions[received.headers.get("transaction", "")] = []
        self._send_receipt(received)

    def _on_commit(self, received: Frame) -> None:
        actions = self._transaction(received.headers.get("transaction", ""))
        del self._transactions[received.headers["transaction"]]
        self._show(received.headers["transaction"])
        for action in actions:
            action()
        self._send_receipt(received)

    def _on_abort(self, received: Frame) -> None:
        self._transaction(received.headers.get("transaction", ""))
        del self._transactions[received.headers["transaction"]]
        self._show(received.headers["transaction"])
        self._send_receipt(received)

    def _hide(self, transaction: str, messages: list[tuple[str, int]]) -> None:
        """Hide messages that an open transaction has acknowledged from listings."""
        self._hidden.setdefault(transaction, []).extend(messages)
        self.broker.in_transactions.update(messages)

    def _show(self, transaction: str) -> None:
        self.broker.in_transactions.difference_update(self._hidden.pop(transaction, []))

    # to the client

    def deliver(self, ident: str, message: Message, *, acks: int | None) -> None:
        """Send a message; `acks` is the acknowledgement's number, where one is needed."""
        headers = {
            "expires": str(message.longs.get(EXPIRES, 0)),
            "destination": QUEUE + message.address,
            "priority": str(message.priority),
            "message-id": selector_value(message, "JMSMessageID") or "",
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
            consumer = self._subscriptions[ident]
            if isinstance(consumer, QueueSubscription):
                self._acks[headers["ack"]] = consumer, message
        self.send_message(ident, headers, message.body)

    def send_message(self, ident: str, headers: Mapping[str, str], body: bytes) -> None:
        kept = {name: text for name, text in headers.items() if name not in ("receipt", "transaction")}
        self._send(frame("MESSAGE", [("subscription", ident), *kept.items()], body))


def _destination(received: Frame) -> str:
    """The destination; a name without a prefix is a queue."""
    name = received.headers.get("destination")
    if name is None:
        raise ProtocolError(f"{received.command} received without a Destination specified!")
    return name if name.startswith((QUEUE, TOPIC, TEMPORARY)) else QUEUE + name
