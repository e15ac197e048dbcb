"""A client's STOMP session: commands, subscriptions and transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dr_ctl_lab.twin.broker import ANYCAST, Broker
from dr_ctl_lab.twin.filters import BadFilter, compiled
from dr_ctl_lab.twin.frames import Frame, frame
from dr_ctl_lab.twin.messages import ORIGIN_NODE, ORIGIN_NUMBER, Message, Queue
from dr_ctl_lab.twin.parts import Peer
from dr_ctl_lab.twin.stomp_connection import TTL_S, StompConnection

WINDOW: Final = 10240
MIN_BEAT_S: Final = 0.5
_CONTROL_HEADERS: Final = frozenset(
    {"destination", "persistent", "priority", "destination-type", "content-length", "expires"}
)


@dataclass(eq=False)
class Subscription:
    """Consumes one queue, up to `window` bytes unacknowledged."""

    session: ArtemisSession
    ident: str
    queue: Queue
    mode: str
    window: int | None
    selector: str
    number: int
    since_ms: int
    in_hand: dict[int, Message] = field(default_factory=dict)
    delivered: int = 0
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self._selects = compiled(self.selector)

    @property
    def ready(self) -> bool:
        return self.window is None or self.window > 0

    def wants(self, message: Message) -> bool:
        return self._selects(message.headers.get)

    def message_id(self, message: Message) -> str:
        """The STOMP id of a message for this consumer."""
        number = str(message.number)
        return number if self.session.broker.bare_message_ids else f"{self.number},{number}"

    def take(self, queue: Queue, message: Message) -> None:
        self.delivered += 1
        self.session.deliver(self, message)
        if self.mode == "auto":
            self.session.broker.remove(queue, message)
            self.acknowledged += 1
            return
        self.in_hand[message.number] = message
        if self.window is not None:
            self.window -= message.size

    def done(self, message: Message) -> None:
        del self.in_hand[message.number]
        self.acknowledged += 1
        if self.window is not None:
            self.window += message.size
        if self.queue.name in self.session.broker.queues and message.number in self.queue.messages:
            self.session.broker.remove(self.queue, message)
        self.queue.dispatch()

    def leave(self, *, cut: bool) -> None:
        """Return unacknowledged messages; `cut`: the whole connection ends."""
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)
        if cut and self.in_hand:
            self.session.broker.on_consumer_lost(self.queue, list(self.in_hand.values()))
        # To the head of the queue, in their order: the last first.
        for message in reversed(list(self.in_hand.values())):
            if message.number in self.queue.messages:
                self.session.broker.give_back(self.queue, message, failed=True)
        self.in_hand.clear()
        self.queue.dispatch()


class ArtemisSession(StompConnection):
    def __init__(self, peer: Peer, acceptor: str, broker: Broker) -> None:
        super().__init__(peer, acceptor, broker)
        self._connected = False
        self._subscriptions: dict[str, Subscription] = {}
        self._transactions: dict[str, list[Callable[[], object]]] = {}

    def subscriptions(self) -> list[Subscription]:
        return list(self._subscriptions.values())

    def leave(self) -> None:
        subscriptions, self._subscriptions = list(self._subscriptions.values()), {}
        self._transactions.clear()
        for subscription in subscriptions:
            subscription.leave(cut=True)

    def _on_silence(self) -> None:
        text = (
            f"AMQ229014: Did not receive data from {self.remote} within the {round(self._ttl_s * 1000)}ms connection "
        )
        self.refuse(f"{text}TTL. The connection will now be closed.")

    # frames

    def _on_frame(self, received: Frame) -> None:
        commands = {
            "SEND": self._on_send,
            "SUBSCRIBE": self._on_subscribe,
            "UNSUBSCRIBE": self._on_unsubscribe,
            "ACK": self._on_ack,
            "NACK": self._on_ack,  # Artemis treats a NACK as an acknowledgement
            "BEGIN": self._on_begin,
            "COMMIT": self._on_end,
            "ABORT": self._on_end,
        }
        if received.command in ("CONNECT", "STOMP"):
            self._on_connect(received)
        elif not self._connected:
            return
        elif received.command == "DISCONNECT":
            self._send_receipt(received)
            self.broker.disconnect(self)
        elif received.command not in commands:
            self.refuse("AMQ339023 Invalid STOMP frame", body=b"AMQ339024: Invalid STOMP frame")
        else:
            # A consumer's receipt comes before its first message.
            commands[received.command](received)

    def _on_connect(self, received: Frame) -> None:
        if "1.2" not in received.headers.get("accept-version", "").split(","):
            version = received.headers.get("accept-version", "1.0")
            body = b"Supported protocol versions are v1.0 v1.1 v1.2"
            self.refuse(f"AMQ339002 Stomp versions not supported {version}", body=body)
            return
        user, password = received.headers.get("login"), received.headers.get("passcode")
        if user is None or self.broker.users.get(user) != password:
            text = f"Security Error occurred: User name [{user or 'null'}] or password is invalid"
            self.refuse(text, body=text.encode())
            return
        self._connected, self.user, self.client = True, user, received.headers.get("client-id", "")
        headers = [
            ("version", "1.2"),
            ("session", self.ident),
            ("server", f"ActiveMQ-Artemis/{self.broker.version} ActiveMQ Artemis Messaging Engine"),
        ]
        if (beats := received.headers.get("heart-beat")) is not None:
            client_ms, wanted_ms = (int(word) for word in beats.split(","))
            beat_ms = max(wanted_ms, round(MIN_BEAT_S * 1000)) if wanted_ms else 0
            self._beat_s = beat_ms / 1000 if beat_ms else None
            self._ttl_s = max(2 * client_ms / 1000, 2 * MIN_BEAT_S) if client_ms else TTL_S
            headers.append(("heart-beat", f"{beat_ms},{max(client_ms, 500) if client_ms else 30000}"))
        self._send(frame("CONNECTED", headers))

    def _on_send(self, received: Frame) -> None:
        broker, address = self.broker, received.headers.get("destination")
        if address is None:
            text = 'Cannot invoke "Object.hashCode()" because "key" is null'
            self.refuse(text, body=text.encode(), receipt=received.headers.get("receipt"))
            return
        kind, allows = (
            received.headers.get("destination-type"),
            partial(broker.security.may, self.user, address=address),
        )
        if address not in broker.addresses and not allows("createAddress"):
            text = f"AMQ229032: User: {self.user} does not have permission='CREATE_ADDRESS' on address {address}"
            self.refuse(text.replace(":", ""), body=text.encode(), receipt=received.headers.get("receipt"))
            return
        if not allows("send"):
            self.refuse(f"AMQ339011 Error sending message to {address}", receipt=received.headers.get("receipt"))
            return
        if (reason := broker.refuses_send(address)) is not None:
            self.refuse(reason, receipt=received.headers.get("receipt"))
            return
        if kind == ANYCAST and not any(queue.address == address for queue in broker.queues.values()):
            options = {"name": address, "address": address, "routing-type": ANYCAST, "durable": True}
            broker.create_queue(options, auto_created=True)
        elif address not in broker.addresses:
            broker.add_address(address, "multicast")
        properties = {
            name: text
            for name, text in received.headers.items()
            if name not in ("persistent", "priority", "expires", ORIGIN_NODE, ORIGIN_NUMBER)
        }
        priority = received.headers.get("priority", "4")
        message = Message(
            number=broker.next_number(),
            address=address,
            body=received.body,
            text="content-length" not in received.headers,
            headers=properties,
            durable=received.headers.get("persistent") == "true",
            priority=min(int(priority), 9) if priority.isdecimal() else 4,
            timestamp_ms=broker.now_ms(),
            anycast=kind == ANYCAST,
        )
        # Stored first: a receipt means that the message survives a death.
        self._do(received, partial(broker.route, message))
        self._send_receipt(received)

    def _on_subscribe(self, received: Frame) -> None:
        address = received.headers.get("destination", "")
        ident = received.headers.get("id") or f"subscription/{address}"
        if ident in self._subscriptions:
            text = f"There already is a subscription for: {ident}. Either use unique subscription IDs or do not create "
            self.refuse(f"{text}multiple subscriptions for the same destination")
            return
        if not self.broker.security.may(self.user, "consume", address):
            self.refuse(f"AMQ339016 Error creating subscription {ident}")
            return
        selector = received.headers.get("selector", "")
        queue = self._queue_of(address, received.headers.get("subscription-type"))
        mode = received.headers.get("ack", "auto")
        window: int | None = int(received.headers.get("consumer-window-size") or (-1 if mode == "auto" else WINDOW))
        try:
            consumer = Subscription(
                session=self,
                ident=ident,
                queue=queue,
                mode=mode,
                window=None if window == -1 else window,
                selector=selector,
                number=self.broker.next_number(),
                since_ms=self.broker.now_ms(),
            )
        except BadFilter:
            self.refuse(f'Invalid selector "{selector}"', body=selector.encode())
            return
        self._subscriptions[ident] = consumer
        self._send_receipt(received)
        queue.consumers.append(consumer)
        queue.dispatch()

    def _queue_of(self, address: str, kind: str | None) -> Queue:
        for queue in self.broker.queues.values():
            if queue.address == address:
                return queue
        options = {"name": address, "address": address, "routing-type": kind or "MULTICAST", "durable": True}
        return self.broker.create_queue(options, auto_created=True)

    def _on_unsubscribe(self, received: Frame) -> None:
        ident = received.headers.get("id", "")
        consumer = self._subscriptions.pop(ident, None)
        if consumer is None:
            text = f"Cannot unsubscribe as no subscription exists for id: {ident}"
            self.refuse(text, receipt=received.headers.get("receipt"))
            return
        consumer.leave(cut=False)
        self._send_receipt(received)

    def _on_ack(self, received: Frame) -> None:
        ident = received.headers.get("id", "")
        number = ident.rpartition(",")[2]
        for consumer in self._subscriptions.values():
            message = consumer.in_hand.get(int(number)) if number.isdecimal() else None
            if message is not None and consumer.message_id(message) == ident:
                earlier = list(consumer.in_hand.values()) if consumer.mode == "client" else [message]
                # At once, even within a transaction.
                for item in earlier[: earlier.index(message) + 1]:
                    consumer.done(item)
                self._send_receipt(received)
                return
        text = f"AMQ339025 failed to ack because no message with id {ident}"
        self.refuse(text, receipt=received.headers.get("receipt"))

    # transactions

    def _do(self, received: Frame, action: Callable[[], object]) -> None:
        """Call `action` now, or at the commit of the frame's transaction."""
        name = received.headers.get("transaction")
        if name is None:
            action()
        else:
            self._transactions.setdefault(name, []).append(action)

    def _on_begin(self, received: Frame) -> None:
        self._transactions[received.headers.get("transaction", "")] = []
        self._send_receipt(received)

    def _on_end(self, received: Frame) -> None:
        actions = self._transactions.pop(received.headers.get("transaction", ""), [])
        for action in actions if received.command == "COMMIT" else ():
            action()
        self._send_receipt(received)

    def deliver(self, consumer: Subscription, message: Message) -> None:
        ident = consumer.message_id(message)
        headers = [("subscription", consumer.ident)]
        if not message.text:
            headers.append(("content-length", str(len(message.body))))
        headers += [
            ("message-id", ident),
            ("destination", message.address),
            ("expires", "0"),
            ("redelivered", str(message.failed > 0).lower()),
            ("priority", str(message.priority)),
            ("persistent", str(message.durable).lower()),
            ("timestamp", str(message.timestamp_ms)),
        ]
        if message.anycast:
            headers.append(("destination-type", ANYCAST))
        if message.origin is not None:
            headers += [(ORIGIN_NODE, message.origin[0]), (ORIGIN_NUMBER, str(message.origin[1]))]
        headers += [(name, text) for name, text in message.headers.items() if name not in _CONTROL_HEADERS]
        headers += [(name, str(number)) for name, number in message.longs.items()]
        if consumer.mode != "auto":
            headers.append(("ack", ident))
        if message.text:
            headers.append(("content-length", str(len(message.body))))
        self._send(frame("MESSAGE", headers, message.body))
